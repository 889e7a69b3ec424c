"""KD-BIRL: the posterior over a new task's reward, from labelled training tasks (Mandyam et al., TMLR 2024).

    p(R | expert)  ~  p(R) * prod_i p(s_i, a_i | R)^power        (Eq. 6; Eq. 10 with features; the paper has power 1)

with p(s, a | R) estimated from the training tasks (`likelihood.ckde`).
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Float

from kdbirl._jax import float64, is_traced
from kdbirl.data.cluster import Cluster
from kdbirl.data.demonstrations import Demonstrations, TaskBank
from kdbirl.data.large import StreamedBank
from kdbirl.errors import InputError
from kdbirl.features import FeatureMap
from kdbirl.installation import package_versions
from kdbirl.likelihood.bandwidths import Bandwidths, by_rule
from kdbirl.likelihood.ckde import CKDE, REWARDS_AT_ONCE, CKDELikelihood, Conditional, pointwise_of
from kdbirl.likelihood.distances import Distance
from kdbirl.likelihood.kernels import Kernel, ProductKernel, as_kernel, on_columns
from kdbirl.likelihood.sums import distinct_rows
from kdbirl.methods.arguments import (
    default_reward_features,
    is_number,
    reward_rows,
    row_count,
    traced_rewards,
    whole_seed,
)
from kdbirl.methods.diagnosed import diagnosed, log_priors, warn_of_silence
from kdbirl.methods.fitted import (
    Bank,
    Choice,
    Choices,
    ExpertRows,
    Fitted,
    TrainingRows,
    asks_for_loto,
    drawn_prior,
    fallback,
    fixed_bandwidths,
    odd_columns,
)
from kdbirl.methods.many import posteriors
from kdbirl.methods.model_file import read_model, save_model
from kdbirl.methods.posteriors import Posteriors
from kdbirl.posterior.auto import as_sampler
from kdbirl.posterior.priors import Prior
from kdbirl.posterior.result import Posterior
from kdbirl.posterior.target import Draws, Problem, Sampler, Target
from kdbirl.progress import Progress, Silent
from kdbirl.trust.calibration import Calibration
from kdbirl.trust.held_out import calibrate_held_out
from kdbirl.trust.identifiability import Identifiability, identify
from kdbirl.trust.loto import FALLBACK, LotoSettings
from kdbirl.trust.sensitivity import Change, Sensitivity, sensitivity

KernelChoice = str | Kernel | Callable[..., Any]
BandwidthChoice = Any  # the name of a rule, or (h, h_reward): checked when fitting


@dataclass
class KDBIRL:
    """KD-BIRL with all its choices. `fit(bank)` once, then `posterior(expert, seed=0)` for each test task.

    prior: over the reward, required. features: phi(s, a), default standardised states and one-hot actions.
    bandwidth: a rule ("loto", "paper", "silverman", "scott", "median", "cv") or `(h, h_reward)`, the widths in K(d/h):
        the standard deviation of a Gaussian (never its variance), the scale of a Laplace, the edge of a compact kernel.
        "loto" leaves each training task out in turn and chooses for the expert's own number of rows; `kb.LotoSettings`
        changes its search. None: "loto", or the median rule where the bank is too small for it (a note says so).
    sampler: "auto" (exact grid where it suits, else NUTS), another name, or a sampler object.
    kernel, distance (features), reward_kernel, reward_distance: names, objects, or functions of one pair. Distances:
        "euclidean", "manhattan", "cosine" (1 - cos), "dot" (max(0, 1 - x.y)).
    power: multiplies the log likelihood in the posterior; 1 is the paper. None: "loto" chooses it; with other rules, 1.
    conditional: "state-action" is the paper's p(s, a | R); "action" is p(a | s, R), for experts with other starts.
    task_weights: "rows" is the paper; "equal" stops tasks with many rows from dominating.
    reward_features: phi of R(s, a) = phi(s, a) . w, for `Posterior.reward`; guessed from the names where it is plain.
    """

    prior: Any
    features: Any = None
    bandwidth: BandwidthChoice = None
    sampler: Any = "auto"
    kernel: KernelChoice = "gaussian"
    distance: str | Distance = "euclidean"
    reward_kernel: KernelChoice = "gaussian"
    reward_distance: str | Distance = "euclidean"
    power: Any = None
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
        if self.power == "loto" if isinstance(self.power, str) else self.power is None:
            self.power = None
        elif not (np.ndim(self.power) == 0 and is_number(self.power) and 0 < self.power < np.inf):
            raise InputError(f'power={self.power!r} should be a positive number (1 is the paper), or "loto".')
        as_sampler(self.sampler)

    def fit(
        self, bank: Any, n: Any = None, seed: int = 0, progress: Progress | None = None, client: Any = None
    ) -> "KDBIRL":
        """Learn phi where it is learnt, and choose the bandwidths. `seed` is for rules that subsample rows.

        "loto" chooses for a number of expert rows: for `n` here, if given; `posterior` does so for its own number.
        client: a `distributed.Client`: its cluster then reads the bank, here, and makes the kernel sums and the search
        of "loto", here and in every `posterior`.
        """
        seed = whole_seed(seed)
        check_bank(bank)
        if bank.n_tasks < 2:
            raise InputError(
                "The bank has one task. One task cannot say how behaviour changes with the reward: at least two, with "
                "different rewards, are needed."
            )
        prior = self.prior.for_parameters(bank.n_parameters, bank.reward_names)
        check_support(prior, bank)
        cluster = None if client is None else Cluster.of(client)
        training = TrainingRows.of(bank, seed, progress, cluster)
        features = training.features(self.features, progress)
        ckde = self._ckde(features, training)
        choices = self._choices(ckde, prior, training, features, seed)
        reward_features = default_reward_features(self.reward_features, training.demonstrations, bank.reward_names)
        fingerprint = bank.fingerprint()
        self.fitted = Fitted(
            features, ckde, choices, prior, reward_features, bank.reward_names, bank.names, fingerprint
        )
        warn_of_silence(self.fitted)
        if n is not None:
            choices.for_rows(row_count(n), progress)
        return self

    def posterior(self, expert: Any, seed: Any = 0, progress: Progress | None = None) -> Posterior:
        """The posterior over the reward of the task that `expert` demonstrates."""
        return self._posterior(self._shown(expert), whole_seed(seed), progress)

    def _shown(self, expert: Any) -> ExpertRows:
        """An expert as the model sees it."""
        rows = self._expert_features(expert)
        return ExpertRows(rows, expert.episodes, expert.fingerprint())

    def _posterior(self, expert: ExpertRows, seed: int, progress: Progress | None) -> Posterior:
        fitted, progress = self._ready(), progress or Silent()
        choice = fitted.choices.for_rows(len(expert.rows), progress)
        draws, likelihood = self._sampled(expert.rows, choice, seed, progress)
        return diagnosed(self._result(expert, choice, draws, likelihood, seed, fitted), fitted, choice)

    def posteriors(
        self, experts: Any, seed: Any = 0, tasks: Any = None, progress: Progress | None = None
    ) -> Posteriors:
        """The posteriors of many test tasks at once: features, bandwidths, kernel sums and sampling are shared.

        experts: `{name: Demonstrations}`, a list of Demonstrations (named "0", "1", ...), or one Demonstrations with
            `tasks`, the task's name of each of its rows.
        With the default sampler the tasks are sampled together by independence Metropolis (`kb.Independence`); tasks
        for which its proposals do not fit, and all tasks where another sampler was asked for, one by one. A task's
        draws depend on the seed and its own rows, not on the other tasks.
        """
        return posteriors(self, experts, whole_seed(seed), tasks, progress or Silent())

    def identifiability(self, n: Any = None) -> Identifiability:
        """What the training tasks can say about the reward, whatever an expert does: rank, directions, what would help.

        n: for how many expert rows, where "loto" chooses h' by it; not given, with the h' that was last chosen. The
        directions do not depend on it, but their strengths and the gaps between tasks, in units of h', do.
        """
        fitted = self._ready()
        choices = fitted.choices
        widths = choices.latest if n is None else choices.for_rows(row_count(n)).bandwidths
        return identify(fitted.ckde, fitted.prior, fitted.reward_names, widths.h_reward)

    def calibration(self, n: Any, progress: Progress | None = None) -> Calibration:
        """How far posteriors from n expert rows can be trusted, by leaving out each training task in turn."""
        choices, rows = self._ready().choices, row_count(n)
        choice = choices.for_rows(rows, progress)
        if choice.loto is not None:
            return choice.loto.calibration
        given = choices.ckde, choices.plays, choices.prior, choice.bandwidths, choice.power, rows, choices.names
        return calibrate_held_out(*given, progress)

    def sensitivity(self, expert: Any, seed: Any = 0, progress: Progress | None = None) -> Sensitivity:
        """How the posterior moves when h, h', the power or the prior's width is halved or doubled.

        expert: `Demonstrations`, or the posterior of them that this model gave.
        """
        base = expert if isinstance(expert, Posterior) else self.posterior(expert, seed, progress)
        shown = ExpertRows(base.expert_features, base.expert_episodes, str(base.settings.get("expert", "")))
        return sensitivity(lambda change: self._changed(base, change)._posterior(shown, base.seed, progress), base)

    def _changed(self, base: Posterior, change: Change) -> "KDBIRL":
        """The same model with other bandwidths, power and prior; phi and the bank stay."""
        fitted = self._ready()
        prior = fitted.prior if change.prior == 1 else fitted.prior.widened(change.prior)
        h = np.atleast_1d(np.asarray(base.h, dtype=float))
        start = Bandwidths(h * change.h, float(base.h_reward or 0.0) * change.h_reward, "changed")
        choices = Choices(
            fitted.ckde, prior, fitted.reward_names, fitted.choices.plays, start, base.power * change.power
        )
        return replace(self, prior=prior, fitted=replace(fitted, choices=choices, prior=prior))

    @float64
    def log_likelihood(self, expert: Any, rewards: Any) -> Any:
        """sum_i log p(s_i, a_i | R) for each reward (r, q), up to the constant of K_h; never powered.

        A function of the rewards in JAX, too: jit, grad and vmap may trace it, in double precision.
        """
        fitted = self._ready()
        if is_traced(rewards):
            return self._traced_log_likelihood(expert, traced_rewards(rewards, fitted.reward_names))
        table = reward_rows(rewards, fitted.reward_names)
        rows = self._expert_features(expert)
        likelihood = self._likelihood(rows, fitted.choices.for_rows(len(rows)), Silent(), matrix_form=False)
        counts = np.asarray(likelihood.counts)
        values = pointwise_of(likelihood, table)[:, counts > 0] @ counts[counts > 0]  # padding may be 0 * -inf
        return values[0] if np.ndim(rewards) == 1 else values

    def _traced_log_likelihood(self, expert: Any, rewards: Array) -> Array:
        """The same in somebody's program: what does not depend on the rewards is computed now, as it is traced."""
        with jax.ensure_compile_time_eval():
            rows = self._expert_features(expert)
            choice = self._ready().choices.for_rows(len(rows))
            likelihood = self._likelihood(rows, choice, Silent(), matrix_form=False)
        if rewards.ndim == 1:
            return likelihood(rewards)
        return jax.lax.map(likelihood, rewards, batch_size=REWARDS_AT_ONCE)

    def save(self, path: str | Path) -> None:
        """Write the fitted model to one file (no pickle); `load_model` reads it."""
        save_model(self, Path(path))

    def _ready(self) -> Fitted:
        if self.fitted is None:
            raise InputError("This KDBIRL has not been fitted: call fit(bank) first.")
        return self.fitted

    def _ckde(self, features: FeatureMap, training: TrainingRows) -> CKDE:
        kernel = on_columns(as_kernel(self.kernel, self.distance), features.names, features.groups)
        reward_kernel = as_kernel(self.reward_kernel, self.reward_distance)
        if isinstance(reward_kernel, ProductKernel):
            raise InputError("reward_kernel is one kernel over the whole reward, not a product.")
        return training.ckde(
            features,
            kernel=kernel,
            reward_kernel=reward_kernel,
            conditional=self.conditional,
            task_weights=self.task_weights,
            state_columns=_state_columns(features, self.conditional),
        )

    def _choices(self, ckde: CKDE, prior: Prior, training: TrainingRows, features: FeatureMap, seed: int) -> Choices:
        power = None if self.power is None else float(self.power)
        held, bank = ckde.in_memory, training.bank
        notes = (*training.notes, *odd_columns(training.demonstrations))
        chosen = partial(Choices, held, prior, bank.reward_names, training.plays(features, seed))
        if not asks_for_loto(self.bandwidth):
            fixed = fixed_bandwidths(self.bandwidth, held, seed)
            return chosen(replace(fixed, notes=(*fixed.notes, *notes)), power)
        start = by_rule(FALLBACK, held, seed)
        start = replace(start, notes=(*start.notes, *outside_the_prior(prior, bank), *notes))
        instead = fallback(self.bandwidth, held, prior, start)
        if instead is not None:
            return chosen(instead, power)
        settings = self.bandwidth if isinstance(self.bandwidth, LotoSettings) else LotoSettings()
        return chosen(start, power, True, settings, training.cluster)

    def _expert_features(self, expert: Any) -> Float[np.ndarray, "n d"]:
        if not isinstance(expert, Demonstrations):
            raise InputError(
                f"The expert must be Demonstrations, not {type(expert).__name__}: see kb.read_demonstrations."
            )
        return self._ready().features(expert)

    def _likelihood(
        self, rows: Float[np.ndarray, "n d"], choice: Choice, progress: Progress, matrix_form: bool | None = None
    ) -> CKDELikelihood:
        fitted, widths = self._ready(), choice.bandwidths
        return fitted.ckde.likelihood(rows, widths.h, widths.h_reward, fitted.prior.box, matrix_form, progress)

    @float64
    def _sampled(self, rows: np.ndarray, choice: Choice, seed: int, progress: Progress) -> tuple[Draws, CKDELikelihood]:
        """Draws and the likelihood they were drawn with.

        The fast form of the likelihood is safe inside the prior's box; a prior without bounds could let draws leave it.
        """
        fitted, sampler = self._ready(), as_sampler(self.sampler)
        likelihood = self._likelihood(rows, choice, progress)
        draws = self._drawn(sampler, likelihood, choice.power, seed, progress)
        low, high = fitted.prior.box
        if likelihood.numerator.matrix_form and ((draws.draws < low) | (draws.draws > high)).any():
            likelihood = self._likelihood(rows, choice, progress, matrix_form=False)
            draws = self._drawn(sampler, likelihood, choice.power, seed, progress)
        progress.close()
        return draws, likelihood

    def _drawn(
        self, sampler: Sampler, likelihood: CKDELikelihood, power: float, seed: int, progress: Progress
    ) -> Draws:
        fitted = self._ready()
        target = Target.build(fitted.prior, likelihood, power)
        problem = Problem(
            target, fitted.prior, fitted.ckde.informed_directions(), fitted.ckde.reward_kernel.differentiable
        )
        return sampler.sample(problem, seed, progress)

    @float64
    def _result(
        self,
        expert: ExpertRows,
        choice: Choice,
        draws: Draws,
        likelihood: CKDELikelihood,
        seed: int,
        fitted: Fitted,
    ) -> Posterior:
        chains, per_chain, q = draws.draws.shape
        flat = draws.draws.reshape(-1, q)
        counts = distinct_rows(expert.rows)[2]
        pointwise = pointwise_of(likelihood, flat)[:, : len(counts)]
        log_prior = log_priors(Target.build(fitted.prior, likelihood, choice.power), flat)
        lp = (log_prior + choice.power * (pointwise @ counts)).reshape(chains, per_chain)
        prior_draws = drawn_prior(fitted.prior, seed)
        result = self._recorded(expert, choice, draws, prior_draws, seed, {"versions": package_versions()})
        stats = {**draws.stats, "lp": lp}
        return replace(result, sample_stats=stats, log_likelihood=pointwise.reshape(chains, per_chain, -1))

    def _recorded(
        self,
        expert: ExpertRows,
        choice: Choice,
        draws: Draws,
        prior_draws: Float[np.ndarray, "p q"],
        seed: int,
        noted: Mapping[str, Any],
    ) -> Posterior:
        """The draws as a posterior with everything on record but the pointwise likelihoods."""
        fitted, widths = self._ready(), choice.bandwidths
        return Posterior(
            draws=draws.draws,
            names=fitted.reward_names,
            method="KDBIRL",
            sampler=draws.sampler,
            seed=seed,
            sample_stats=draws.stats,
            prior_draws=prior_draws,
            expert_index=distinct_rows(expert.rows)[1],
            expert_features=expert.rows,
            feature_names=tuple(fitted.features.names),
            expert_episodes=expert.episodes,
            task_rewards=fitted.ckde.task_rewards,
            task_names=fitted.task_names,
            task_rows=fitted.ckde.rows_per_task.astype(np.int64),
            h=float(widths.h[0]) if len(widths.h) == 1 else tuple(widths.h.tolist()),
            h_reward=widths.h_reward,
            power=choice.power,
            bandwidth_rule=widths.rule,
            settings={**self._settings(draws, expert, choice), **noted},
            reward_features=fitted.reward_features,
        )

    def _settings(self, draws: Draws, expert: ExpertRows, choice: Choice) -> dict[str, Any]:
        """Everything else that a reader of the result may ask for."""
        fitted, sampler = self._ready(), as_sampler(self.sampler)
        chosen: dict[str, Any] = asdict(sampler)  # type: ignore[call-overload]
        constant = fitted.ckde.kernel.log_constant([float(width) for width in choice.bandwidths.h])
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
            "notes": [*choice.bandwidths.notes, *draws.notes],
            "bank": fitted.bank_fingerprint,
            "expert": expert.fingerprint,
            **({"pareto_k": draws.facts["pareto_k"]} if "pareto_k" in draws.facts else {}),
        }


def check_bank(bank: Any) -> None:
    """A bank is what `fit` takes, in memory or streamed."""
    if not isinstance(bank, TaskBank | StreamedBank):
        raise InputError(
            f"fit needs a TaskBank, not {type(bank).__name__}: see kb.read_task_bank and kb.TaskBank.from_arrays."
        )


def outside_the_prior(prior: Prior, bank: Bank) -> tuple[str, ...]:
    """A note where the prior calls some training rewards impossible."""
    count = int((~prior.contains(bank.rewards)).sum())
    some = f"{count} of {bank.n_tasks} training rewards lie outside the prior's support"
    return (f"{some}: if they are possible, widen the prior",) if count else ()


def check_support(prior: Prior, bank: Bank) -> None:
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


def load_model(path: str | Path, functions: Mapping[str, Callable[..., Any]] | None = None) -> KDBIRL:
    """The fitted model that `KDBIRL.save` wrote; it gives the same numbers. functions: your Python code, by name."""
    return KDBIRL(**read_model(path, functions))
