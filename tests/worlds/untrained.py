"""A weight-conditioned policy that nobody trained: it acts, which is enough where its quality does not matter."""

import jax
import jax.numpy as jnp
import numpy as np

from kdbirl._jax import single_precision
from kdbirl.worlds.sepsis.deep_q import known_horizon
from kdbirl.worlds.sepsis.q_episodes import Scales
from kdbirl.worlds.sepsis.q_network import ActionValueNetwork
from kdbirl.worlds.sepsis.q_policy import ConditionedQ, Learning, LearntValues


@single_precision
def untrained(simulator, centre=0.0, spread=1.0, seed=0, states=None):
    """Q of random weights for the simulator's observations, features and actions."""
    d, q = len(simulator.observation_names), len(simulator.feature_names)
    limit = known_horizon(simulator.discount, simulator.horizon)
    network = ActionValueNetwork(d + q, (16, 8), simulator.n_actions, q, 20.0, jax.random.key(seed), limit)
    scales = Scales(jnp.full(d, centre), jnp.full(d, spread), jnp.eye(q))
    names = tuple(simulator.observation_names), tuple(simulator.feature_names)
    learning = Learning(False, "Not trained.", 0, 0, (0.0, 1.0), 1.0, 0.0, float(np.float32(0.1)))
    values = LearntValues(network, scales, *names, simulator.n_actions, states)
    return ConditionedQ(learning, values, np.linspace(0.5, 2.0, q))
