"""`CartPole`: Gymnasium's CartPole-v1 as a vectorised simulator in JAX, for planners in continuous states."""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from kdbirl.errors import InputError
from kdbirl.worlds.simulator import Outcome

GRAVITY = 9.8
POLE_MASS, TOTAL_MASS = 0.1, 1.1
HALF_LENGTH = 0.5  # of the pole
FORCE = 10.0
SECONDS = 0.02  # between two states
FARTHEST = 2.4  # of the cart from the middle
STEEPEST = 12 * 2 * np.pi / 360  # angle of the pole
FIRST = 0.05  # every variable starts evenly between -FIRST and FIRST


class CartPoleState(NamedTuple):
    """Where each cart and pole is (`(n, 4)`, the observation), and how many steps it has taken `(n,)`."""

    variables: Float[Array, "n 4"]
    step: Int[Array, " n"]


@dataclass(frozen=True)
class CartPole:
    """A pole on a cart that is pushed to the left or to the right; an episode ends when the pole falls.

    ## States
    Position and velocity of the cart, angle (radians) and angular velocity of the pole; the first state is uniform
    within 0.05 of rest.

    ## Actions
    0 pushes to the left, 1 to the right; there is no third.

    ## Rewards
    One feature, 1 for every step, also the last: with the reward `[1.0]` the return is the number of steps.

    ## Start and end
    Terminated beyond 2.4 to either side or 12 degrees; truncated after `horizon` steps, 500 in CartPole-v1.

    ## Arguments
    discount: required, since Gymnasium names none; 0.99 is usual. The equations are Gymnasium's (Barto, Sutton and
    Anderson 1983, with the Euler integrator), in the precision that JAX has where it is called.
    """

    discount: float
    horizon: int | None = 500

    def __post_init__(self) -> None:
        if not 0 <= self.discount <= 1:
            raise InputError(f"discount={self.discount!r} should be a number from 0 to 1.")
        if self.horizon is not None and self.horizon < 1:
            raise InputError(f"horizon={self.horizon!r} should be a whole number of steps, at least 1, or None.")

    @property
    def n_actions(self) -> int:
        return 2

    @property
    def observation_names(self) -> tuple[str, ...]:
        return "position", "velocity", "angle", "angular velocity"

    @property
    def feature_names(self) -> tuple[str, ...]:
        return ("step",)

    def reset(self, key: Array, n: int) -> tuple[CartPoleState, Float[Array, "n 4"]]:
        """n carts near rest."""
        variables = jax.random.uniform(key, (n, 4), minval=-FIRST, maxval=FIRST)
        return CartPoleState(variables, jnp.zeros(n, dtype=int)), variables

    def step(self, state: CartPoleState, action: Int[Array, " n"], key: Array) -> Outcome:
        """One push of every cart; nothing is random, so `key` is not used."""
        variables = state.variables + SECONDS * _rates(state.variables, jnp.where(action == 1, FORCE, -FORCE))
        step = state.step + 1
        terminated = (jnp.abs(variables[:, 0]) > FARTHEST) | (jnp.abs(variables[:, 2]) > STEEPEST)
        late = jnp.zeros_like(terminated) if self.horizon is None else step >= self.horizon
        features = jnp.ones((len(step), 1), variables.dtype)
        return Outcome(CartPoleState(variables, step), variables, features, terminated, late & ~terminated, {})


def _rates(variables: Float[Array, "n 4"], force: Float[Array, " n"]) -> Float[Array, "n 4"]:
    """Time derivatives of the four variables."""
    _, velocity, angle, turning = variables.T
    cosine, sine = jnp.cos(angle), jnp.sin(angle)
    push = (force + POLE_MASS * HALF_LENGTH * turning**2 * sine) / TOTAL_MASS
    inertia = HALF_LENGTH * (4 / 3 - POLE_MASS * cosine**2 / TOTAL_MASS)
    angular = (GRAVITY * sine - cosine * push) / inertia
    linear = push - POLE_MASS * HALF_LENGTH * angular * cosine / TOTAL_MASS
    return jnp.stack([velocity, linear, turning, angular], axis=1)
