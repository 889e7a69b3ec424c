"""Methods x test tasks x n x seeds: every method answers the same tasks from the same rows (`kdbirl compare`).

For each seed: `training_tasks` rewards from the prior with optimal demonstrators (the bank), and `tasks` further
rewards from the prior, the test tasks, each shown by the first n rows of an optimal expert. A method is made once for
each seed from what it may see (`evaluation.contenders`), and answers every test task for every n; only the judge knows
the reward.
One cell of the store is one answer, so more seeds, tasks, rows or methods are added to what is there.
"""

import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, partial
from hashlib import sha256
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.special import ndtr

from kdbirl._jax import float64
from kdbirl.data.cluster import Cluster
from kdbirl.data.demonstrations import Demonstrations, TaskBank
from kdbirl.errors import InputError, KDBIRLError, KDBIRLWarning
from kdbirl.evaluation.cells import CellStore
from kdbirl.evaluation.contenders import CONTENDERS, Budget, Setting, chosen_contenders, described, is_by_state
from kdbirl.evaluation.draws import draws_of
from kdbirl.evaluation.evd import evd
from kdbirl.posterior.priors import Prior
from kdbirl.posterior.product_prior import parse_priors
from kdbirl.posterior.result import Posterior
from kdbirl.progress import Progress, Silent
from kdbirl.random_streams import stream
from kdbirl.trust.loto import bounded
from kdbirl.worlds.named import tabular_world
from kdbirl.worlds.planning import plan
from kdbirl.worlds.policy import Policy
from kdbirl.worlds.policy_value import value
from kdbirl.worlds.rollouts import make_bank, rollout, whole_number
from kdbirl.worlds.tabular import TabularMDP

# How good is one method's answer to one test task, whose reward is known to the judge alone?
#
#     EVD            mean over posterior draws of V(pi*, R*) - V(pi_R, R*)   (`evd`); of its policy for cloning
#     regret         EVD / (V(pi*, R*) - V(random, R*)): 0 is optimal, 1 is chance
#     log density    log p(R* | expert) - log p(R*), in nats above the prior, from the draws
#     coverage       share of the parameters whose central 90 % interval holds R*
#
# The last two need draws of the same parameters: they are left empty for point estimates and policies. The density is
# one kernel estimate for all methods, with Scott's widths; kernels end at the prior's support where draws respect it.

LEVEL = 0.9
FEWEST_DRAWS = 100  # below which there is no density or interval to speak of
NARROWEST = 1e-12  # a kernel's width relative to the draws' size


@dataclass(frozen=True)
class Judged:
    """The measures of one answer; None where a measure does not apply. bounded: the log density mixed with a small
    share of the prior (as in `loto`), so that one miss cannot decide a mean."""

    evd: float
    regret: float
    regret_of_mean: float
    log_density: float | None = None
    bounded: float | None = None
    coverage: float | None = None


def judge_policy(policy: Policy, mdp: TabularMDP, truth: Float[np.ndarray, " q"]) -> Judged:
    """A policy has no reward: only what it loses."""
    best, random = value(mdp, plan(mdp, truth), truth), value(mdp, _random(mdp), truth)
    lost = best - value(mdp, policy, truth)
    regret = lost / (best - random) if best > random else float("nan")
    return Judged(lost, regret, regret)


def judge_posterior(
    post: Posterior, mdp: TabularMDP, truth: Float[np.ndarray, " q"], prior: Prior, planned: int
) -> Judged:
    """All measures; `planned` draws, evenly spaced, are planned for."""
    draws = draws_of(post, mdp)[0].reshape(-1, mdp.n_parameters)
    few = draws[np.unique(np.linspace(0, len(draws) - 1, min(planned, len(draws))).round().astype(int))]
    lost = evd(few, mdp, truth)
    of_mean = float(evd(draws.mean(axis=0, keepdims=True), mdp, truth).regret)
    if len(draws) < FEWEST_DRAWS:
        return Judged(lost.mean, lost.regret, of_mean)
    score = log_density_at(draws, truth, prior) - log_prior(prior, truth)
    return Judged(
        lost.mean, lost.regret, of_mean, score, float(bounded(np.array([score]))[0]), covered(draws, truth, LEVEL)
    )


def covered(draws: Float[np.ndarray, "k q"], truth: Float[np.ndarray, " q"], level: float) -> float:
    """Share of the parameters whose central interval holds the truth."""
    low, high = np.quantile(draws, [(1 - level) / 2, (1 + level) / 2], axis=0)
    return float(np.mean((low <= truth) & (truth <= high)))


