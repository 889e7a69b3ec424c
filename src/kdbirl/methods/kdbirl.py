"""KD-BIRL: the posterior over a new task's reward, from labelled training tasks (Mandyam et al., TMLR 2024).

    p(R | expert)  ~  p(R) * prod_i p(s_i, a_i | R)^power        (Eq. 6; Eq. 10 with features; the paper has power 1)

with p(s, a | R) estimated from the training tasks (`likelihood.ckde`).
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from kdbirl.demos.data import Demonstrations, TaskBank
from kdbirl.errors import InputError, did_you_mean
from kdbirl.features import FeatureMap, as_feature_map
from kdbirl.likelihood.bandwidths import Bandwidths, by_rule, given
from kdbirl.likelihood.ckde import CKDE, CKDELikelihood, Conditional
from kdbirl.likelihood.distances import Distance
from kdbirl.likelihood.distinct import distinct_rows
from kdbirl.likelihood.kernels import Kernel, ProductKernel, as_kernel, on_columns
from kdbirl.methods.reward_features import default_reward_features
from kdbirl.posterior.auto import as_sampler
from kdbirl.posterior.priors import Prior
from kdbirl.posterior.result import Posterior
from kdbirl.posterior.sampler import Draws, Problem, Sampler
from kdbirl.posterior.target import Target
from kdbirl.precision import float64
from kdbirl.progress import Progress, Silent

PRIOR_DRAWS = 4000
REWARDS_AT_ONCE = 16  # rewards whose pointwise likelihoods are computed together
DEFAULT_RULE = "median"

KernelChoice = str | Kernel | Callable[..., Any]
BandwidthChoice = Any  # the name of a rule, or (h, h_reward): checked when fitting


@dataclass(frozen=True)
class Fitted:
    """What `fit` learns: the feature map, the training rows in feature space, the bandwidths, the bank's names."""

    features: FeatureMap
    ckde: CKDE
    bandwidths: Bandwidths
    prior: Any
    reward_features: FeatureMap | None
    reward_names: tuple[str, ...]
    task_names: tuple[str, ...]
    bank_fingerprint: str


