"""Replay memory: a ring of past transitions, as arrays that a compiled loop can carry."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int


class Transitions(NamedTuple):
    """Rows (s, t, a, phi, s', ended), t the step from 0. Where the horizon is not known to the network, a truncated
    episode has not `ended`: its last row has a next state like any other."""

    observation: Float[Array, "rows d"]
    step: Int[Array, " rows"]
    action: Int[Array, " rows"]
    features: Float[Array, "rows p"]
    following: Float[Array, "rows d"]
    ended: Bool[Array, " rows"]


class Replay(NamedTuple):
    """The last `capacity` transitions; `written` is how many were ever put in."""

    rows: Transitions
    written: Int[Array, ""]


def empty(rows: Transitions, capacity: int) -> Replay:
    """Room for `capacity` transitions of the kind of `rows`."""
    return Replay(jax.tree.map(lambda x: jnp.zeros((capacity, *x.shape[1:]), x.dtype), rows), jnp.zeros((), jnp.int32))


def add(replay: Replay, rows: Transitions) -> Replay:
    """Put n rows in place of the oldest. The capacity is a multiple of n, so that a block never wraps around."""
    n, capacity = len(rows.action), len(replay.rows.action)
    first = replay.written % capacity

    def put(ring: Array, block: Array) -> Array:
        return jax.lax.dynamic_update_slice_in_dim(ring, block, first, axis=0)

    return Replay(jax.tree.map(put, replay.rows, rows), replay.written + n)


def draw(replay: Replay, key: Array, n: int) -> Transitions:
    """n rows, evenly from those that there are, with replacement."""
    capacity = len(replay.rows.action)
    index = jax.random.randint(key, (n,), 0, jnp.minimum(replay.written, capacity))
    return jax.tree.map(lambda ring: ring[index], replay.rows)