def log_density_at(draws: Float[np.ndarray, "k q"], truth: Float[np.ndarray, " q"], prior: Prior) -> float:
    """A product-normal kernel estimate at one point, each kernel divided by its mass inside the prior's support.

    Draws outside the support (AVRIL knows no bounds) are plain normal kernels.
    """
    k, q = draws.shape
    size = np.abs(draws).max(axis=0) + np.abs(truth)
    width = np.maximum(draws.std(axis=0, ddof=1) * k ** (-1 / (q + 4)), NARROWEST * np.maximum(size, 1e-300))
    low, high = prior.support
    inside = prior.contains(draws)[:, None]
    mass = np.where(inside, ndtr((high - draws) / width) - ndtr((low - draws) / width), 1.0)
    logs = -0.5 * ((truth - draws) / width) ** 2 - np.log(width * np.sqrt(2 * np.pi)) - np.log(mass)
    return float(np.logaddexp.reduce(logs.sum(axis=1)) - np.log(k))


@float64
def log_prior(prior: Prior, truth: Float[np.ndarray, " q"]) -> float:
    """The prior's log density at one reward."""
    import jax
    import jax.numpy as jnp

    return float(prior.log_density(jax.tree.map(jnp.asarray, prior.parameters), jnp.asarray(truth)))


def _random(mdp: TabularMDP) -> Policy:
    return Policy.uniform(mdp.n_states, mdp.n_actions)


NAME = "comparison"
BY_STATE, BY_FEATURES = "uniform:0,1", "uniform:-1,1"  # priors, unless one is given


@dataclass(frozen=True)
class Comparison:
    """What is compared. The first seeds, tasks and methods of a larger comparison are those of a smaller one.

    env, discount: the world by name. tasks: test tasks of each seed. rows: n, the expert's rows. prior: of every
    reward, as on the command line; None: uniform on [0, 1] for a reward per state, on [-1, 1] for weights.
    training_tasks, episodes: of the bank; horizon: steps after which every episode is cut.
    """

    env: str
    methods: tuple[str, ...] = tuple(CONTENDERS)
    tasks: int = 1
    rows: tuple[int, ...] = (10, 100, 1000)
    seeds: int = 10
    training_tasks: int = 40
    episodes: int = 20
    horizon: int = 20
    discount: float | None = None
    prior: str | None = None
    budget: Budget = field(default_factory=Budget)

    def __post_init__(self) -> None:
        object.__setattr__(self, "methods", chosen_contenders(self.methods))
        for name, least in {"tasks": 1, "seeds": 1, "training_tasks": 2, "episodes": 1, "horizon": 1}.items():
            whole_number(getattr(self, name), name.replace("_", "-"), least)
        if not self.rows:
            raise InputError("rows: give at least one number of rows of the expert, such as 10,100.")
        for n in self.rows:
            whole_number(n, "rows", 1)
        object.__setattr__(self, "rows", tuple(dict.fromkeys(self.rows)))

    @cached_property
    def world(self) -> TabularMDP:
        """The world; the user's mistakes in its name are found here."""
        return tabular_world(self.env, self.discount)

    @cached_property
    def world_fingerprint(self) -> str:
        """A hash of the world's numbers: a name, such as a Gymnasium id of the user's, does not fix them."""
        world, digest = self.world, sha256()
        phi = np.empty(0) if world.features is None else world.features
        for part in (world.transitions, world.start, world.terminal, phi, np.array(world.discount)):
            digest.update(f"{part.dtype}{part.shape}".encode() + np.ascontiguousarray(part).tobytes())
        return digest.hexdigest()[:16]

    @cached_property
    def reward_prior(self) -> Prior:
        """The prior of every reward, of training and test tasks alike, which methods with a prior are given."""
        text = self.prior or (BY_STATE if is_by_state(self.world) else BY_FEATURES)
        return parse_priors([text]).for_parameters(self.world.n_parameters, self.world.feature_names)

    def run(self, store: CellStore, progress: Progress | None = None, client: Any = None) -> list[dict[str, Any]]:
        """One row for each seed, method, n and test task; answers already in the store are not computed again.

        client: a `distributed.Client`: its workers answer whole seeds.
        """
        progress = progress or Silent()
        if client is not None:
            self._answer_on(Cluster.of(client), store, progress)
        rows: list[dict[str, Any]] = []
        total = self.seeds * len(self.methods) * len(self.rows) * self.tasks
        for seed in range(self.seeds):
            trial = _Trial(self, seed)
            for method in self.methods:
                for n in self.rows:
                    for task in range(self.tasks):
                        progress.update("comparison", len(rows), total, f"seed {seed}, {method}, n = {n}")
                        key = self._key(method, n, seed, task)
                        rows.append({**key["cell"], **store.get(key, partial(trial.answer, method, n, task))})
        progress.update("comparison", total, total)
        return rows

    def _answer_on(self, cluster: Cluster, store: CellStore, progress: Progress) -> None:
        """Put the answers that are missing into the store, a seed on each worker."""
        asked = [(method, n, task) for method in self.methods for n in self.rows for task in range(self.tasks)]
        missing = {
            seed: [cell for cell in asked if not store.has(self._key(cell[0], cell[1], seed, cell[2]))]
            for seed in range(self.seeds)
        }
        work = [(seed, cells) for seed, cells in missing.items() if cells]
        for (seed, cells), answers in zip(
            work, cluster.mapped(_answers, work, (self,), progress, "comparison"), strict=True
        ):
            for (method, n, task), answer in zip(cells, answers, strict=True):
                store.get(self._key(method, n, seed, task), partial(dict, answer))

    def _key(self, method: str, n: int, seed: int, task: int) -> dict[str, Any]:
        """Everything that decides an answer."""
        made = ("training_tasks", "episodes", "horizon", "discount")
        return {
            "study": NAME,
            "cell": {"world": self.env, "method": method, "n": n, "seed": seed, "task": task},
            "world": self.world_fingerprint,
            "prior": self.reward_prior.describe(),
            "settings": CONTENDERS[method].settings,
            "budget": asdict(self.budget),
            **{name: getattr(self, name) for name in made},
        }

    def configuration(self) -> dict[str, Any]:
        """All that is written down about a run, the budget among it."""
        chosen = {**asdict(self), "prior": self.reward_prior.describe(), "world": self.world.describe()}
        return {**chosen, "methods": described(self.methods)}


