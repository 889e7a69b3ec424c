"""A neural posterior estimate: a network that reads demonstrations and gives a density of the reward (amortised
inference; Papamakarios and Murray 2016, with the set encoder of Zaheer et al. 2017).

    p(R | expert)  ~  q(R | {(s_i, a_i)}),        q trained to make R_k likely given plays of training task k

It sees exactly what KD-BIRL sees. Its prior is the distribution of the bank's own rewards, whatever `prior` says, of
which only the support is used. It needs many tasks: every reward is one example, however many rows show it, and with
few the network would learn them by heart. So it is judged on tasks held out from training, and stops where these get
less likely; with a handful of tasks that is at once, and the posterior is the spread of the bank's rewards.
"""

from dataclasses import asdict, dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int
from scipy.special import expit, log_expit, logit

from kdbirl._jax import single_precision
from kdbirl.data.demonstrations import Demonstrations, TaskBank
from kdbirl.errors import InputError
from kdbirl.features import FeatureMap, as_feature_map
from kdbirl.methods.arguments import (
    as_bank,
    as_expert,
    default_reward_features,
    is_number,
    layer_sizes,
    require_positive,
    reward_rows,
    row_count,
    whole_seed,
)
from kdbirl.methods.fitted import drawn_prior
from kdbirl.methods.kdbirl import check_support
from kdbirl.methods.neural_posterior_network import (
    CELLS,
    InputScale,
    Mixture,
    NeuralPosteriorNetwork,
    PlayGround,
    Sets,
    compiled_surprise,
    drawn,
    log_densities,
    mixtures,
    surprise,
)
from kdbirl.posterior.priors import Prior
from kdbirl.posterior.result import Posterior
from kdbirl.progress import Course, Progress, Silent
from kdbirl.random_streams import stream
from kdbirl.training import AVERAGED, STEEPEST, Learner, Schedule, train
from kdbirl.worlds.rollouts import whole_number

# Rewards on the whole real line, so that a density of a network stays inside the prior's support.
#
#     low < R < high    u = log( (R - low) / (high - R) )         one bound    u = log(R - low), or -log(high - R)
#     no bounds         u = R                                     z = (u - centre) / scale
#
# centre and scale are those of the training rewards. A training reward *on* a bound would be at infinity: to train
# with, it is moved `inside`, by a hundredth of the box or of the rewards' spread. Nothing else is moved: densities stay
# exact.

MARGIN = 0.01


@dataclass(frozen=True, eq=False)
class RewardTransform:
    """Between R and z. `low`, `high`: bounds, infinite where there are none; `gap`: how near one R is trained."""

    low: Float[np.ndarray, " q"]
    high: Float[np.ndarray, " q"]
    gap: Float[np.ndarray, " q"]
    centre: Float[np.ndarray, " q"]
    scale: Float[np.ndarray, " q"]

    @classmethod
    def learn(cls, prior: Prior, rewards: Float[np.ndarray, "K q"]) -> "RewardTransform":
        """Bounds from the prior; centre and scale from the training rewards (1 where these are all equal)."""
        low, high = prior.support
        width = np.where(np.isfinite(high - low), high - low, _positive(rewards.std(axis=0)))
        plain = cls(low, high, MARGIN * width, np.zeros(len(low)), np.ones(len(low)))
        u = plain.to_line(plain.inside(rewards))
        return cls(low, high, plain.gap, u.mean(axis=0), _positive(u.std(axis=0)))

    def inside(self, rewards: Float[np.ndarray, "r q"]) -> Float[np.ndarray, "r q"]:
        """Rewards to train with: those nearer to a bound than `gap` moved there."""
        return np.clip(rewards, self.low + self.gap, self.high - self.gap)

    def to_line(self, rewards: Float[np.ndarray, "r q"]) -> Float[np.ndarray, "r q"]:
        """z of each reward; infinite on a bound, not a number outside."""
        below, above = np.isfinite(self.low), np.isfinite(self.high)
        with np.errstate(all="ignore"):  # each formula is computed everywhere, and chosen where it holds
            both = logit((rewards - self.low) / (self.high - self.low))
            one = np.where(below, np.log(rewards - self.low), -np.log(self.high - rewards))
        u = np.where(below & above, both, np.where(below | above, one, rewards))
        return np.asarray((u - self.centre) / self.scale)

    def to_reward(self, z: Float[np.ndarray, "r q"]) -> Float[np.ndarray, "r q"]:
        """R of each z."""
        u = self.centre + self.scale * z
        below, above = np.isfinite(self.low), np.isfinite(self.high)
        with np.errstate(all="ignore"):
            both = self.low + (self.high - self.low) * expit(u)
            one = np.where(below, self.low + np.exp(u), self.high - np.exp(-u))
        return np.asarray(np.where(below & above, both, np.where(below | above, one, u)))

    def log_slope(self, z: Float[np.ndarray, "r q"]) -> Float[np.ndarray, " r"]:
        """sum_j log dR_j / dz_j: what is taken from a log density of z to have that of R."""
        u = self.centre + self.scale * z
        below, above = np.isfinite(self.low), np.isfinite(self.high)
        with np.errstate(all="ignore"):
            both = np.log(self.high - self.low) + log_expit(u) + log_expit(-u)
        slope = np.where(below & above, both, np.where(below, u, np.where(above, -u, 0.0)))
        return np.asarray((slope + np.log(self.scale)).sum(axis=1))


