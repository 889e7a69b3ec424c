"""The likelihood of BIRL: an expert whose actions follow the optimal action values (Ramachandran and Amir 2007).

With Q*(s, a) of the reward R (`optimal_values`) and an inverse temperature alpha:

    "policy":        p(a | s, R) = exp(alpha Q*(s, a)) / sum_b exp(alpha Q*(s, b))               (a Boltzmann policy)
    "joint":         p(s, a | R) = exp(alpha Q*(s, a)) / sum_{s', b} exp(alpha Q*(s', b))         (Eq. 2 of the paper)
    "unnormalized":  exp(alpha Q*(s, a)), as PolicyWalk was published: its constant depends on R and was left out

The joint form says that experts are rather *found* in states of high value; it sums over all states where anybody acts.
"""

from dataclasses import dataclass, field
from typing import Literal, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from kdbirl.methods.optimal_values import OptimalValues
from kdbirl.precision import float64

Form = Literal["policy", "joint", "unnormalized"]
FORMS: tuple[Form, ...] = get_args(Form)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class BIRLLikelihood:
    """sum_i log p(expert row i | R). `visits (n, A)` counts the expert's rows in each live state and action.

    A table of counts has the same shape for every expert of a world, so a sampler is compiled once.
    """

    optimal_values: OptimalValues
    alpha: Float[Array, ""]
    visits: Float[Array, "n A"]
    form: Form = field(metadata={"static": True})

    @classmethod
    @float64
    def of(
        cls, optimal_values: OptimalValues, alpha: float, visits: Float[np.ndarray, "n A"], form: Form
    ) -> "BIRLLikelihood":
        """From NumPy arrays."""
        return cls(optimal_values, jnp.asarray(alpha, dtype=float), jnp.asarray(visits, dtype=float), form)

    def __call__(self, reward: Float[Array, " q"]) -> Float[Array, ""]:
        return self.of_action_values(self.optimal_values(reward))

    def of_action_values(self, q_values: Float[Array, "n A"]) -> Float[Array, ""]:
        """The log likelihood where Q* is known already."""
        return jnp.sum(self.visits * self.log_densities(q_values))

    def log_densities(self, q_values: Float[Array, "n A"]) -> Float[Array, "n A"]:
        """log p of a row in each state with each action."""
        scaled = self.alpha * q_values
        if self.form == "policy":
            return jax.nn.log_softmax(scaled, axis=1)
        if self.form == "joint":
            return scaled - jax.nn.logsumexp(scaled)
        return scaled

    def pointwise(self, reward: Float[Array, " q"]) -> Float[Array, " pairs"]:
        """log p of every pair of state and action, by state; the method takes those that the expert shows."""
        return self.log_densities(self.optimal_values(reward)).reshape(-1)
