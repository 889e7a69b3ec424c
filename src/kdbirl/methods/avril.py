"""AVRIL: approximate variational reward imitation learning (Chan and van der Schaar 2021, "Scalable Bayesian IRL").

A network gives a normal posterior of the reward in every state, another the action values, and both are trained at
once on the expert's rows alone (`avril_elbo` has the objective, `avril_draws` how rewards are drawn from it).
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from kdbirl._jax import single_precision
from kdbirl.data.demonstrations import Demonstrations
from kdbirl.errors import InputError
from kdbirl.features import FeatureMap, OneHotStates, as_feature_map
from kdbirl.methods.arguments import (
    as_bank,
    as_expert,
    default_reward_features,
    is_number,
    layer_sizes,
    require_positive,
)
from kdbirl.methods.avril_draws import (
    RewardPrior,
    Sites,
    as_reward_prior,
    every_state,
    informative_prior,
    normal_draws,
    sites,
)
from kdbirl.methods.avril_elbo import (
    RewardAndValueNetwork,
    StateView,
    Weights,
    chosen,
    coded_like,
    learnt_and_held_out,
    loss,
    objective,
    padded,
    standardised,
)
from kdbirl.posterior.result import Posterior
from kdbirl.progress import BLOCK, Course, Progress, Silent
from kdbirl.random_streams import stream
from kdbirl.training import Learner, Schedule, train
from kdbirl.worlds.acting import Actor
from kdbirl.worlds.policy import Policy
from kdbirl.worlds.rollouts import whole_number

# What AVRIL has learnt: q(R | s, a) of any row, and the policy of its Q network.


@dataclass(frozen=True, eq=False)
class AVRILAgent:
    """The trained networks. A policy wherever one is asked for: `kb.rollout(env, agent)`, `kb.value(mdp, agent, R)`.

    course: how the training went. state_only: whether the reward is one of the state alone. expert: the rows that it
    was trained on, whose labels and columns say how others are read.
    """

    network: RewardAndValueNetwork
    view: StateView
    expert: Demonstrations
    n_actions: int
    state_only: bool
    course: Course

    def reward(self, rows: Demonstrations) -> tuple[Float[np.ndarray, " rows"], Float[np.ndarray, " rows"]]:
        """Mean and standard deviation of the reward of each row, whose labels or columns may be in another order."""
        if not self.state_only and not rows.discrete_actions:
            raise InputError("This AVRIL has a reward of state and action: rows need discrete actions.")
        if rows.discrete_states != (self.view.n_states is not None):
            raise InputError("The rows' states must be of the kind that AVRIL was trained on, discrete or numbers.")
        return self.coded_reward(
            rows.states_aligned_to(self.expert) if self.state_only else coded_like(self.expert, rows)
        )

    @single_precision
    def coded_reward(self, rows: Demonstrations) -> tuple[Float[np.ndarray, " rows"], Float[np.ndarray, " rows"]]:
        """The same for rows that are coded as the expert's are."""
        mean, log_sd = _rewards(self.network, self.view.see(self.view.checked(rows.states)))
        action = jnp.zeros(rows.n_rows, int) if self.state_only else jnp.asarray(np.asarray(rows.actions))
        if not self.state_only and rows.n_rows and int(action.max()) >= self.n_actions:
            raise InputError(f"There is no action {int(action.max())}; actions are 0 to {self.n_actions - 1}.")
        mean, log_sd = (np.asarray(chosen(part, action), dtype=np.float64) for part in (mean, log_sd))
        return mean, np.exp(log_sd)

    @single_precision
    def q_values(self, observations: Any) -> Float[np.ndarray, "n A"]:
        """Q(s, a) for states `(n, d)`, or the codes `(n,)` of discrete ones."""
        seen = self.view.see(self.view.checked(observations))
        return np.asarray(_values(self.network, seen), dtype=np.float64)

    def actions(self, observations: Any) -> Int[np.ndarray, " n"]:
        """The action of highest value in each."""
        return self.q_values(observations).argmax(axis=1)

    def predict(self, observation: Any) -> int:
        """The action for one observation `(d,)`, or one discrete state."""
        return int(self.actions(np.asarray(observation)[None])[0])

    def __call__(self, observations: Float[Array, "n d"]) -> Int[Array, " n"]:
        """The actions for a simulator's observations, in JAX: what compiled rollouts call."""
        return jnp.argmax(self.network.action_values(self.view.see(observations)), axis=1)

    def as_actor(self) -> Actor:
        """How it acts in a simulator, its numbers as parameters: agents of one size share one compiled program."""
        if self.view.n_states is not None:
            return Actor(lambda parameters, state, observation, step, key: self(observation), ())
        return Actor(_acts, (self.network, jnp.asarray(self.view.centre), jnp.asarray(self.view.spread)), alike=True)

    def table(self, n_states: int | None = None) -> Policy:
        """The policy as a table of `n_states` discrete states (default: those of the expert)."""
        if self.view.n_states is None:
            raise InputError("This AVRIL was trained on states of numbers; only discrete states make a table.")
        states = np.arange(self.view.n_states if n_states is None else n_states)
        return Policy(np.eye(self.n_actions)[self.actions(states)])

    def __repr__(self) -> str:
        return f"AVRILAgent({self.course.sentence})"