def _positive(spread: Float[np.ndarray, " q"]) -> Float[np.ndarray, " q"]:
    return np.where(spread > 0, spread, 1.0)


BLOCK = 100  # steps per compiled call, at most
JUDGED = 1024  # plays of held-out tasks, at most


@dataclass(frozen=True, eq=False)
class Learnt:
    """What `fit` learns: the network, how rows and rewards are scaled for it, the bank's names; n: rows of a play."""

    network: NeuralPosteriorNetwork
    features: FeatureMap
    inputs: InputScale
    transform: RewardTransform
    prior: Prior
    course: Course
    bank: TaskBank
    longest: int
    n: int | None
    notes: tuple[str, ...]
    reward_features: FeatureMap | None


@dataclass
class NeuralPosterior:
    """A neural posterior estimate. `fit(bank)` trains once; `posterior(expert, seed=0)` is then a matter of moments.

    prior: its support bounds the reward; its shape is not used (see above). Required.
    features: phi(s, a) of the rows, default standardised states and one-hot actions.
    components: normal distributions in the mixture. hidden: units of each layer, of the rows' and of the set's network.
    steps, batch, learning_rate: of Adam. held_out: share of the tasks (one at least) that training is judged by; it
        stops when their loss has not fallen for `patience` blocks of 100 steps.
    draws: how many rewards are drawn. reward_features: phi of R(s, a) = phi(s, a) . w, for `Posterior.reward`.
    """

    prior: Any
    features: Any = None
    components: Any = 8
    hidden: Any = (64, 64)
    steps: Any = 10_000
    batch: Any = 64
    learning_rate: Any = 1e-3
    held_out: Any = 0.15
    patience: Any = 10
    draws: Any = 4000
    reward_features: Any = None
    learnt: Learnt | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.prior, Prior):
            raise InputError(f"prior={self.prior!r} is not a prior; give one such as kb.Uniform(0, 1).")
        for name in ("components", "steps", "batch", "patience", "draws"):
            whole_number(getattr(self, name), name, 1)
        require_positive(self.learning_rate, "learning_rate")
        if not (is_number(self.held_out) and 0 < self.held_out < 1):
            raise InputError(f"held_out={self.held_out!r} should be a share of the tasks, between 0 and 1.")
        self.hidden = layer_sizes(self.hidden)

    def fit(self, bank: Any, n: Any = None, seed: Any = 0, progress: Progress | None = None) -> "NeuralPosterior":
        """Train on plays of the bank's tasks, for experts of n rows; None: of any number, up to that of the tasks."""
        seed, n = whole_seed(seed), None if n is None else row_count(n)
        prior, used, notes = self._usable(bank)
        features = as_feature_map(self.features).fit(bank)
        ground = PlayGround.of(used, features, n)
        transform = RewardTransform.learn(prior, used.rewards)
        inputs = InputScale.learn(ground.rows, features.discrete_columns)
        targets = transform.to_line(transform.inside(used.rewards))
        network, course = self._train(ground, ground.table(inputs), targets, seed, progress)
        phi = default_reward_features(self.reward_features, bank.demonstrations, bank.reward_names)
        self.learnt = Learnt(network, features, inputs, transform, prior, course, bank, ground.longest, n, notes, phi)
        return self

    def posterior(self, expert: Any, seed: Any = 0, progress: Progress | None = None) -> Posterior:
        """The posterior over the reward of the task that `expert` demonstrates."""
        learnt, seed = self._ready(), whole_seed(seed)
        rows = self._rows(expert)
        mixture = self._mixture(rows)
        z = drawn(mixture, int(self.draws), np.random.default_rng(stream(seed, "draws of a network")))
        return Posterior(
            draws=learnt.transform.to_reward(z)[None],
            names=learnt.bank.reward_names,
            method="NeuralPosterior",
            sampler="Amortised (neural posterior)",
            seed=seed,
            sample_stats={"lp": self._log_density(mixture, z)[None]},
            prior_draws=drawn_prior(learnt.prior, seed),
            expert_features=rows,
            feature_names=tuple(learnt.features.names),
            expert_episodes=expert.episodes,
            task_rewards=learnt.bank.rewards,
            task_names=learnt.bank.names,
            task_rows=learnt.bank.rows_per_task,
            settings=self._settings(expert),
            reward_features=learnt.reward_features,
        )

    def log_density(self, expert: Any, rewards: Any) -> Any:
        """log q(R | expert), normalised, of each reward (r, q); -inf outside the prior's support and on its bounds."""
        learnt = self._ready()
        table = reward_rows(rewards, learnt.bank.reward_names)
        z = learnt.transform.to_line(table)
        known = learnt.prior.contains(table) & np.isfinite(z).all(axis=1)
        values = np.full(len(table), -np.inf)
        values[known] = self._log_density(self._mixture(self._rows(expert)), z[known])
        return values[0] if np.ndim(rewards) == 1 else values

    def _usable(self, bank: Any) -> tuple[Prior, TaskBank, tuple[str, ...]]:
        """The prior for the bank's parameters, and the tasks that lie in its support."""
        bank = as_bank(bank)
        prior = self.prior.for_parameters(bank.n_parameters, bank.reward_names)
        check_support(prior, bank)
        inside = np.flatnonzero(prior.contains(bank.rewards))
        if len(inside) < 2:
            raise InputError(
                f"The bank has one task{' in the support of the prior' if bank.n_tasks > 1 else ''}. One task cannot "
                "say how behaviour changes with the reward: at least two are needed, and here better a hundred."
            )
        if len(inside) == bank.n_tasks:
            return prior, bank, ()
        left = (
            f"{bank.n_tasks - len(inside)} of {bank.n_tasks} tasks lie outside the prior's support and were left out."
        )
        return prior, bank.select(inside.tolist()), (left,)

    @single_precision
    def _train(
        self, ground: PlayGround, rows: np.ndarray, targets: Float[np.ndarray, "K q"], seed: int, progress: Any
    ) -> tuple[NeuralPosteriorNetwork, Course]:
        rng, tasks = np.random.default_rng(stream(seed, "training plays")), len(targets)
        order, batch = rng.permutation(tasks), int(self.batch)
        aside = min(max(1, round(float(self.held_out) * tasks)), tasks - 1)
        held, learnt = order[:aside], order[aside:]
        block = int(np.clip(CELLS // (batch * ground.width), 1, BLOCK))

        def examples(chosen: Int[np.ndarray, " p"]) -> tuple[Sets, np.ndarray]:
            return ground.plays(chosen, rng), targets[chosen].astype(np.float32)

        def batches(rng: np.random.Generator) -> Any:
            stacked = examples(rng.choice(learnt, block * batch))
            return jax.tree.map(lambda part: part.reshape(block, batch, *part.shape[1:]), stacked)

        judged = examples(held[np.arange(int(np.clip(CELLS // (8 * ground.width), 64, JUDGED))) % aside])
        network = NeuralPosteriorNetwork(rows.shape[1], self.hidden, targets.shape[1], int(self.components), rng)
        table, shown = jnp.asarray(rows), progress or Silent()
        patience = -(-int(self.patience) * BLOCK // block)
        schedule = Schedule(int(self.steps), float(self.learning_rate), block, patience, STEEPEST, AVERAGED)
        learner = Learner(
            *(network, table, batches, rng, lambda network: float(compiled_surprise(network, table, judged))),
            held_out=len(judged[1]),
            of=(ground, targets, held, batch),
        )
        (result,) = train(surprise, [learner], schedule, "Neural posterior", shown)
        shown.close()
        return result

    def _rows(self, expert: Any) -> Float[np.ndarray, "n d"]:
        return self._ready().features(as_expert(expert))

    @single_precision
    def _mixture(self, rows: Float[np.ndarray, "n d"]) -> Mixture:
        """q(z | rows); rows are padded to a power of two, so that experts of many lengths share few programs."""
        learnt = self._ready()
        more = 2 ** int(np.ceil(np.log2(len(rows)))) - len(rows)
        table = np.concatenate([learnt.inputs(rows), np.zeros((more, rows.shape[1]), np.float32)])
        weight = np.where(np.arange(len(table)) < len(rows), 1 / len(rows), 0.0).astype(np.float32)[None]
        count = np.array([min(len(rows), learnt.longest)], np.float32)
        return mixtures(learnt.network, jnp.asarray(table), Sets(None, jnp.asarray(weight), jnp.asarray(count)))

    def _log_density(self, mixture: Mixture, z: Float[np.ndarray, "r q"]) -> Float[np.ndarray, " r"]:
        return log_densities(mixture, z) - self._ready().transform.log_slope(z)

    def _ready(self) -> Learnt:
        if self.learnt is None:
            raise InputError("This NeuralPosterior has not been fitted: call fit(bank) first.")
        return self.learnt

    def _settings(self, expert: Demonstrations) -> dict[str, Any]:
        """Everything else that a reader of the result may ask for."""
        from kdbirl.installation import package_versions

        learnt = self._ready()
        names = ("components", "hidden", "steps", "batch", "learning_rate", "held_out", "patience")
        return {
            "prior": learnt.prior.describe(),
            "features": type(learnt.features).__name__,
            **{name: getattr(self, name) for name in names},
            "trained_for_rows": learnt.n,
            "training": asdict(learnt.course),
            "notes": [learnt.course.sentence, *learnt.notes, *self._notes(expert.n_rows)],
            "bank": learnt.bank.fingerprint(),
            "expert": expert.fingerprint(),
            "versions": package_versions(),
        }

    def _notes(self, rows: int) -> list[str]:
        learnt = self._ready()
        notes = ["The prior is the distribution of the bank's rewards; of the one given only the support is used."]
        if learnt.course.kept_step == 0:
            notes.append(
                "Nothing was learnt that helps with tasks held out: the posterior is the spread of the bank's rewards. "
                "More training tasks are needed."
            )
        if rows > learnt.longest:
            notes.append(f"Plays had up to {learnt.longest} rows, the expert has {rows}: it counts as one of as many.")
        elif learnt.n is not None and rows != learnt.n:
            notes.append(
                f"It was trained for experts of {learnt.n} rows, and this one has {rows}: fit(bank, n={rows})."
            )
        return notes
