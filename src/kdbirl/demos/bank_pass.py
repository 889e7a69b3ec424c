"""The one pass over a streamed bank: threads read its pieces, and what they tell is merged in their order."""

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import reduce
from typing import TypeVar

import polars as pl

from kdbirl.demos.bank_summary import BankSummary
from kdbirl.demos.counted_rows import CountedRows, plays_of
from kdbirl.demos.piece_reading import SUMMARY_BLOCKS, blocks_of, merged, summarise_piece
from kdbirl.demos.piece_summary import PieceSummary
from kdbirl.demos.streamed_bank import StreamedBank
from kdbirl.progress import Progress, Silent
from kdbirl.threads import cores

Found = TypeVar("Found")


def summarise(bank: StreamedBank, seed: int = 0, progress: Progress | None = None) -> BankSummary:
    """What one pass over all rows tells; kept with the bank for each seed."""
    if seed not in bank._summaries:
        bank._summaries[seed] = _summarised(bank, seed, progress)
    return bank._summaries[seed]


def _summarised(bank: StreamedBank, seed: int, progress: Progress | None) -> BankSummary:
    """Small pieces of whole numbers are counted; of others each thread summarises some."""
    pieces = range(bank.source.n_pieces)
    with closing(_Pass(bank, seed, progress or Silent())) as run:
        counted, left = run.counted(pieces) if _may_be_counted(bank) else (None, pieces)
        found = merged(counted, run.merged(left))
    return BankSummary.of(bank, found)


def _may_be_counted(bank: StreamedBank) -> bool:
    """Whole numbers, in pieces that are one block each: these wait in memory."""
    sizes = [bank.source.rows_of(piece) for piece in range(bank.source.n_pieces)]
    small = all(rows is not None and rows <= SUMMARY_BLOCKS * bank.block_rows for rows in sizes)
    return small and CountedRows.suits(bank)


class _Pass:
    """Threads that read, and what is made of it in the order of the pieces."""

    def __init__(self, bank: StreamedBank, seed: int, progress: Progress) -> None:
        self.bank, self.seed, self.progress = bank, seed, progress
        self.workers = min(cores(), bank.source.n_pieces)
        self.pool = ThreadPoolExecutor(self.workers)

    def close(self) -> None:
        self.pool.shutdown(cancel_futures=True)

    def counted(self, pieces: range) -> tuple[PieceSummary | None, range]:
        """Threads decode and choose episodes, this one counts, until it cannot: the summary so far, and what is left.

        One thread counts where the last block was counted, so that nothing has to be merged.
        """
        counted = CountedRows(self.bank, self.seed)
        for piece, block in self._in_order(self._only_block, pieces):
            if block is not None and not counted.add(*block, (piece, 0)):
                return counted.summary(), pieces[piece:]
        return counted.summary(), pieces[len(pieces) :]

    def _only_block(self, piece: int) -> tuple[pl.DataFrame, pl.DataFrame] | None:
        """The rows of a piece and those of its episodes that are kept; None where it has none."""
        for table, first in blocks_of(self.bank, piece):
            return table.frame, plays_of(self.bank, table, piece, first, self.seed)
        return None

    def merged(self, pieces: range) -> PieceSummary | None:
        """Each thread summarises pieces."""
        found = self._in_order(lambda piece: summarise_piece(self.bank, piece, self.seed), pieces)
        return reduce(merged, (one for _, one in found), None)

    def _in_order(self, work: Callable[[int], Found], pieces: range) -> Iterator[tuple[int, Found]]:
        """What the threads make of the pieces; few in flight, so that memory stays bounded."""
        waiting = deque(self.pool.submit(work, piece) for piece in pieces[: self.workers + 1])
        for place, piece in enumerate(pieces):
            found = waiting.popleft().result()
            for following in pieces[place + self.workers + 1 : place + self.workers + 2]:
                waiting.append(self.pool.submit(work, following))
            yield piece, found
            self.progress.update("reading", piece + 1, self.bank.source.n_pieces, "pieces of the training table")
