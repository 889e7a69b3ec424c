"""A world as planning needs it: terminal states left out, equal transition rows written once.

In a deterministic grid all rows "to cell s'" are the same row; among real patients (`ICUSepsis`) 713 x 25 rows are only
2,818 different ones. Actions of one state with the same row (a *pair* of state and row) differ in nothing but their
immediate reward, so only the best of them can be best: an exact compression of every sweep over the world.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from jaxtyping import Bool, Float, Int

from kdbirl.worlds.tabular import TabularMDP

# Maxima over groups of consecutive rows, along memory: NumPy's own `maximum.reduceat` is ten times slower here.


@dataclass(frozen=True, eq=False)
class Groups:
    """Rows 0 .. p - 1 in g consecutive groups. Layer c holds the groups with more than c rows, and their c-th row.

    Where all groups have one size, a layer is a stride through the rows, and nothing is looked up.
    """

    layers: tuple[tuple[np.ndarray | slice, np.ndarray | slice], ...]

    @classmethod
    def of(cls, first: Int[np.ndarray, " g"], rows: int) -> "Groups":
        """From the first row of each group."""
        sizes = np.diff(np.append(first, rows))
        size = int(sizes.max())
        if (sizes == size).all():
            return cls(tuple((slice(None), slice(c, None, size)) for c in range(size)))
        layers = [np.flatnonzero(sizes > c) for c in range(size)]
        return cls(tuple((groups, first[groups] + c) for c, groups in enumerate(layers)))

    def max(self, values: Float[np.ndarray, "p r"]) -> Float[np.ndarray, "g r"]:
        """The largest value of each group."""
        best = np.array(values[self.layers[0][1]])
        for groups, rows in self.layers[1:]:
            best[groups] = np.maximum(best[groups], values[rows])
        return best

    def argmax(self, values: Float[np.ndarray, "p r"]) -> tuple[Float[np.ndarray, "g r"], Int[np.ndarray, "g r"]]:
        """The largest value of each group, and the first row that has it."""
        number = np.arange(len(values))
        best = np.array(values[self.layers[0][1]])
        chosen = np.repeat(number[self.layers[0][1]][:, None], values.shape[1], axis=1)
        for groups, rows in self.layers[1:]:
            better = values[rows] > best[groups]
            best[groups] = np.where(better, values[rows], best[groups])
            chosen[groups] = np.where(better, number[rows][:, None], chosen[groups])
        return best, chosen


WORTH_SHARING = 0.67  # share of different rows among a state's actions above which each action is its own pair
SPARSE = 0.1  # share of non-zero entries below which a sparse matrix product is quicker

_KNOWN: "WeakKeyDictionary[TabularMDP, Dynamics]" = WeakKeyDictionary()


@dataclass(frozen=True, eq=False)
class Dynamics:
    """The n *live* states of a world, its u distinct transition rows among them, its p pairs (state, row).

    live: `(n,)` state numbers. rows: `(u, n)` probabilities, a deficit is the probability of ending. row_of: `(n, A)`.
    pair_row: `(p,)`, by state; pair_of: `(n, A)` pair of each action; pair_first: `(n,)` first pair of a state.
    start: `(n,)`; features: `(n, q)` or `(n, A, q)`.
    """

    live: Int[np.ndarray, " n"]
    rows: Float[np.ndarray, "u n"]
    row_of: Int[np.ndarray, "n A"]
    pair_row: Int[np.ndarray, " p"]
    pair_of: Int[np.ndarray, "n A"]
    pair_first: Int[np.ndarray, " n"]
    start: Float[np.ndarray, " n"]
    features: Float[np.ndarray, "n A q"] | Float[np.ndarray, "n q"]
    discount: float
    n_states: int

    @property
    def n(self) -> int:
        return len(self.live)

    @property
    def n_actions(self) -> int:
        return int(self.row_of.shape[1])

    @cached_property
    def _product(self) -> Any:
        """The rows as a sparse matrix where most entries are zero."""
        if np.count_nonzero(self.rows) > SPARSE * self.rows.size:
            return self.rows
        from scipy.sparse import csr_array

        return csr_array(self.rows)

    @cached_property
    def successor(self) -> Int[np.ndarray, " u"] | None:
        """The next live state of each row, n where the episode ends, if nothing is left to chance; else None."""
        certain = ((self.rows == 1) | (self.rows == 0)).all() and (self.rows.sum(axis=1) <= 1).all()
        if not certain:
            return None
        return np.where(self.rows.any(axis=1), self.rows.argmax(axis=1), self.n)

    @cached_property
    def pairs(self) -> Groups:
        """The pairs of each state."""
        return Groups.of(self.pair_first, len(self.pair_row))

    @cached_property
    def _equal_actions(self) -> tuple[np.ndarray, Groups]:
        """State-actions in the order of their pairs, and those of each pair."""
        flat = self.pair_of.ravel()
        order = np.argsort(flat, kind="stable")
        return order, Groups.of(np.searchsorted(flat[order], np.arange(len(self.pair_row))), len(flat))

    @cached_property
    def action_of_pair(self) -> Int[np.ndarray, " p"]:
        """An action of each pair: all of them have the same transition row."""
        return np.unique(self.pair_of, return_index=True)[1] % self.n_actions

    def expected(self, values: Float[np.ndarray, "n r"]) -> Float[np.ndarray, "u r"]:
        """Expected value of the next state after each distinct row."""
        return np.asarray(self._product @ values)

    def pushed(self, acting: Float[np.ndarray, "r n A"]) -> Float[np.ndarray, "r n"]:
        """The distribution of the next live state, from those of state and action."""
        count, u = len(acting), len(self.rows)
        place = np.arange(count)[:, None, None] * u + self.row_of
        weights = np.bincount(place.ravel(), acting.ravel(), minlength=count * u).reshape(count, u)
        return np.asarray(weights @ self._product)

    def tables(self, rewards: Float[np.ndarray, "r q"]) -> Float[np.ndarray, "n A r"]:
        """R(s, a) of the live states, the rewards last (so that sweeps run along memory)."""
        values = self.features @ np.ascontiguousarray(rewards.T)
        return values if values.ndim == 3 else np.repeat(values[:, None, :], self.n_actions, axis=1)

    def best_in_pair(self, tables: Float[np.ndarray, "n A r"]) -> Float[np.ndarray, "p r"]:
        """The best immediate reward among actions of a state with the same transition row."""
        order, members = self._equal_actions
        return members.max(tables.reshape(-1, tables.shape[2])[order])

    def pair_values(
        self, pair_rewards: Float[np.ndarray, "p r"], values: Float[np.ndarray, "n r"]
    ) -> Float[np.ndarray, "p r"]:
        """Q of each pair: r + discount * E[V(next)]."""
        after = (self.discount * self.expected(values)).take(self.pair_row, axis=0)
        after += pair_rewards
        return after

    def action_values(
        self, tables: Float[np.ndarray, "n A r"], values: Float[np.ndarray, "n r"]
    ) -> Float[np.ndarray, "n A r"]:
        """Q of every action."""
        return tables + self.discount * self.expected(values)[self.row_of]


def dynamics_of(mdp: TabularMDP) -> Dynamics:
    """The compressed form of a world, made once and kept as long as the world."""
    if mdp not in _KNOWN:
        _KNOWN[mdp] = _compressed(mdp)
    return _KNOWN[mdp]


def live_states(mdp: TabularMDP) -> Bool[np.ndarray, " S"]:
    """States whose value is planned: not terminal and, undiscounted, reachable (elsewhere it may be infinite)."""
    endless = mdp.discount == 1 and mdp.horizon is None
    return ~mdp.terminal & mdp.reachable if endless else ~mdp.terminal


def _compressed(mdp: TabularMDP) -> Dynamics:
    live = np.flatnonzero(live_states(mdp))
    n, actions = len(live), mdp.n_actions
    table = mdp.transitions[live][:, :, live].reshape(n * actions, n)
    known: dict[bytes, int] = {}
    row_of = np.array([known.setdefault(row.tobytes(), len(known)) for row in table], dtype=np.int64)
    _, first = np.unique(row_of, return_index=True)
    of_state = np.repeat(np.arange(n), actions) * len(known)
    pairs, pair_of = np.unique(of_state + row_of, return_inverse=True)
    if len(pairs) > WORTH_SHARING * n * actions:  # little to gain, and groups of one size are quicker
        pairs, pair_of = of_state + row_of, np.arange(n * actions)
    phi = np.eye(mdp.n_states) if mdp.features is None else mdp.features
    return Dynamics(
        live=live,
        rows=np.ascontiguousarray(table[first]),
        row_of=row_of.reshape(n, actions),
        pair_row=pairs % len(known),
        pair_of=pair_of.reshape(n, actions),
        pair_first=np.searchsorted(pairs // len(known), np.arange(n)),
        start=mdp.start[live],
        features=phi[live],
        discount=mdp.discount,
        n_states=mdp.n_states,
    )