def _acts(
    parameters: tuple[RewardAndValueNetwork, Array, Array], state: Any, observation: Array, step: Any, key: Array
) -> Int[Array, " n"]:
    network, centre, spread = parameters
    return jnp.argmax(network.action_values(standardised(observation, centre, spread)), axis=1)


@jax.jit
def _values(network: RewardAndValueNetwork, states: Float[Array, "n d"]) -> Float[Array, "n A"]:
    return network.action_values(states)


@jax.jit
def _rewards(
    network: RewardAndValueNetwork, states: Float[Array, "n d"]
) -> tuple[Float[Array, "n c"], Float[Array, "n c"]]:
    return network.reward(states)


PRIOR_DRAWS = 4000
NOT_OPTIONS = ("prior", "reward_features", "draws", "bank", "trained")  # fields that change no training by themselves


@dataclass(frozen=True)
class Bank:
    """What AVRIL takes from a bank: how rows are coded and what the reward parameters are; never its behaviour."""

    rows: Demonstrations
    prior: RewardPrior | None
    reward_features: FeatureMap | None
    reward_names: tuple[str, ...]
    fingerprint: str


@dataclass(frozen=True)
class Trained:
    """The last training: the agent, of which expert and seed, and the expert in the coding that was used."""

    agent: AVRILAgent
    prior: RewardPrior
    expert: Demonstrations
    of: tuple[Any, ...]


class Case(NamedTuple):
    """One training: how many rows it has; what those that run side by side have in common; its learner, with rows
    filled up to a number; and what comes of its network."""

    rows: int
    alike: tuple[Any, ...]
    learner: Callable[[int], Learner]
    trained: Callable[[RewardAndValueNetwork, Course], Trained]


