"""What deep Q-learning gives: action values and greedy policies, for one reward or for any, also on disk.

A file is one npz of plain arrays and a JSON text, without pickle:

record    JSON text: kind, version, names, sizes of the network, how the training went
units     (q,), and centre, spread, mixing of the scales
leaf 0... the network's weights in the order of its leaves
states    (S, d), only of a tabular world
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from kdbirl._jax import single_precision
from kdbirl.archive import read_arrays, whole_or_not_at_all
from kdbirl.errors import FileProblem, InputError
from kdbirl.worlds.acting import Actor
from kdbirl.worlds.policy import Policy
from kdbirl.worlds.sepsis.q_episodes import Scales
from kdbirl.worlds.sepsis.q_network import ActionValueNetwork, action_values, greedy

KIND, VERSION = "kdbirl.ConditionedQ", 2
EXPECTED = "expected a file written by ConditionedQ.save"


@dataclass(frozen=True)
class Learning:
    """How a training went.

    converged: the returns had stopped to rise, and the network's own estimate agreed with them; `sentence` says so in
    words. updates: how many were made; best_update: after how many of them the network was taken that is kept.
    returns: the mean discounted return of the evaluation episodes after every `evaluate_every` updates, beginning
    with the untrained network; best, random: of the network that is kept, and of the random agent; expected: what the
    kept network itself expected. With one reward they are in its units; over many, each is scaled to unit size.
    """

    converged: bool
    sentence: str
    updates: int
    best_update: int
    returns: tuple[float, ...]
    best: float
    random: float
    expected: float


@dataclass(frozen=True, eq=False)
class LearntValues:
    """The network, how it sees the world, and what the world's numbers are called. `states (S, d)` are the observations
    of a tabular world, whose states can be given by their numbers too."""

    network: ActionValueNetwork
    scales: Scales
    observation_names: tuple[str, ...]
    feature_names: tuple[str, ...]
    n_actions: int
    states: Float[np.ndarray, "S d"] | None

    @property
    def limit(self) -> int | None:
        """The horizon, if the values are those of so many steps and depend on the step; else None."""
        return self.network.limit

    def choose(self, observations: Float[Array, "n d"], step: Any, directions: Float[Array, "n p"]) -> Int[Array, " n"]:
        """The greedy action of each row, in JAX, so that compiled loops can ask for it in any precision."""
        steps = jnp.zeros((), jnp.int32) if self.limit is None else jnp.asarray(self._needed(step))
        return _choose(self.network, self.scales, observations, steps, directions)

    @single_precision
    def of(self, observations: Any, step: Any, direction: Float[np.ndarray, " p"]) -> Float[np.ndarray, "n A"]:
        """Q of every action for each observation `(n, d)`, or for each state `(n,)` of a tabular world."""
        seen, steps = jnp.asarray(self.observed(observations)), jnp.asarray(self.at(step))
        return np.asarray(_values(self.network, self.scales, seen, steps, jnp.asarray(direction)), dtype=np.float64)

    def at(self, step: Any) -> Int[np.ndarray, "*n"]:
        """The step, one for all rows or one for each, where it matters; else 0."""
        if self.limit is None:
            return np.zeros((), np.int32)
        given = np.asarray(self._needed(step))
        if not np.issubdtype(given.dtype, np.integer) or (given < 0).any() or (given >= self.limit).any():
            raise InputError(f"step={step!r}: steps are whole numbers, from 0 to {self.limit - 1} in this policy.")
        return given.astype(np.int32)

    def _needed(self, step: Any) -> Any:
        if step is None:
            raise InputError(f"This policy is for {self.limit} steps and depends on the step: say which, from 0.")
        return step

    def observed(self, observations: Any) -> Float[np.ndarray, "n d"]:
        """Rows of numbers as the simulator gives them, from such rows or from the numbers of states."""
        given = np.asarray(observations)
        if self.states is not None and given.ndim == 1 and np.issubdtype(given.dtype, np.integer):
            if given.size and not 0 <= given.min() <= given.max() < len(self.states):
                wrong = given.min() if given.min() < 0 else given.max()
                raise InputError(f"There is no state {wrong}; states are 0 to {len(self.states) - 1}.")
            return self.states[given]
        columns = self.observation_names
        if given.ndim != 2 or given.shape[1] != len(columns):
            expected = f"(n, {len(columns)}): {', '.join(columns[:6])}{', ...' if len(columns) > 6 else ''}"
            raise InputError(f"The observations have shape {given.shape}, expected {expected}.")
        return given.astype(np.float64)


@dataclass(frozen=True, eq=False)
class QPolicy:
    """The greedy policy that deep Q-learning found for one reward `(q,)`.

    It plugs in wherever a policy does: `kb.rollout(env, policy)` and, if it was trained in a tabular world,
    `kb.value(mdp, policy, reward)`. Q values are in the reward's units, with some six digits (single precision).
    In a world with a horizon (see `DeepQ`) they depend on the step, counted from 0, which then must be given.
    """

    reward: Float[np.ndarray, " q"]
    learning: Learning
    values: LearntValues
    direction: Float[np.ndarray, " p"]
    size: float

    @property
    def converged(self) -> bool:
        return self.learning.converged

    @property
    def sentence(self) -> str:
        """How the training went."""
        return self.learning.sentence

    def q_values(self, observations: Any, step: Any = None) -> Float[np.ndarray, "n A"]:
        """Q(s, a) for observations `(n, d)`, or for the states `(n,)` of a tabular world; with a horizon at a `step`,
        one for all or `(n,)`."""
        return self.size * self.values.of(observations, step, self.direction)

    def actions(self, observations: Any, step: Any = None) -> Int[np.ndarray, " n"]:
        """The greedy action in each."""
        return self.q_values(observations, step).argmax(axis=1)

    def __call__(self, observations: Float[Array, "n d"], step: Any = None) -> Int[Array, " n"]:
        """The greedy actions for a simulator's observations, in JAX."""
        weights = jnp.broadcast_to(self.direction[None], (len(observations), len(self.direction)))
        return self.values.choose(observations, step, weights)

    def as_actor(self) -> Actor:
        """How it acts in compiled episodes; all policies of this kind share one program."""
        parameters = self.values.network, self.values.scales, self.direction
        return Actor(_greedy_act, parameters, alike=True, limit=self.values.limit)

    def predict(self, observation: Any) -> int:
        """The greedy action for one observation `(d,)`, or for one state of a tabular world; see `predict_at`."""
        return int(self.actions(np.asarray(observation)[None])[0])

    def predict_at(self, observation: Any, step: int) -> int:
        """The same at a step, counted from 0; without a horizon it has no part."""
        return int(self.actions(np.asarray(observation)[None], step)[0])

    def table(self) -> Policy:
        """The same policy as a table, if it was trained in a tabular world; with a horizon one for each step."""
        states, limit = self.values.states, self.values.limit
        if states is None:
            raise InputError("This policy was not trained in a tabular world; only there it is a table.")
        chosen = self.actions(states) if limit is None else [self.actions(states, step) for step in range(limit)]
        return Policy(np.eye(self.values.n_actions)[np.asarray(chosen)])

    def __repr__(self) -> str:
        return f"QPolicy({self.sentence})"