@dataclass
class KDBIRL:
    """KD-BIRL with all its choices. `fit(bank)` once, then `posterior(expert, seed=0)` for each test task.

    prior: over the reward, required. features: phi(s, a), default standardised states and one-hot actions.
    bandwidth: a rule ("paper", "silverman", "scott", "median", "cv") or `(h, h_reward)`, the widths in K(d/h): the
        standard deviation of a Gaussian (never its variance), the scale of a Laplace, the edge of a compact kernel.
    sampler: "auto" (exact grid where it suits, else NUTS), another name, or a sampler object.
    kernel, distance (features), reward_kernel, reward_distance: names, objects, or functions of one pair. Distances:
        "euclidean", "manhattan", "cosine" (1 - cos), "dot" (max(0, 1 - x.y)).
    power: multiplies the log likelihood in the posterior; 1 is the paper.
    conditional: "state-action" is the paper's p(s, a | R); "action" is p(a | s, R), for experts with other starts.
    task_weights: "rows" is the paper; "equal" stops tasks with many rows from dominating.
    reward_features: phi of R(s, a) = phi(s, a) . w, for `Posterior.reward`; guessed from the names where it is plain.
    """

    prior: Any
    features: Any = None
    bandwidth: BandwidthChoice = DEFAULT_RULE
    sampler: Any = "auto"
    kernel: KernelChoice = "gaussian"
    distance: str | Distance = "euclidean"
    reward_kernel: KernelChoice = "gaussian"
    reward_distance: str | Distance = "euclidean"
    power: Any = 1.0
    conditional: Any = "state-action"
    task_weights: Any = "rows"
    reward_features: Any = None
    fitted: Fitted | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.prior, Prior):
            raise InputError(
                f"prior={self.prior!r} is not a prior; give one such as kb.Uniform(0, 1) or kb.Normal(0, 1)."
            )
        if self.conditional not in ("state-action", "action"):
            raise InputError(f'conditional={self.conditional!r} should be "state-action" (the paper) or "action".')
        if self.task_weights not in ("rows", "equal"):
            raise InputError(f'task_weights={self.task_weights!r} should be "rows" (the paper) or "equal".')
        if not (np.ndim(self.power) == 0 and is_number(self.power) and 0 < self.power < np.inf):
            raise InputError(f"power={self.power!r} should be a positive number; 1 is the paper.")
        as_sampler(self.sampler)

    def fit(self, bank: Any, seed: int = 0, progress: Progress | None = None) -> "KDBIRL":
        """Learn phi where it is learnt, and choose the bandwidths. `seed` is for rules that subsample rows."""
        if not isinstance(bank, TaskBank):
            raise InputError(
                f"fit needs a TaskBank, not {type(bank).__name__}: see kb.read_task_bank and kb.TaskBank.from_arrays."
            )
        seed = _whole_number(seed)
        if bank.n_tasks < 2:
            raise InputError(
                "The bank has one task. One task cannot say how behaviour changes with the reward: at least two, with "
                "different rewards, are needed."
            )
        prior = self.prior.for_parameters(bank.n_parameters, bank.reward_names)
        _check_support(prior, bank)
        features = as_feature_map(self.features).fit(bank.demonstrations)
        ckde = self._ckde(features, bank)
        bandwidths = self._bandwidths(ckde, seed)
        reward_features = default_reward_features(self.reward_features, bank)
        fingerprint = bank.fingerprint()
        self.fitted = Fitted(
            features, ckde, bandwidths, prior, reward_features, bank.reward_names, bank.names, fingerprint
        )
        return self

    def posterior(self, expert: Any, seed: Any = 0, progress: Progress | None = None) -> Posterior:
        """The posterior over the reward of the task that `expert` demonstrates."""
        fitted, progress = self._ready(), progress or Silent()
        rows = self._expert_features(expert)
        seed = _whole_number(seed)
        draws, likelihood = self._sampled(rows, seed, progress)
        return self._result(expert, rows, draws, likelihood, seed, fitted)

    @float64
    def log_likelihood(self, expert: Any, rewards: Any) -> Any:
        """sum_i log p(s_i, a_i | R) for each reward (r, q), up to the constant of K_h; never powered."""
        fitted = self._ready()
        table = reward_rows(rewards, fitted.reward_names)
        likelihood = self._likelihood(self._expert_features(expert), Silent(), matrix_form=False)
        counts = np.asarray(likelihood.counts)
        values = _pointwise(likelihood, table)[:, counts > 0] @ counts[counts > 0]  # padding may be 0 * -inf
        return values[0] if np.ndim(rewards) == 1 else values

    def save(self, path: str | Path) -> None:
        """Write the fitted model to one file (no pickle); `load_model` reads it."""
        from kdbirl.methods.model_file import save_model

        save_model(self, Path(path))

    def _ready(self) -> Fitted:
        if self.fitted is None:
            raise InputError("This KDBIRL has not been fitted: call fit(bank) first.")
        return self.fitted

    def _ckde(self, features: FeatureMap, bank: TaskBank) -> CKDE:
        kernel = on_columns(as_kernel(self.kernel, self.distance), features.names, features.groups)
        reward_kernel = as_kernel(self.reward_kernel, self.reward_distance)
        if isinstance(reward_kernel, ProductKernel):
            raise InputError("reward_kernel is one kernel over the whole reward, not a product.")
        rows, index = features.distinct(bank.demonstrations)
        columns = _state_columns(features, self.conditional)
        return CKDE.from_rows(
            rows,
            bank.tasks,
            bank.rewards,
            kernel,
            reward_kernel,
            self.conditional,
            self.task_weights,
            columns,
            index,
        )

    def _bandwidths(self, ckde: CKDE, seed: int) -> Bandwidths:
        if isinstance(self.bandwidth, str):
            return by_rule(self.bandwidth, ckde, seed)
        if not isinstance(self.bandwidth, Sequence | np.ndarray) or len(self.bandwidth) != 2:
            raise InputError(
                f"bandwidth={self.bandwidth!r} should be the name of a rule, or two numbers (h, h_reward)."
            )
        return given(self.bandwidth[0], self.bandwidth[1], ckde.kernel.parts)

    def _expert_features(self, expert: Any) -> Float[np.ndarray, "n d"]:
        if not isinstance(expert, Demonstrations):
            raise InputError(
                f"The expert must be Demonstrations, not {type(expert).__name__}: see kb.read_demonstrations."
            )
        return self._ready().features(expert)

    def _likelihood(
        self, rows: Float[np.ndarray, "n d"], progress: Progress, matrix_form: bool | None = None
    ) -> CKDELikelihood:
        fitted = self._ready()
        widths = fitted.bandwidths
        return fitted.ckde.likelihood(rows, widths.h, widths.h_reward, fitted.prior.box, matrix_form, progress)

    @float64
    def _sampled(self, rows: np.ndarray, seed: int, progress: Progress) -> tuple[Draws, CKDELikelihood]:
        """Draws and the likelihood they were drawn with.

        The fast form of the likelihood is safe inside the prior's box; a prior without bounds could let draws leave it.
        """
        fitted, sampler = self._ready(), as_sampler(self.sampler)
        likelihood = self._likelihood(rows, progress)
        draws = self._drawn(sampler, likelihood, seed, progress)
        low, high = fitted.prior.box
        if likelihood.numerator.matrix_form and ((draws.draws < low) | (draws.draws > high)).any():
            likelihood = self._likelihood(rows, progress, matrix_form=False)
            draws = self._drawn(sampler, likelihood, seed, progress)
        progress.close()
        return draws, likelihood

    def _drawn(self, sampler: Sampler, likelihood: CKDELikelihood, seed: int, progress: Progress) -> Draws:
        fitted = self._ready()
        target = Target.build(fitted.prior, likelihood, self.power)
        problem = Problem(
            target, fitted.prior, fitted.ckde.informed_directions(), fitted.ckde.reward_kernel.differentiable
        )
        return sampler.sample(problem, seed, progress)

    @float64
    def _result(
        self,
        expert: Demonstrations,
        rows: np.ndarray,
        draws: Draws,
        likelihood: CKDELikelihood,
        seed: int,
        fitted: Fitted,
    ) -> Posterior:
        chains, per_chain, q = draws.draws.shape
        flat = draws.draws.reshape(-1, q)
        _, index, counts = distinct_rows(rows)
        pointwise = _pointwise(likelihood, flat)[:, : len(counts)]
        log_prior = _log_priors(Target.build(fitted.prior, likelihood, self.power), flat)
        lp = (log_prior + self.power * (pointwise @ counts)).reshape(chains, per_chain)
        widths = fitted.bandwidths
        return Posterior(
            draws=draws.draws,
            names=fitted.reward_names,
            method="KDBIRL",
            sampler=draws.sampler,
            seed=seed,
            sample_stats={**draws.stats, "lp": lp},
            prior_draws=fitted.prior.sample(np.random.default_rng(seed + 1), PRIOR_DRAWS),
            log_likelihood=pointwise.reshape(chains, per_chain, -1),
            expert_index=index,
            expert_features=rows,
            feature_names=tuple(fitted.features.names),
            task_rewards=fitted.ckde.task_rewards,
            task_names=fitted.task_names,
            task_rows=fitted.ckde.rows_per_task.astype(np.int64),
            h=float(widths.h[0]) if len(widths.h) == 1 else tuple(widths.h.tolist()),
            h_reward=widths.h_reward,
            power=float(self.power),
            bandwidth_rule=widths.rule,
            settings=self._settings(draws, expert, rows, fitted),
            reward_features=fitted.reward_features,
        )

    def _settings(self, draws: Draws, expert: Demonstrations, rows: np.ndarray, fitted: Fitted) -> dict[str, Any]:
        """Everything else that a reader of the result may ask for."""
        from kdbirl.installation import package_versions

        sampler, unseen = as_sampler(self.sampler), _unseen_note(rows, fitted.features.names)
        chosen: dict[str, Any] = asdict(sampler)  # type: ignore[call-overload]
        constant = fitted.ckde.kernel.log_constant([float(width) for width in fitted.bandwidths.h])
        return {
            "prior": fitted.prior.describe(),
            "features": type(fitted.features).__name__,
            "kernel": as_kernel(self.kernel, self.distance).describe(),
            "kernel_log_constant": constant,
            "reward_kernel": fitted.ckde.reward_kernel.describe(),
            "conditional": self.conditional,
            "task_weights": self.task_weights,
            "sampler": {"asked": sampler.name, **chosen},
            "sampler_facts": draws.facts,
            "notes": [*fitted.bandwidths.notes, *_informed_note(fitted), *unseen, *draws.notes],
            "bank": fitted.bank_fingerprint,
            "expert": expert.fingerprint(),
            "versions": package_versions(),
            **({"pareto_k": draws.facts["pareto_k"]} if "pareto_k" in draws.facts else {}),
        }


