"""The one pass over a streamed bank, made by a cluster."""

from kdbirl.cluster import Cluster
from kdbirl.demos.bank_summary import BankSummary
from kdbirl.demos.piece_reading import merged, summarise_piece
from kdbirl.demos.piece_summary import PieceSummary
from kdbirl.demos.streamed_bank import StreamedBank
from kdbirl.progress import Progress


def summarise_on(cluster: Cluster, bank: StreamedBank, seed: int, progress: Progress | None = None) -> BankSummary:
    """As `summarise(bank, seed)`: each worker summarises whole pieces, summaries are merged by a tree."""
    if seed not in bank._summaries:
        pieces, shared = range(bank.source.n_pieces), (bank, seed)
        found = cluster.merged(_summary, pieces, merged, shared, progress, "reading")
        bank._summaries[seed] = BankSummary.of(bank, found)
    return bank._summaries[seed]


def _summary(piece: int, bank: StreamedBank, seed: int) -> PieceSummary | None:
    return summarise_piece(bank, piece, seed)