@dataclass(frozen=True, eq=False)
class ConditionedQ:
    """Action values Q(s, a, w) for every reward w . phi from the distribution that they were trained over; in a world
    with a horizon Q(s, t, a, w), with the step t from 0.

    `policy(w)` costs nothing, so that thousands of posterior draws cost one training: `kb.evd(post, mdp, truth,
    planner=conditioned)`. Of rewards outside that distribution it knows little; only their size does not matter.
    `units (q,)` are the root mean squares of the features, in which the network measures.
    """

    learning: Learning
    values: LearntValues
    units: Float[np.ndarray, " q"]

    @property
    def converged(self) -> bool:
        return self.learning.converged

    @property
    def sentence(self) -> str:
        """How the training went."""
        return self.learning.sentence

    def policy(self, reward: Any) -> QPolicy:
        """The greedy policy for one reward `(q,)`."""
        weights = np.asarray(reward, dtype=np.float64)
        names = self.values.feature_names
        if weights.shape != (len(names),) or not np.isfinite(weights).all():
            raise InputError(f"reward: {weights.tolist()}, expected one finite number for each of {', '.join(names)}.")
        direction, size = directions(weights[None] * self.units[None])
        return QPolicy(weights, self.learning, self.values, direction[0], float(size[0]))

    def act(self, observations: Float[Array, "n d"], rewards: Float[Array, "n q"], step: Any = None) -> Array:
        """The greedy actions `(n,)` for a simulator's observations, each row for a reward of its own, in JAX: one
        compiled rollout serves any number of rewards side by side."""
        return self.values.choose(observations, step, _of_length_one(rewards, jnp.asarray(self.units)))

    def as_actor(self) -> Actor:
        """How the policy of any reward acts in compiled episodes; see `conditioned_actor`."""
        parameters = self.values.network, self.values.scales, self.units
        return Actor(_conditioned_act, parameters, alike=True, limit=self.values.limit)

    def q_values(self, observations: Any, rewards: Any, step: Any = None) -> Float[np.ndarray, "r n A"]:
        """Q(s, a, w) for observations `(n, d)` (or states) and rewards `(r, q)`; with a horizon at a `step`."""
        return np.stack([self.policy(reward).q_values(observations, step) for reward in np.atleast_2d(rewards)])

    def save(self, path: str | Path) -> None:
        """Write it to one npz file without pickle; `kb.load_conditioned` reads it."""
        values = self.values
        record = {
            "kind": KIND,
            "version": VERSION,
            "observation_names": values.observation_names,
            "feature_names": values.feature_names,
            "n_actions": values.n_actions,
            "hidden": [layer.out_features for layer in values.network.layers],
            "horizon": values.network.horizon,
            "limit": values.limit,
            "learning": asdict(self.learning),
        }
        arrays: dict[str, Any] = {
            f"leaf {i}": np.asarray(leaf) for i, leaf in enumerate(jax.tree.leaves(values.network))
        }
        arrays |= {name: np.asarray(array) for name, array in values.scales._asdict().items()}
        arrays |= {"units": self.units} | ({} if values.states is None else {"states": values.states})
        with whole_or_not_at_all(Path(path)) as unfinished, unfinished.open("wb") as stream:
            np.savez(stream, record=np.array(json.dumps(record)), **arrays)

    def __call__(self, mdp: Any, reward: Any) -> Policy | QPolicy:
        """`planner=` of `kb.evd`: the policy for a reward; as a table in the tabular world of the training."""
        policy = self.policy(reward)
        return policy if self.values.states is None else policy.table()

    def __repr__(self) -> str:
        return f"ConditionedQ({self.sentence})"


