"""Behaviour cloning: do what the expert did in each state. A policy, and no reward.

    discrete states   pi(a | s) = (N(s, a) + smoothing) / (N(s) + A smoothing),   1 / A where nothing is known
    other states      pi(a | s) = softmax of a network, fitted to the expert's actions by maximum likelihood

It is what a method that learns rewards has to beat where the task stays the same.
"""

from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from kdbirl._jax import single_precision
from kdbirl.data.demonstrations import Demonstrations
from kdbirl.errors import InputError
from kdbirl.methods.arguments import as_bank, as_expert, is_number, layer_sizes, require_positive, state_action_pairs
from kdbirl.methods.avril_elbo import StateView, coded_like
from kdbirl.progress import BLOCK, Course, Progress, Silent
from kdbirl.random_streams import stream
from kdbirl.training import AVERAGED, STEEPEST, Layers, Learner, Schedule, dense_layers, through, train
from kdbirl.worlds.policy import Policy
from kdbirl.worlds.rollouts import whole_number
from kdbirl.worlds.tabular import TabularMDP


@dataclass(frozen=True, eq=False)
class CloningAgent:
    """A network's policy: `kb.rollout(env, agent)` takes the likeliest action; `probabilities` has them all."""

    network: Layers
    view: StateView
    course: Course

    @single_precision
    def probabilities(self, observations: Any) -> Float[np.ndarray, "n A"]:
        """pi(a | s) for states `(n, d)`."""
        seen = self.view.see(self.view.checked(observations))
        return np.asarray(jax.nn.softmax(_outputs(self.network, seen), axis=1), dtype=np.float64)

    def actions(self, observations: Any) -> Int[np.ndarray, " n"]:
        """The likeliest action in each."""
        return self.probabilities(observations).argmax(axis=1)

    def predict(self, observation: Any) -> int:
        """The likeliest action for one observation `(d,)`."""
        return int(self.actions(np.asarray(observation)[None])[0])

    def __call__(self, observations: Float[Array, "n d"]) -> Int[Array, " n"]:
        """The actions for a simulator's observations, in JAX: what compiled rollouts call."""
        return jnp.argmax(_outputs(self.network, self.view.see(observations)), axis=1)

    def __repr__(self) -> str:
        return f"CloningAgent({self.course.sentence})"


@dataclass
class BehaviourCloning:
    """Behaviour cloning. `policy(expert, seed=0)` is a `kb.Policy` for discrete states, else a `CloningAgent`.

    mdp: the world, which then says how many states and actions there are; without it they are those declared or seen.
    smoothing: added to every count; 0 is the likeliest policy.
    hidden, steps, batch, learning_rate: of the network and of Adam, for states of numbers.
    """

    mdp: Any = None
    smoothing: Any = 0.0
    hidden: Any = (64, 64)
    steps: Any = 2000
    batch: Any = 64
    learning_rate: Any = 1e-3
    bank: Demonstrations | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if not (self.mdp is None or isinstance(self.mdp, TabularMDP)):
            raise InputError(f"mdp={type(self.mdp).__name__} should be a kb.TabularMDP, or None.")
        if not (is_number(self.smoothing) and 0 <= self.smoothing < np.inf):
            raise InputError(f"smoothing={self.smoothing!r} should be 0 or a positive number.")
        require_positive(self.learning_rate, "learning_rate")
        for name in ("steps", "batch"):
            whole_number(getattr(self, name), name, 1)
        self.hidden = layer_sizes(self.hidden)

    def fit(self, bank: Any, n: Any = None, seed: int = 0, progress: Progress | None = None) -> "BehaviourCloning":
        """Take how a bank codes its states and actions. Its behaviour is that of other tasks, and is not used."""
        self.bank = as_bank(bank).demonstrations
        return self

    def posterior(self, expert: Any, seed: Any = 0, progress: Progress | None = None) -> Any:
        """There is none: a sentence says so."""
        raise InputError("Behaviour cloning has no reward, so it has no posterior: ask for policy(expert).")

    def policy(self, expert: Any, seed: Any = 0, progress: Progress | None = None) -> Policy | CloningAgent:
        """What the expert does in each state."""
        seed = whole_number(seed, "seed", 0)
        if self.mdp is not None:
            states, actions = state_action_pairs(self.mdp, expert)
            return self._counted(states, actions, self.mdp.n_states, self.mdp.n_actions)
        rows = self._checked(expert)
        if rows.discrete_states:
            return self._counted(rows.states, rows.actions, self._count(rows, "state"), self._count(rows, "action"))
        return self._trained(rows, seed, progress or Silent())

    def _counted(self, states: Any, actions: Any, n_states: int, n_actions: int) -> Policy:
        counts = np.full((n_states, n_actions), float(self.smoothing))
        np.add.at(counts, (states, actions), 1.0)
        counts[counts.sum(axis=1) == 0] = 1.0
        return Policy(counts / counts.sum(axis=1, keepdims=True))

    @single_precision
    def _trained(self, rows: Demonstrations, seed: int, progress: Progress) -> CloningAgent:
        rng, view = np.random.default_rng(stream(seed, "behaviour cloning")), StateView.learn(rows, None, True)
        sizes = (view.width, *self.hidden, self._count(rows, "action"))
        network = dense_layers(sizes, rng)
        data = view.see(rows.states), jnp.asarray(np.asarray(rows.actions), jnp.int32)

        def batches(rng: np.random.Generator) -> Int[np.ndarray, "steps batch"]:
            return rng.integers(0, rows.n_rows, (BLOCK, int(self.batch)), dtype=np.int32)

        learner = Learner(network, data, batches, rng, of=self.batch)
        schedule = Schedule(int(self.steps), float(self.learning_rate), steepest=STEEPEST, averaging=AVERAGED)
        ((network, course),) = train(_surprise, [learner], schedule, "Behaviour cloning", progress)
        progress.close()
        return CloningAgent(network, view, course)

    def _checked(self, expert: Any) -> Demonstrations:
        expert = as_expert(expert)
        if not expert.discrete_actions:
            raise InputError(
                "Behaviour cloning needs the expert's actions, and discrete ones: it learns which is taken."
            )
        return expert if self.bank is None else coded_like(self.bank, expert)

    def _count(self, rows: Demonstrations, kind: str) -> int:
        """The number of states or actions: declared, or as large as any code seen, here or in the bank."""
        parts = [rows] if self.bank is None or getattr(self.bank, f"{kind}s") is None else [rows, self.bank]
        known = [getattr(part, f"n_{kind}s") or int(getattr(part, f"{kind}s").max()) + 1 for part in parts]
        return max(known)


def _outputs(layers: Layers, states: Float[Array, "n d"]) -> Float[Array, "n A"]:
    return through(layers, states, jax.nn.elu)


def _surprise(layers: Layers, data: tuple[Array, Array], batch: Int[Array, " b"]) -> Float[Array, ""]:
    """Mean of -log pi(a | s)."""
    states, actions = data[0][batch], data[1][batch]
    logs = jax.nn.log_softmax(_outputs(layers, states), axis=1)
    return -jnp.mean(jnp.take_along_axis(logs, actions[:, None], axis=1))
