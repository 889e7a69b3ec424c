"""Which bandwidths and power a fitted model uses for an expert of n rows."""

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from kdbirl.data.arrays import Moments
from kdbirl.data.cluster import Cluster, summarise_on
from kdbirl.data.demonstrations import Demonstrations, TaskBank
from kdbirl.data.large import StreamedBank
from kdbirl.data.large_pass import summarise
from kdbirl.data.large_summary import BankSummary
from kdbirl.errors import CalibrationWarning, InputError, did_you_mean
from kdbirl.features import FeatureMap, as_feature_map
from kdbirl.features.maps import Columns
from kdbirl.likelihood.bandwidths import RULES, Bandwidths, by_rule, given
from kdbirl.likelihood.ckde import CKDE
from kdbirl.likelihood.large_sums import ClusterRows, RowsInMemory, StreamedRows
from kdbirl.likelihood.sums import weighted_by_task
from kdbirl.posterior.priors import Prior
from kdbirl.progress import Progress, Silent
from kdbirl.random_streams import stream
from kdbirl.trust.held_out import Plays
from kdbirl.trust.loto import FALLBACK, Loto, LotoSettings, leave_one_task_out, why_not

LOTO = "loto"


@dataclass(frozen=True)
class Choice:
    """The bandwidths and the power in use; `loto` is the search that found them, if one did."""

    bandwidths: Bandwidths
    power: float
    loto: Loto | None = None


@dataclass(frozen=True, eq=False)
class Choices:
    """The choice for every number of expert rows: the same for all, or searched for each n and kept.

    start: the bandwidths in use, or, if it `searches`, those that the search of `loto` starts from.
    power: the power that was asked for; None leaves it to the search.
    """

    ckde: CKDE
    prior: Prior
    names: tuple[str, ...]
    plays: Plays
    start: Bandwidths
    power: float | None = None
    searches: bool = False
    settings: LotoSettings = field(default_factory=LotoSettings)
    cluster: Cluster | None = None
    _found: dict[int, Choice] = field(default_factory=dict, repr=False)

    def for_rows(self, n: int, progress: Progress | None = None) -> Choice:
        """The choice for an expert of n rows; a search is done once for each n."""
        if not self.searches:
            return Choice(self.start, 1.0 if self.power is None else self.power)
        if n not in self._found:
            given = (self.ckde, self.plays, self.prior, self.start, n, self.names, self.settings, progress)
            found = leave_one_task_out(*given, cluster=self.cluster, power=self.power)
            widths = replace(found.bandwidths, notes=(*self.start.notes, *found.notes))
            self._found[n] = Choice(widths, found.power, found)
        return self._found[n]

    @property
    def latest(self) -> Bandwidths:
        """The bandwidths that were last chosen, or those that a search would start from."""
        return next(reversed(self._found.values())).bandwidths if self._found else self.start


def asks_for_loto(bandwidth: Any) -> bool:
    """Whether a model's `bandwidth` means leaving tasks out (also where it is left to us)."""
    return (
        bandwidth is None or isinstance(bandwidth, LotoSettings) or (bandwidth == LOTO and isinstance(bandwidth, str))
    )


def fixed_bandwidths(bandwidth: Any, ckde: CKDE, seed: int) -> Bandwidths:
    """Bandwidths by a rule that needs only the bank, or as given."""
    if isinstance(bandwidth, str):
        if bandwidth not in RULES:
            near = did_you_mean(bandwidth, (LOTO, *RULES))
            raise InputError(f"There is no bandwidth rule called {bandwidth!r}.{near}")
        return by_rule(bandwidth, ckde, seed)
    if not isinstance(bandwidth, Sequence | np.ndarray) or len(bandwidth) != 2:
        raise InputError(f"bandwidth={bandwidth!r} should be the name of a rule, or two numbers (h, h_reward).")
    return given(bandwidth[0], bandwidth[1], ckde.kernel.parts)


def fallback(bandwidth: Any, ckde: CKDE, prior: Prior, start: Bandwidths) -> Bandwidths | None:
    """Where leaving tasks out says nothing: the named rule with a note, and a warning if "loto" was asked for."""
    why = why_not(ckde, prior)
    if why is None:
        return None
    sentence = f"loto: {why}; the {FALLBACK} rule is used instead, and the posterior may be over-confident"
    if bandwidth is not None:
        warnings.warn(sentence, CalibrationWarning, stacklevel=4)
    return replace(start, notes=(*start.notes, sentence))