@dataclass
class AVRIL:
    """AVRIL with all its choices. `posterior(expert, seed=0)` trains and draws; `policy(expert, seed=0)` acts.

    discount: of the expert's task; 0.95, as in `kb.Gridworld`, unless given; 1 is the released program.
    state_only: the reward is one of the state; False: of state and action.
    prior: of every R(s, a): None is N(0, 1) (the released program's); `kb.Normal(mean, sd)`, or
        `kb.informative_prior(bank, features=phi)`; "informative" makes that one from the bank given to `fit`.
    beta: inverse temperature of the expert's actions, softmax(beta Q). td_weight: lambda, the weight of the TD term.
    hidden: units of each hidden layer, of both networks. (The released program ignores this and has two of 64.)
    steps, batch, learning_rate: of Adam. held_out: this share of the episodes is not learnt from, and training stops
        when the objective there has not risen for `patience` blocks of 250 steps; 0: all rows, all steps.
    ends: "terminated" knows that nothing follows the end of an episode and that a cut one goes on; "dropped" leaves the
        last row of every episode out, as the released program does.
    standardize: states of mean 0 and spread 1; False: as they are, as released. Discrete states are one-hot.
    reward_features: phi of R(s, a) = phi(s, a) . w, if the posterior is to be one of w; `fit(bank)` guesses it.
    draws: how many rewards are drawn.
    """

    discount: Any = 0.95
    state_only: bool = True
    prior: Any = None
    beta: Any = 1.0
    td_weight: Any = 1.0
    hidden: Any = (64, 64)
    steps: Any = 5000
    batch: Any = 64
    learning_rate: Any = 1e-3
    held_out: Any = 0.0
    patience: Any = 4
    ends: str = "terminated"
    standardize: bool = True
    reward_features: Any = None
    draws: Any = 4000
    bank: Bank | None = field(default=None, repr=False)
    trained: Trained | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        for name in ("steps", "batch", "patience", "draws"):
            whole_number(getattr(self, name), name, 1)
        for name in ("beta", "td_weight", "learning_rate"):
            require_positive(getattr(self, name), name)
        _require(is_number(self.discount) and 0 <= self.discount <= 1, "discount", self.discount, "from 0 to 1")
        _require(is_number(self.held_out) and 0 <= self.held_out < 1, "held_out", self.held_out, "from 0 to below 1")
        _require(self.ends in ("terminated", "dropped"), "ends", self.ends, '"terminated" or "dropped" (as released)')
        self.hidden = layer_sizes(self.hidden)
        if not self._informative:
            as_reward_prior(self.prior)

    @property
    def _informative(self) -> bool:
        return isinstance(self.prior, str) and self.prior == "informative"

    @classmethod
    def released(cls, **changes: Any) -> "AVRIL":
        """As the authors' public program: no discount, N(0, 1), last rows dropped, raw states, two layers of 64."""
        quirks = {"discount": 1.0, "prior": None, "ends": "dropped", "standardize": False, "hidden": (64, 64)}
        return cls(**{**quirks, "steps": 5000, "batch": 64, "learning_rate": 1e-4, **changes})

    def fit(self, bank: Any) -> "AVRIL":
        """Take the coding and the reward parameters of a bank, so that posteriors compare with other methods', and the
        informative prior if that is asked for. AVRIL learns from the expert alone: the bank's behaviour is not used.
        """
        bank = as_bank(bank)
        phi = default_reward_features(self.reward_features, bank.demonstrations, bank.reward_names)
        prior = informative_prior(bank, phi) if self._informative else None
        self.bank = Bank(bank.demonstrations, prior, phi, bank.reward_names, bank.fingerprint())
        self.trained = None
        return self

    def posterior(self, expert: Any, seed: Any = 0, rows: Any = None, progress: Progress | None = None) -> Posterior:
        """The posterior over the reward of the task that `expert` demonstrates.

        rows: where the reward is asked for; default all discrete states, or the expert's own rows of numbers.
        """
        trained = self._train(expert, seed, progress)
        where = self._sites(trained, rows)
        mean, sd = trained.agent.coded_reward(where.rows.take(where.first))
        if not (np.isfinite(mean).all() and np.isfinite(sd).all()):
            raise InputError(f"AVRIL's rewards are not finite numbers: {trained.agent.course.sentence}")
        rng, projection = np.random.default_rng(stream(int(seed), "AVRIL's draws")), where.projection
        drawn = normal_draws(mean, sd, projection, int(self.draws), rng)
        before = np.full(len(mean), trained.prior.mean), np.full(len(mean), trained.prior.sd)
        return Posterior(
            draws=drawn.draws[None],
            names=where.names,
            method="AVRIL",
            sampler="VI (AVRIL)",
            seed=int(seed),
            sample_stats={"lp": drawn.log_density[None]},
            prior_draws=normal_draws(*before, projection, PRIOR_DRAWS, rng).draws,
            expert_features=np.asarray(trained.expert.states, dtype=np.float64).reshape(trained.expert.n_rows, -1),
            feature_names=trained.expert.state_names,
            settings=self._settings(trained, where),
            reward_features=self._weighed(trained, where),
        )

    def policy(self, expert: Any, seed: Any = 0, progress: Progress | None = None) -> AVRILAgent:
        """The policy of the Q network, trained on the expert (not again, if the last training was that one)."""
        return self._train(expert, seed, progress).agent

    @staticmethod
    @single_precision
    def train_together(
        models: "Sequence[AVRIL]",
        experts: Sequence[Any],
        seeds: Sequence[Any],
        lanes: int | None = None,
        progress: Progress | None = None,
    ) -> None:
        """Train many models side by side, each on its expert with its seed; `posterior` and `policy` then find it done.

        Each learns what it would have learnt alone, but for rounding: matrix products add in another order. The models
        are of one shape (sizes, steps, learning rate); their priors, discounts and so on may differ. lanes: how many at
        once, default all.
        """
        shown = progress or Silent()
        cases = [model._case(*given) for model, *given in zip(models, experts, seeds, strict=True)]
        if len({case.alike for case in cases}) > 1:
            raise InputError("Trainings that differ in sizes, steps, rate or inputs cannot be run side by side.")
        lanes, most = lanes or max(1, len(cases)), max((case.rows for case in cases), default=1)
        for start in range(0, len(cases), lanes):
            group = cases[start : start + lanes]
            filled = group + group[:1] * (lanes - len(group))  # what one learns must not depend on how many there are
            found = train(loss, [case.learner(most) for case in filled], group[0].alike[-1], "AVRIL", shown)
            for model, case, result in zip(models[start:], group, found, strict=False):
                model.trained = case.trained(*result)
        shown.close()

    def _train(self, expert: Any, seed: Any, progress: Progress | None) -> Trained:
        if self.trained is None or self.trained.of != self._asked(expert, seed)[2]:
            self.train_together([self], [expert], [seed], progress=progress)
        assert self.trained is not None
        return self.trained

    def _asked(self, expert: Any, seed: Any) -> tuple[Demonstrations, RewardPrior, tuple[Any, ...]]:
        """The expert in the bank's coding, the prior, and what tells this training from any other."""
        rows, prior = self._checked(expert), self._prior()
        return rows, prior, (rows.fingerprint(), whole_number(seed, "seed", 0), prior, self._options())

    def _case(self, expert: Any, seed: Any) -> Case:
        expert, prior, of = self._asked(expert, seed)
        n_states, n_actions = self._counts(expert)
        view = StateView.learn(expert, n_states, self.standardize)
        seed = of[1]
        rows, held = learnt_and_held_out(expert, view, self.ends == "terminated", float(self.held_out), seed)
        sizes = view.width, self.hidden, 1 if self.state_only else n_actions, n_actions
        schedule = Schedule(int(self.steps), float(self.learning_rate), patience=int(self.patience))
        numbers = (self.beta, self.td_weight, self.discount, prior.mean, prior.sd)
        weights = Weights(*(jnp.asarray(number, jnp.float32) for number in numbers))
        count, aside = len(rows.action), None if held is None else padded(held)

        def batches(rng: np.random.Generator) -> np.ndarray:
            return rng.integers(0, count, (BLOCK, int(self.batch)), dtype=np.int32)

        def learner(size: int) -> Learner:
            rng = np.random.default_rng(stream(seed, "AVRIL"))
            network, data = RewardAndValueNetwork(*sizes, rng), (padded(rows, size), weights)
            if aside is None:
                return Learner(network, data, batches, rng, of=of)
            n = len(held.action)
            return Learner(network, data, batches, rng, lambda it: -float(objective(it, weights, aside, n)), n, of)

        def trained(network: RewardAndValueNetwork, course: Course) -> Trained:
            return Trained(AVRILAgent(network, view, expert, n_actions, self.state_only, course), prior, expert, of)

        return Case(count, (sizes, int(self.batch), schedule), learner, trained)

    def _checked(self, expert: Any) -> Demonstrations:
        expert = as_expert(expert)
        if not expert.discrete_actions:
            raise InputError("AVRIL needs the expert's actions, and discrete ones: its Q network has one output each.")
        return expert if self.bank is None else coded_like(self.bank.rows, expert)

    def _counts(self, rows: Demonstrations) -> tuple[int | None, int]:
        """The numbers of discrete states (None: numbers) and of actions: declared, or as large as any code seen."""
        bank = () if self.bank is None else (self.bank.rows,)
        actions = max(_count(part, "action") for part in (rows, *bank) if part.actions is not None)
        if not rows.discrete_states:
            return None, actions
        return max(_count(part, "state") for part in (rows, *bank)), actions

    def _prior(self) -> RewardPrior:
        if not self._informative:
            return as_reward_prior(self.prior)
        if self.bank is None or self.bank.prior is None:
            raise InputError('prior="informative" is made from training tasks: call fit(bank) first.')
        return self.bank.prior

    def _phi(self, expert: Demonstrations) -> FeatureMap | None:
        """The features that the parameters weigh, if any: the bank's, or the user's."""
        if self.bank is not None:
            return self.bank.reward_features
        return None if self.reward_features is None else as_feature_map(self.reward_features).fit(expert)

    def _sites(self, trained: Trained, rows: Any) -> Sites:
        agent, expert = trained.agent, trained.expert
        phi = self._phi(expert)
        if rows is not None and not isinstance(rows, Demonstrations):
            raise InputError(f"rows must be Demonstrations, not {type(rows).__name__}: the states to be asked about.")
        rows = None if rows is None else coded_like(expert, rows)
        if rows is None and agent.view.n_states is not None:
            pairs = not self.state_only or (phi is not None and set(phi.groups) != {"state"})
            rows = every_state(expert, agent.view.n_states, agent.n_actions, pairs)
        names = self.bank.reward_names if self.bank is not None and phi is not None else ()
        return sites(expert if rows is None else rows, self.state_only, phi, names)

    def _weighed(self, trained: Trained, where: Sites) -> FeatureMap | None:
        """phi for `Posterior.reward`; one-hot where the parameters are the discrete states, all of them."""
        n_states = trained.agent.view.n_states
        if where.phi is not None or n_states is None or not self.state_only or len(where.names) != n_states:
            return self._phi(trained.expert)
        return OneHotStates(n_states).fit(where.rows)

    def _settings(self, trained: Trained, where: Sites) -> dict[str, Any]:
        """Everything else that a reader of the result may ask for."""
        from kdbirl.installation import package_versions

        return {
            "prior": trained.prior.describe(),
            **self._options(),
            "training": asdict(trained.agent.course),
            "asked_rows": int(where.rows.n_rows),
            "notes": self._notes(trained, where),
            "bank": "" if self.bank is None else self.bank.fingerprint,
            "expert": trained.expert.fingerprint(),
            "versions": package_versions(),
        }

    def _options(self) -> dict[str, Any]:
        """What the training depends on, besides the prior."""
        return {item.name: getattr(self, item.name) for item in fields(self) if item.name not in NOT_OPTIONS}

    def _notes(self, trained: Trained, where: Sites) -> list[str]:
        notes = [trained.agent.course.sentence]
        if self.held_out > 0 and not trained.agent.course.held_out:
            notes.append("held_out: there is one episode only, so all of it was learnt from, for all steps.")
        return [*notes, *where.notes]


def _count(rows: Demonstrations, kind: str) -> int:
    declared, codes = getattr(rows, f"n_{kind}s"), getattr(rows, f"{kind}s")
    return int(declared if declared is not None else codes.max() + 1)


def _require(holds: bool, name: str, value: object, expected: str) -> None:
    if not holds:
        raise InputError(f"{name}={value!r} should be {expected}.")