def _informed_note(fitted: Fitted) -> list[str]:
    """K tasks inform at most K - 1 directions; the user must know which share that is."""
    directions, q = fitted.ckde.informed_directions(), len(fitted.reward_names)
    if directions is None or len(directions) == q:
        return []
    return [f"the training tasks inform {len(directions)} of {q} reward directions; the others keep the prior"]


def _unseen_note(rows: Float[np.ndarray, "n d"], names: Sequence[str]) -> list[str]:
    """A state or action that no training task shows is a finding, not an error: nothing was declared."""
    others = [i for i, name in enumerate(names) if name.endswith("=<other>")]
    count = int((rows[:, others] > 0).any(axis=1).sum()) if others else 0
    if not count:
        return []
    what = " or ".join(sorted({names[i].split("=")[0] for i in others if (rows[:, i] > 0).any()}))
    return [f"{count} of {len(rows)} expert rows have a value of {what} that no training task shows"]


def _check_support(prior: Prior, bank: TaskBank) -> None:
    if not prior.contains(bank.rewards).any():
        low, high = prior.support
        first = bank.rewards[0]
        outside = int(np.flatnonzero((first < low) | (first > high))[0])
        raise InputError(
            f"The prior {prior.describe()} excludes every training reward: for example {bank.reward_names[outside]} = "
            f"{first[outside]:g} of task {bank.names[0]!r}. Widen the prior, or check the units of the rewards table."
        )


