"""What an environment gives when somebody acts in it: plain arrays, of which `demos.rollouts` makes demonstrations."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int


@dataclass(frozen=True, eq=False)
class Steps:
    """One row for each action that was taken.

    states: `(rows,)` codes or `(rows, d)` numbers, before the action; actions: `(rows,)` codes; episodes: `(rows,)`.
    terminated: the episode *ended* with this action; truncated: it was merely *cut* after it.
    n_states, n_actions: how many there are (n_states is None for numbers). rewards: `(rows,)`, the environment's own.
    """

    states: Int[np.ndarray, " rows"] | Float[np.ndarray, "rows d"]
    actions: Int[np.ndarray, " rows"]
    episodes: Int[np.ndarray, " rows"]
    terminated: Bool[np.ndarray, " rows"]
    truncated: Bool[np.ndarray, " rows"]
    n_states: int | None
    n_actions: int
    rewards: Float[np.ndarray, " rows"] | None = None
