"""The expert's rows as AVRIL reads them: what follows each row, how the networks see a state, whole held-out episodes.

Row i is followed by the next row of its episode. The last row of an episode has no next one: where it `terminated`,
nothing follows, and Q(s, a) is the reward itself; where it was cut, or nothing is known, it teaches only the action.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from kdbirl.demos.data import Demonstrations
from kdbirl.errors import InputError
from kdbirl.methods.avril_elbo import Transitions
from kdbirl.random_streams import stream

SAME = 1e-6  # a column with a smaller spread than this share of its size is constant up to rounding


class Succession(NamedTuple):
    """following: the row after each row, -1 if there is none; terminated: the episode ended with it; part: which
    unbroken run of rows it belongs to, 0 .. parts - 1."""

    following: Int[np.ndarray, " rows"]
    terminated: Bool[np.ndarray, " rows"]
    part: Int[np.ndarray, " rows"]


def succession(expert: Demonstrations) -> Succession:
    """Rows of one episode follow each other in their order; a row that is terminated or truncated is its last."""
    nothing = np.zeros(expert.n_rows, dtype=bool)
    terminated = nothing if expert.terminated is None else np.asarray(expert.terminated)
    cut = nothing if expert.truncated is None else np.asarray(expert.truncated)
    order = np.argsort(expert.episodes, kind="stable")
    goes_on = np.zeros(expert.n_rows, dtype=bool)
    goes_on[:-1] = np.diff(expert.episodes[order]) == 0
    goes_on &= ~(terminated | cut)[order]
    following, part = np.full(expert.n_rows, -1), np.zeros(expert.n_rows, dtype=np.int64)
    following[order[:-1][goes_on[:-1]]] = order[1:][goes_on[:-1]]
    part[order[1:]] = np.cumsum(~goes_on[:-1])
    return Succession(following, terminated, part)


@dataclass(frozen=True, eq=False)
class StateView:
    """How the networks see a state: (s - centre) / spread, or one-hot where there are `n_states` discrete ones.

    A discrete state beyond those, such as an end that no row shows, is all zeros.
    """

    centre: Float[np.ndarray, " d"]
    spread: Float[np.ndarray, " d"]
    n_states: int | None = None

    @classmethod
    def learn(cls, expert: Demonstrations, n_states: int | None, standardize: bool) -> "StateView":
        """Mean 0 and standard deviation 1 over the expert's rows, or numbers as they are."""
        width = n_states if n_states is not None else expert.states.shape[1]
        if n_states is not None or not standardize:
            return cls(np.zeros(width), np.ones(width), n_states)
        spread, size = expert.states.std(axis=0), np.abs(expert.states).max(axis=0)
        return cls(expert.states.mean(axis=0), np.where(spread > SAME * size, spread, 1.0), None)

    @property
    def width(self) -> int:
        return len(self.centre)

    def see(self, states: Any) -> Float[Array, "n d"]:
        """Codes `(n,)`, or numbers `(n, d)`, as the networks' input, in JAX."""
        given = jnp.asarray(states)
        if given.ndim == 1:
            return jax.nn.one_hot(given, self.width, dtype=jnp.float32)
        return standardised(given, jnp.asarray(self.centre), jnp.asarray(self.spread))

    def checked(self, states: Any) -> np.ndarray:
        """States from a user: codes `(n,)` of discrete states, or `(n, d)` numbers."""
        given = np.asarray(states)
        if self.n_states is not None and given.ndim == 1:
            if given.size and (given.dtype.kind not in "iu" or given.min() < 0):
                raise InputError(f"States are the codes 0 to {self.n_states - 1}, not {given.tolist()[:5]}.")
            return given.astype(np.int32)
        if given.ndim != 2 or given.shape[1] != self.width:
            expected = f"(n, {self.width})" if self.n_states is None else "(n,) codes"
            raise InputError(f"The states have shape {given.shape}, expected {expected}.")
        return given.astype(np.float64)


def standardised(
    states: Float[Array, "n d"], centre: Float[Array, " d"], spread: Float[Array, " d"]
) -> Float[Array, "n d"]:
    """(s - centre) / spread in single precision, as the networks compute."""
    return (states.astype(jnp.float32) - centre.astype(jnp.float32)[None]) / spread.astype(jnp.float32)[None]


def coded_like(other: Demonstrations, rows: Demonstrations) -> Demonstrations:
    """`rows` in the coding of `other`, of which either may have no actions."""
    both = rows.actions is not None and other.actions is not None
    return rows.aligned_to(other) if both else rows.states_aligned_to(other)


def transitions(expert: Demonstrations, follows: Succession, view: StateView, rows: Int[np.ndarray, " m"]) -> Any:
    """The `Transitions` of these rows."""
    next_row = np.where(follows.following >= 0, follows.following, np.arange(expert.n_rows))[rows]
    states, actions = np.asarray(expert.states), np.asarray(expert.actions)
    return Transitions(
        state=view.see(_exact(states[rows])),
        action=jnp.asarray(actions[rows].astype(np.int32)),
        following=view.see(_exact(states[next_row])),
        next_action=jnp.asarray(actions[next_row].astype(np.int32)),
        continues=jnp.asarray(follows.following[rows] >= 0),
        terminated=jnp.asarray(follows.terminated[rows]),
    )


def _exact(states: np.ndarray) -> np.ndarray:
    return states.astype(np.int32 if states.ndim == 1 else np.float32)


def padded(rows: Transitions, size: int | None = None) -> Transitions:
    """Repeat the last row up to a power of two from `size`, so that experts of many lengths share few programs."""
    more = 2 ** int(np.ceil(np.log2(size or len(rows.action)))) - len(rows.action)
    return Transitions(*(jnp.concatenate([part, jnp.repeat(part[-1:], more, axis=0)]) for part in rows))


def learnt_and_held_out(
    expert: Demonstrations, view: StateView, keep_ends: bool, share: float, seed: int
) -> tuple[Any, Any]:
    """The transitions to learn from, and those held out (None if there are none)."""
    follows = succession(expert)
    learnt, aside = split(follows, keep_ends, share, seed)
    if not len(learnt):
        raise InputError('No row of the expert has a next one, so ends="dropped" leaves none; use "terminated".')
    held_out = transitions(expert, follows, view, aside) if len(aside) else None
    return transitions(expert, follows, view, learnt), held_out


def split(
    follows: Succession, keep_ends: bool, share: float, seed: int
) -> tuple[Int[np.ndarray, " m"], Int[np.ndarray, " k"]]:
    """Rows to learn from, and rows of whole episodes held out: `share` of the episodes, but never the last one.

    Without `keep_ends` rows that nothing follows are left out.
    """
    usable = np.flatnonzero(keep_ends | (follows.following >= 0))
    parts = np.unique(follows.part[usable])
    count = min(max(1, round(share * len(parts))), len(parts) - 1) if share > 0 and len(parts) else 0
    aside = np.random.default_rng(stream(seed, "rows held out of AVRIL")).permutation(parts)[:count]
    held = np.isin(follows.part[usable], aside)
    return usable[~held], usable[held]
