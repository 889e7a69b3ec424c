"""`Posterior`: draws of the reward, and everything needed to judge, plot, save and use them."""

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from kdbirl.data.demonstrations import Demonstrations
from kdbirl.errors import InputError
from kdbirl.features.base import FeatureMap
from kdbirl.posterior.conditions import Condition, NamedDraws, holds
from kdbirl.posterior.convergence import Convergence, assess
from kdbirl.posterior.storage import (
    bandwidth_of,
    cards_of,
    damaged,
    digest_of,
    frozen,
    json_copy,
    names_of,
    read_posterior,
    save_posterior,
    spec_of,
    statistic_of,
    table_of,
    to_datatree,
)

if TYPE_CHECKING:
    import polars
    import xarray

# Arrays of the constructor are any numbers: their shapes are checked below, with a sentence for the user.
Array = np.ndarray[Any, np.dtype[Any]]
CELLS_AT_ONCE = 2**22  # of the table rows x draws in `reward`: 32 MB


@dataclass(frozen=True)
class RewardOfRows:
    """The reward of given rows under the posterior: mean, standard deviation and a central interval for each."""

    mean: Float[np.ndarray, " rows"]
    sd: Float[np.ndarray, " rows"]
    low: Float[np.ndarray, " rows"]
    high: Float[np.ndarray, " rows"]
    level: float


def _nothing() -> Array:
    return np.zeros((0, 0))