@single_precision
def load_conditioned(path: str | Path) -> ConditionedQ:
    """What `ConditionedQ.save` wrote: the same policies to the last bit, without training again."""
    place = Path(path)
    arrays = read_arrays(place, EXPECTED)
    try:
        record = json.loads(str(arrays["record"]))
        if record["kind"] != KIND or record["version"] != VERSION:
            found = f"{record['kind']} version {record['version']}"
            raise FileProblem(f"{place} holds {found}; {EXPECTED}, version {VERSION}.")
        return _built(record, arrays)
    except FileProblem:
        raise
    except Exception as error:  # a record or an array of the wrong kind can fail anywhere
        reason = " ".join(str(error).split())[:200]
        raise FileProblem(f"{place} holds no weight-conditioned policy ({reason}); {EXPECTED}.") from error


def _built(record: dict[str, Any], arrays: dict[str, Any]) -> ConditionedQ:
    names = tuple(record["observation_names"]), tuple(record["feature_names"])
    inputs, p = sum(map(len, names)), len(names[1])
    # its form alone: a file may name sizes that no memory holds, and only those of its own arrays are ever made
    sizes = inputs, record["hidden"], record["n_actions"], p, record["horizon"]
    like = eqx.filter_eval_shape(ActionValueNetwork, *sizes, jax.random.key(0, impl="threefry2x32"), record["limit"])
    leaves, form = jax.tree.flatten(like)
    found = [arrays[f"leaf {i}"] for i in range(len(leaves))]
    if [leaf.shape for leaf in found] != [leaf.shape for leaf in leaves]:
        raise ValueError("the network's arrays are not of the sizes that it names")
    scales = Scales(*(jnp.asarray(arrays[name]) for name in Scales._fields))
    network = jax.tree.unflatten(form, [jnp.asarray(leaf) for leaf in found])
    values = LearntValues(network, scales, *names, record["n_actions"], arrays.get("states"))
    learning = Learning(**record["learning"] | {"returns": tuple(record["learning"]["returns"])})
    return ConditionedQ(learning, values, arrays["units"])


def directions(rewards: Float[np.ndarray, "r q"]) -> tuple[Float[np.ndarray, "r q"], Float[np.ndarray, " r"]]:
    """Rewards of length one, and their lengths: a positive factor changes no policy, so it is not learnt."""
    size = np.linalg.norm(rewards, axis=1)
    return rewards / np.where(size > 0, size, 1.0)[:, None], size


def _of_length_one(rewards: Float[Array, "n q"], units: Float[Array, " q"]) -> Float[Array, "n q"]:
    """`directions` in JAX, of rewards in the network's units."""
    scaled = rewards * units.astype(rewards.dtype)[None]
    size = jnp.linalg.norm(scaled, axis=1, keepdims=True)
    return scaled / jnp.where(size > 0, size, 1.0)


def _choose(
    network: ActionValueNetwork,
    scales: Scales,
    observations: Float[Array, "n d"],
    step: Int[Array, "*n"],
    weights: Float[Array, "n p"],
) -> Int[Array, " n"]:
    steps = jnp.broadcast_to(step, len(observations))
    return greedy(network, scales.see(observations.astype(jnp.float32)), steps, weights.astype(jnp.float32))


def _greedy_act(parameters: Any, state: Any, observation: Float[Array, "n d"], step: Any, key: Any) -> Int[Array, " n"]:
    network, scales, direction = parameters
    weights = jnp.broadcast_to(direction[None], (len(observation), len(direction)))
    return _choose(network, scales, observation, step, weights)


def _conditioned_act(parameters: Any, state: Any, observation: Float[Array, "n d"], step: Any, key: Any) -> Array:
    (network, scales, units), reward = parameters
    direction = _of_length_one(reward[None], units)
    weights = jnp.broadcast_to(direction, (len(observation), len(reward)))
    return _choose(network, scales, observation, step, weights)


@jax.jit
def _values(
    network: ActionValueNetwork,
    scales: Scales,
    observations: Float[Array, "n d"],
    step: Int[Array, "*n"],
    direction: Float[Array, " p"],
) -> Float[Array, "n A"]:
    n = len(observations)
    weights = jnp.broadcast_to(direction[None], (n, len(direction)))
    return action_values(network, scales.see(observations), jnp.broadcast_to(step, n), weights)