# What KD-BIRL learns from a bank.

PRIOR_DRAWS = 4000


@dataclass(frozen=True)
class Fitted:
    """What `fit` learns: the feature map, the training rows in feature space, the bandwidths, the bank's names."""

    features: FeatureMap
    ckde: CKDE
    choices: Choices
    prior: Prior
    reward_features: FeatureMap | None
    reward_names: tuple[str, ...]
    task_names: tuple[str, ...]
    bank_fingerprint: str


class ExpertRows(NamedTuple):
    """An expert's rows in feature space, their episodes, and the fingerprint of the demonstrations."""

    rows: Float[np.ndarray, "n d"]
    episodes: Int[np.ndarray, " n"]
    fingerprint: str


def drawn_prior(prior: Prior, seed: int) -> Float[np.ndarray, "d q"]:
    """The prior draws that are kept beside a posterior: no sampler has started from them."""
    return prior.sample(np.random.default_rng(stream(seed, "prior draws")), PRIOR_DRAWS)


# Feature maps of a streamed bank: fitted on its sample, with means and scales of all rows.
#
# Levels of one-hot features are complete, as the rows that are fitted on have each of them. Maps that learn more than
# that (a VAE, PCA, a user's transformer) learn from the sample alone.


def fit_streamed(feature_map: FeatureMap, summary: BankSummary, progress: Progress | None = None) -> FeatureMap:
    """A fitted map; another pass over the rows is needed only to standardise features that are not plain columns."""
    fitted = feature_map.fit(summary.fit_rows, progress)
    return fitted.with_moments(lambda part: _moments(part, summary, progress or Silent()))


def _moments(part: FeatureMap, summary: BankSummary, progress: Progress) -> Moments:
    """Of the features of a fitted map over all rows."""
    if isinstance(part, Columns):
        known = [summary.moments(part.block_of(name).source, name) for name in part.columns]
        found = [moments for moments in known if moments is not None]
        if len(found) == len(known):
            return _side_by_side(found)
    if summary.exact:
        return Moments.of_weighted(part(summary.rows.demonstrations), summary.weights)
    return reduce(Moments.merged, _of_blocks(part, summary, progress))


def _of_blocks(part: FeatureMap, summary: BankSummary, progress: Progress) -> Iterator[Moments]:
    coded = summary.coded
    for piece in range(coded.n_pieces):
        for block in coded.blocks(piece):
            yield Moments.of(list(part(block.demonstrations).T))
        progress.update("standardising", piece + 1, coded.n_pieces, "pieces of the training table")


def _side_by_side(parts: list[Moments]) -> Moments:
    mean, squares, low, high = (
        np.concatenate([getattr(part, name) for part in parts]) for name in ("mean", "squares", "low", "high")
    )
    return Moments(parts[0].count, mean, squares, low, high)


# The training rows as `KDBIRL.fit` needs them: features, estimator and plays, of a bank in memory or a streamed one.
#
# Of a streamed bank one pass gives everything but kernel sums. If its distinct rows are few (discrete worlds), they are
# all kept, with their counts, and nothing is ever read again. Otherwise a sample stands for the rows wherever a rule
# needs rows, and kernel sums are taken over all of them (`likelihood.streamed_rows`).

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


# Columns of numbers that say nothing to any method that looks at distances: a note tells, since no result would.

BEYOND = 1e6  # times the spread of all but a hundredth of the rows on either side: they would look alike


def odd_columns(rows: Demonstrations) -> tuple[str, ...]:
    """A sentence for each column that is constant, or has a number beyond all others."""
    columns = []
    if not rows.discrete_states:
        columns += list(zip(rows.state_names, rows.states.T, strict=True))
    if rows.actions is not None and not rows.discrete_actions:
        columns += list(zip(rows.action_names, rows.actions.T, strict=True))
    return tuple(sentence for name, values in columns if (sentence := _oddity(name, values)))


def _oddity(name: str, values: Float[np.ndarray, " m"]) -> str:
    low, high = float(values.min()), float(values.max())
    if low == high:
        return f"column {name!r} is {low:g} in every training row, and says nothing"
    near, far = np.quantile(values, [0.01, 0.99])
    with np.errstate(over="ignore"):
        hides = 0 < far - near < (high - low) / BEYOND
    extreme = low if near - low > high - far else high
    return f"column {name!r} is {extreme:g} somewhere, beside which all other training rows look alike" if hides else ""