@dataclass(frozen=True, eq=False, repr=False)
class Posterior:
    """Draws from p(R | expert), as every method gives them. Equal content is equal; arrays are read-only.

    draws: `(chain, draw, q)`; names: of the q reward parameters; method, sampler, seed: what made them.
    sample_stats: `(chain, draw)` each, such as lp (the log density of each draw), diverging, energy.
    prior_draws: `(p, q)`. log_likelihood: `(chain, draw, u)` of each of the u *distinct* expert rows, never powered.
    expert_index: `(n,)`: which distinct row each expert row is; expert_features: `(n, d)`, with feature_names;
    expert_episodes: `(n,)`: the episode of each.
    task_rewards `(K, q)`, task_names, task_rows `(K,)`: the bank that spoke.
    h, h_reward, power, bandwidth_rule: the bandwidths used (standard deviations), and the rule that chose them.
    settings: everything else on record (JSON). reward_features: phi of R(s,a) = phi(s,a) . w, if rewards are weights.
    cards: findings by name, each (colour, sentence). `settings["pareto_k"]` is VI's k-hat, read by `convergence`.
    """

    draws: Array
    names: tuple[str, ...]
    method: str
    sampler: str
    seed: int
    sample_stats: dict[str, Array] = field(default_factory=dict)
    prior_draws: Array = field(default_factory=_nothing)
    log_likelihood: Array | None = None
    expert_index: Array = field(default_factory=_nothing)
    expert_features: Array = field(default_factory=_nothing)
    feature_names: tuple[str, ...] = ()
    expert_episodes: Array = field(default_factory=_nothing)
    task_rewards: Array = field(default_factory=_nothing)
    task_names: tuple[str, ...] = ()
    task_rows: Array = field(default_factory=_nothing)
    h: float | tuple[float, ...] | None = None
    h_reward: float | None = None
    power: float = 1.0
    bandwidth_rule: str = ""
    settings: dict[str, Any] = field(default_factory=dict)
    reward_features: FeatureMap | None = None
    cards: dict[str, tuple[str, str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        draws = frozen(self.draws, "draws", (None, None, None), np.float64)
        chains, n_draws, q = draws.shape
        if 0 in draws.shape:
            raise InputError(f"draws: there are none (shape {draws.shape}); expected (chain, draw, parameter).")
        if not np.isfinite(draws).all():
            chain, draw, j = (int(i) for i in np.argwhere(~np.isfinite(draws))[0])
            where = f"parameter {j + 1} of draw {draw + 1} in chain {chain + 1}"
            raise InputError(f"draws: {where} is {draws[chain, draw, j]}; every draw must be finite.")
        for name in ("method", "sampler", "bandwidth_rule"):
            if not isinstance(getattr(self, name), str):
                raise InputError(f"{name}: expected text, got {type(getattr(self, name)).__name__}.")
        self._set(draws=draws, names=names_of(self.names, q, "names"), seed=int(self.seed), power=float(self.power))
        self._set(sample_stats={str(k): statistic_of(v, k, (chains, n_draws)) for k, v in self.sample_stats.items()})
        self._set(prior_draws=table_of(self.prior_draws, "prior_draws", q))
        self._set_expert(chains, n_draws)
        self._set_tasks(q)
        self._set(h=bandwidth_of(self.h), h_reward=None if self.h_reward is None else float(self.h_reward))
        self._set(settings=json_copy(self.settings), cards=cards_of(self.cards))

    def with_findings(self, cards: Mapping[str, Sequence[str]], diagnosis: Mapping[str, Any]) -> "Posterior":
        """The same draws with cards, and what these rest on as `settings["diagnosis"]`; draws are not checked again."""
        same = copy(self)
        same._set(cards=cards_of(cards), settings={**self.settings, "diagnosis": json_copy(diagnosis)})
        return same

    def _set(self, **values: object) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def _set_expert(self, chains: int, n_draws: int) -> None:
        features = frozen(self.expert_features, "expert_features", (None, None), np.float64)
        given = self.expert_index if np.size(self.expert_index) else np.arange(len(features))
        index = frozen(given, "expert_index", (len(features),), np.int64)
        episodes = self.expert_episodes if np.size(self.expert_episodes) else np.zeros(len(features))
        self._set(expert_features=features, expert_index=index)
        self._set(expert_episodes=frozen(episodes, "expert_episodes", (len(features),), np.int64))
        # two maps side by side may both call a column "x": features are looked at, never looked up by name
        names = names_of(self.feature_names, features.shape[1], "feature_names", default="x", distinct=False)
        self._set(feature_names=names)
        if self.log_likelihood is None:
            return
        table = frozen(self.log_likelihood, "log_likelihood", (chains, n_draws, None), np.float64)
        if not np.array_equal(np.unique(index), np.arange(table.shape[2])):
            raise InputError(
                f"log_likelihood: it has {table.shape[2]} distinct expert rows, so expert_index must name each of "
                f"0 to {table.shape[2] - 1}, and nothing else."
            )
        self._set(log_likelihood=table)

    def _set_tasks(self, q: int) -> None:
        rewards = table_of(self.task_rewards, "task_rewards", q)
        counts = self.task_rows if np.size(self.task_rows) else np.zeros(0)
        self._set(task_rewards=rewards, task_rows=frozen(counts, "task_rows", (len(rewards),), np.int64))
        self._set(task_names=names_of(self.task_names, len(rewards), "task_names", default=""))

    @property
    def flat(self) -> Float[np.ndarray, "draws q"]:
        """All draws of all chains, `(chain * draw, q)`."""
        return self.draws.reshape(-1, self.draws.shape[2])

    def mean(self) -> Float[np.ndarray, " q"]:
        """The posterior mean of each parameter."""
        return np.asarray(self.flat.mean(axis=0))

    def map(self) -> Float[np.ndarray, " q"]:
        """The draw of the highest posterior density: the maximum a posteriori among the draws."""
        if "lp" not in self.sample_stats:
            raise InputError(f"map: the draws of {self.sampler} have no log density 'lp'; use mean() instead.")
        density = np.asarray(self.sample_stats["lp"], dtype=np.float64).ravel()
        best = int(np.argmax(np.where(np.isnan(density), -np.inf, density)))
        return np.array(self.flat[best])

    @cached_property
    def convergence(self) -> Convergence:
        """R-hat, effective sample sizes, divergences, E-BFMI, and whether to trust the draws, in a sentence."""
        facts = self.settings.get("sampler_facts") or {}
        of_cells = facts.get("lattice_step"), self.settings.get("effective_cells")
        return assess(self.draws, self.names, self.sampler, self.sample_stats, self.settings.get("pareto_k"), *of_cells)

    def summary(self) -> "polars.DataFrame":
        """For each parameter mean, sd, the 5 %, 50 % and 95 % quantiles, R-hat, bulk and tail effective sample size."""
        import polars

        low, median, high = np.quantile(self.flat, [0.05, 0.5, 0.95], axis=0)
        columns = {"mean": self.mean(), "sd": self.flat.std(axis=0), "q05": low, "median": median, "q95": high}
        checks = {name: getattr(self.convergence, name) for name in ("r_hat", "ess_bulk", "ess_tail")}
        return polars.DataFrame({"parameter": list(self.names), **columns, **checks})

    def probability(self, condition: Condition) -> float:
        """Posterior probability of `"w1 > w2"` or `"w1 > 0.5"`, or of a function: `lambda r: r["w1"] > r["w2"]`."""
        return float(np.mean(holds(condition, NamedDraws(self.flat, self.names))))

    def reward(self, rows: Demonstrations, level: float = 0.9, features: FeatureMap | None = None) -> RewardOfRows:
        """R(s,a) = phi(s,a) . w of new rows: posterior mean, sd and the central `level` interval of each row.

        Blocks of rows keep memory bounded; the cost is rows * draws * q. `features` replaces `reward_features`.
        """
        if not 0 < level < 1:
            raise InputError(f"level: {level} is not a probability; give a number between 0 and 1, such as 0.9.")
        phi = self._reward_features(rows, features)
        weights = self.flat.T
        block = max(1, CELLS_AT_ONCE // weights.shape[1])
        parts = [_describe(phi[i : i + block] @ weights, level) for i in range(0, len(phi), block)]
        mean, sd, low, high = np.concatenate(parts, axis=1)
        return RewardOfRows(mean, sd, low, high, level)

    def _reward_features(self, rows: Demonstrations, features: FeatureMap | None) -> Float[np.ndarray, "rows q"]:
        chosen = features if features is not None else self.reward_features
        if chosen is None:
            raise InputError(
                "reward: this posterior does not know which features its parameters weigh; give reward_features to the "
                "method, or features= here: a feature map with one column for each parameter."
            )
        phi = np.asarray(chosen(rows), dtype=np.float64)
        if phi.shape[1] != len(self.names):
            raise InputError(f"reward: the features have {phi.shape[1]} columns for {len(self.names)} parameters.")
        return phi

    def report_card(self) -> dict[str, tuple[str, str]]:
        """Findings by name, each (colour, sentence); convergence is always among them."""
        return {"convergence": (self.convergence.colour, self.convergence.sentence), **self.cards}

    def to_arviz(self) -> "xarray.DataTree":
        """As ArviZ's DataTree: posterior, sample_stats, log_likelihood, prior, observed_data, constant_data."""
        return to_datatree(self)

    def save(self, path: str | Path) -> None:
        """Write one netCDF file that ArviZ opens and `load_posterior` reads back equal; whole or not at all."""
        save_posterior(self, path)

    def fingerprint(self) -> str:
        """SHA-256 of the content, in hex: equal content, equal fingerprint, in any process."""
        return self._digest

    @cached_property
    def _digest(self) -> str:
        items = {item.name: getattr(self, item.name) for item in fields(self) if item.name != "sample_stats"}
        items["reward_features"] = spec_of(self.reward_features)
        statistics = {f"sample_stats.{name}": self.sample_stats[name] for name in sorted(self.sample_stats)}
        return digest_of({**items, **statistics})

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Posterior) and self._digest == other._digest

    def __hash__(self) -> int:
        return hash(self._digest)

    def __repr__(self) -> str:
        chains, draws, q = self.draws.shape
        shown = ", ".join(self.names[:4]) + (", ..." if q > 4 else "")
        made = f"{self.method}, {self.sampler}, seed {self.seed}"
        return f"Posterior({made}: {chains} x {draws} draws of {q} parameters: {shown})"


def _describe(values: Float[np.ndarray, "rows draws"], level: float) -> Float[np.ndarray, "4 rows"]:
    low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2], axis=1)
    return np.stack([values.mean(axis=1), values.std(axis=1), low, high])


def load_posterior(path: str | Path, functions: Mapping[str, Any] | None = None) -> Posterior:
    """The posterior that `Posterior.save` wrote. `functions` gives back Python code of its reward features, by name."""
    place = Path(path)
    stored, fingerprint = read_posterior(place, functions)
    try:
        posterior = Posterior(**stored)
        intact = posterior.fingerprint() == fingerprint
    except Exception as error:
        damaged(place, error)
    if not intact:
        damaged(place, None)
    return posterior
