"""The training rows as `KDBIRL.fit` needs them: features, estimator and plays, of a bank in memory or a streamed one.

Of a streamed bank one pass gives everything but kernel sums. If its distinct rows are few (discrete worlds), they are
all kept, with their counts, and nothing is ever read again. Otherwise a sample stands for the rows wherever a rule
needs rows, and kernel sums are taken over all of them (`likelihood.streamed_rows`).
"""

from dataclasses import dataclass, replace
from typing import Any

from kdbirl.cluster import Cluster
from kdbirl.demos.bank_pass import summarise
from kdbirl.demos.bank_summary import BankSummary
from kdbirl.demos.cluster_summary import summarise_on
from kdbirl.demos.data import Demonstrations, TaskBank
from kdbirl.demos.streamed_bank import StreamedBank
from kdbirl.diagnosis.plays import Plays
from kdbirl.features import FeatureMap, as_feature_map
from kdbirl.features.streamed_fit import fit_streamed
from kdbirl.likelihood.ckde import CKDE
from kdbirl.likelihood.cluster_rows import ClusterRows, RowsInMemory
from kdbirl.likelihood.distinct import weighted_by_task
from kdbirl.likelihood.streamed_rows import StreamedRows
from kdbirl.progress import Progress

Bank = TaskBank | StreamedBank


@dataclass(frozen=True)
class TrainingRows:
    """A bank, and the summary of a streamed one."""

    bank: Bank
    summary: BankSummary | None = None
    cluster: Cluster | None = None

    @classmethod
    def of(cls, bank: Bank, seed: int, progress: Progress | None, cluster: Cluster | None = None) -> "TrainingRows":
        """Reads a streamed bank once, here or on a cluster."""
        if isinstance(bank, StreamedBank):
            if cluster is not None:
                return cls(bank, summarise_on(cluster, bank, seed, progress), cluster)
            return cls(bank, summarise(bank, seed, progress))
        return cls(bank, None, cluster)

    @property
    def demonstrations(self) -> Demonstrations:
        """The rows that show what states and actions look like."""
        if self.summary is not None:
            return self.summary.fit_rows
        assert isinstance(self.bank, TaskBank)
        return self.bank.demonstrations

    def features(self, chosen: Any, progress: Progress | None) -> FeatureMap:
        """The fitted map."""
        if self.summary is not None:
            return fit_streamed(as_feature_map(chosen), self.summary, progress)
        assert isinstance(self.bank, TaskBank)
        return as_feature_map(chosen).fit(self.bank, progress)

    def ckde(self, features: FeatureMap, **choices: Any) -> CKDE:
        """The estimator: of all rows, or of a sample that knows where the others are."""
        if self.summary is None:
            assert isinstance(self.bank, TaskBank)
            rows, index = features.distinct(self.bank.demonstrations)
            ckde = CKDE.from_rows(rows, self.bank.tasks, self.bank.rewards, index=index, **choices)
            return ckde if self.cluster is None else replace(ckde, all_rows=_spread(ckde, self.cluster))
        rows, index = features.distinct(self.summary.rows.demonstrations)
        found = weighted_by_task(rows, self.summary.rows.tasks, index, self.summary.weights)
        ckde = CKDE(*found, self.bank.rewards, **choices)
        if self.summary.exact:
            return ckde
        rows_on_disk = StreamedRows(self.summary.coded, features)
        if self.cluster is None:
            return replace(ckde, all_rows=rows_on_disk)
        return replace(ckde, all_rows=ClusterRows(rows_on_disk, self.summary.coded.n_pieces, self.cluster))

    def plays(self, features: FeatureMap, seed: int) -> Plays:
        """Rows in whole episodes, for tasks that play the test task."""
        bank = self.bank if self.summary is None else self.summary.plays
        assert isinstance(bank, TaskBank)
        return Plays.from_bank(bank, features, seed)

    @property
    def notes(self) -> tuple[str, ...]:
        """What rules that need rows were given in place of all of them."""
        if self.summary is None:
            return ()
        if self.summary.exact:
            plays = self.summary.plays.n_rows
            found = f"streamed: where tasks play the test task (loto), {plays:,} of {self.summary.n_rows:,} rows do"
            return (found,) if plays < self.summary.n_rows else ()
        shown = f"{len(self.summary.weights):,} sampled rows stand for {self.summary.n_rows:,}"
        return (f"streamed: where a rule needs training rows, {shown}; the likelihood is that of all of them",)


def _spread(ckde: CKDE, cluster: Cluster) -> ClusterRows:
    """Rows in memory, sent to the cluster in pieces whenever sums are asked for."""
    rows = RowsInMemory(ckde.rows, ckde.weights, ckde.tasks, ckde.n_tasks)
    return ClusterRows(rows, rows.n_pieces, cluster)