def _state_columns(features: FeatureMap, conditional: Conditional) -> tuple[int, ...]:
    """The feature columns of the state alone, for p(a | s, R)."""
    if conditional == "state-action":
        return ()
    groups = features.groups
    if not groups.get("state") or not groups.get("action") or groups.get("mixed"):
        raise InputError(
            'conditional="action" needs features of which each column comes from the state alone or from the action '
            f"alone; these have {', '.join(f'{len(v)} from {k}' for k, v in groups.items()) or 'none'}."
        )
    return tuple(groups["state"])


def reward_rows(rewards: Any, names: Sequence[str]) -> Float[np.ndarray, "r q"]:
    """Rewards (r, q) or (q,) as a table of finite numbers; the columns of a frame are found by name."""
    if hasattr(rewards, "columns"):
        missing = [name for name in names if name not in list(rewards.columns)]
        if missing:
            raise InputError(
                f"rewards has no column {missing[0]!r}.{did_you_mean(missing[0], map(str, rewards.columns))}"
            )
        rewards = rewards[list(names)].to_numpy()
    try:
        table = np.atleast_2d(np.asarray(rewards, dtype=float))
    except (TypeError, ValueError):
        raise InputError(f"rewards={rewards!r} are not numbers: give an array with one row per reward.") from None
    if table.ndim != 2 or table.shape[1] != len(names):
        raise InputError(
            f"rewards has shape {np.shape(rewards)}; expected one row per reward and one column for each of "
            f"{', '.join(names)}."
        )
    if not np.isfinite(table).all():
        row, column = (int(i) for i in np.argwhere(~np.isfinite(table))[0])
        raise InputError(f"rewards: row {row + 1}, {names[column]!r} is {table[row, column]}; it must be finite.")
    return table


def is_number(value: Any) -> bool:
    """A number, not text that looks like one."""
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)


def _whole_number(seed: object) -> int:
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or not 0 <= int(seed) < 2**32:
        raise InputError(f"seed={seed!r} should be a whole number from 0 to 4294967295.")
    return int(seed)


@jax.jit
def _pointwise_batches(likelihood: CKDELikelihood, rewards: Array) -> Array:
    return jax.lax.map(likelihood.pointwise, rewards, batch_size=REWARDS_AT_ONCE)


def _pointwise(likelihood: CKDELikelihood, rewards: Float[np.ndarray, "r q"]) -> Float[np.ndarray, "r u"]:
    """log p(x_i | R) of each distinct expert row for many rewards, padded to few sizes so that little is compiled."""
    if not len(rewards):
        return np.zeros((0, likelihood.counts.shape[0]))
    size = max(REWARDS_AT_ONCE, 2 ** int(np.ceil(np.log2(len(rewards)))))
    padded = np.concatenate([rewards, np.repeat(rewards[-1:], size - len(rewards), axis=0)])
    return np.asarray(_pointwise_batches(likelihood, jnp.asarray(padded)))[: len(rewards)]


@jax.jit
def _log_prior_batches(target: Target, rewards: Array) -> Array:
    return jax.vmap(target.log_prior)(rewards)


def _log_priors(target: Target, rewards: Any) -> Any:
    return np.asarray(_log_prior_batches(target, jnp.asarray(rewards)))