def _answers(work: tuple[int, list[tuple[str, int, int]]], study: Comparison) -> list[dict[str, Any]]:
    """A worker's share: some cells of one seed."""
    seed, cells = work
    trial = _Trial(study, seed)
    return [trial.answer(*cell) for cell in cells]


@dataclass(frozen=True, eq=False)
class _Trial:
    """One seed: training tasks, test tasks, and methods as they are needed."""

    study: Comparison
    seed: int
    made: dict[str, tuple[Any, float]] = field(default_factory=dict)

    @cached_property
    def bank(self) -> TaskBank:
        study = self.study
        rewards = study.reward_prior.sample(
            np.random.default_rng(stream(self.seed, "training rewards of a comparison")), study.training_tasks
        )
        seed = _seed_of(self.seed, "training demonstrations of a comparison")
        return make_bank(study.world, rewards, episodes=study.episodes, horizon=study.horizon, seed=seed)

    def truth(self, task: int) -> Float[np.ndarray, " q"]:
        """The reward of a test task: the judge's alone."""
        return self.study.reward_prior.sample(
            np.random.default_rng(stream(self.seed, "test rewards of a comparison", task)), 1
        )[0]

    def expert(self, n: int, task: int) -> Demonstrations:
        """n rows of an optimal expert: whole episodes, the last one cut if it must be."""
        mdp = self.study.world
        seed = _seed_of(self.seed, "experts of a comparison", task)
        shown = rollout(mdp, plan(mdp, self.truth(task)), episodes=n, horizon=self.study.horizon, seed=seed)
        return first_rows(shown, n)

    def answer(self, method: str, n: int, task: int) -> dict[str, Any]:
        """A method's answer to a test task, judged; a refusal is a row with its sentence, not an end of the run."""
        expert, truth = self.expert(n, task), self.truth(task)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", KDBIRLWarning)  # they speak of single fits; the table judges them
                answered, seconds, fitting = self._answered(
                    method, expert, _seed_of(self.seed, "answers of a comparison", task, n)
                )
        except KDBIRLError as problem:
            return {"problem": " ".join(str(problem).split()), "seconds": 0.0, "fit_seconds": 0.0}
        if CONTENDERS[method].kind == "policy":
            judged = judge_policy(answered, self.study.world, truth)
        else:
            study = self.study
            judged = judge_posterior(answered, study.world, truth, study.reward_prior, study.budget.planned)
        return {**asdict(judged), "seconds": round(seconds, 4), "fit_seconds": round(fitting, 4), "problem": None}

    def _answered(self, method: str, expert: Demonstrations, seed: int) -> tuple[Any, float, float]:
        if method not in self.made:
            study = self.study
            setting = Setting(study.world, study.reward_prior, self.bank, study.budget, self.seed)
            self.made[method] = _timed(partial(CONTENDERS[method].make, setting))
        model, fitting = self.made[method]
        asked = model.policy if CONTENDERS[method].kind == "policy" else model.posterior
        answered, seconds = _timed(partial(asked, expert, seed=seed))
        return answered, seconds, fitting


def first_rows(shown: Demonstrations, n: int) -> Demonstrations:
    """The first n rows, episode by episode; an episode that is cut by this is marked so."""
    order = np.argsort(shown.episodes, kind="stable")[:n]
    rows = shown.take(order)
    assert rows.terminated is not None
    assert rows.truncated is not None
    truncated = rows.truncated.copy()
    truncated[-1] = not rows.terminated[-1]
    return replace(rows, truncated=truncated)


def _timed(call: Callable[[], Any]) -> tuple[Any, float]:
    start = time.perf_counter()
    result = call()
    return result, time.perf_counter() - start


def _seed_of(seed: int, use: str, *place: int) -> int:
    """A seed for what takes one."""
    return int(stream(seed, use, *place).generate_state(1)[0])
