"""Chebyshev nodes that stand for the rows of a box: points with (signed) weights that keep the rows' moments.

Sums of every function of the row that is a polynomial of degree below `ORDER` in each column stay what they were.
"""

import numpy as np
from jaxtyping import Float, Float32, Int
from numpy.polynomial import hermite_e

ORDER = 8  # nodes along a side


def chebyshev_nodes(half: Float[np.ndarray, "3"]) -> Float[np.ndarray, "nodes 3"]:
    """Chebyshev nodes of a box around zero, the first column's fastest; a single one where it has no length."""
    sides = [side * _nodes_of_a_side() if side > 0 else np.zeros(1) for side in half]
    z, y, x = np.meshgrid(*reversed(sides), indexing="ij")
    return np.stack([x.reshape(-1), y.reshape(-1), z.reshape(-1)], axis=1)


def _nodes_of_a_side() -> Float[np.ndarray, " p"]:
    return np.cos(np.pi * (np.arange(ORDER) + 0.5) / ORDER)


def node_weights(
    points: Float32[np.ndarray, "4 points"],
    first: Int[np.ndarray, " cells"],
    last: Int[np.ndarray, " cells"],
    half: Float[np.ndarray, "3"],
) -> Float[np.ndarray, "cells nodes"]:
    """Weights of the nodes for the points (x, y, z, weight) of some cells: sums of products of Lagrange's polynomials.

    That of node t is (1 + 2 sum over q of T_q(t) T_q(y)) / p, so they come from the cells' moments of T_0 to T_p-1.
    """
    from kdbirl.likelihood.box_loops import moments

    found = np.zeros((len(first), *(ORDER if side > 0 else 1 for side in half[:0:-1]), ORDER))
    moments(points, first, last, half, found)
    degree = np.arange(ORDER)
    lagrange = (
        np.cos(degree[:, None] * np.arccos(_nodes_of_a_side())[None]) * np.where(degree, 2.0, 1.0)[:, None] / ORDER
    )
    for size in found.shape[1:]:  # of z, y and x; each turn transforms the first axis of the moments, and puts it last
        found = np.tensordot(found, lagrange if size > 1 else np.ones((1, 1)), axes=(1, 0))
    return found.reshape(len(found), -1)


def extremes_of_derivative() -> tuple[Float[np.ndarray, " z"], Float[np.ndarray, " z"]]:
    """Where the `ORDER`-th derivative of exp(-t^2/2), He(t) exp(-t^2/2), has extremes for t >= 0, and their size."""
    he = [0.0] * ORDER + [1.0]
    places = hermite_e.hermeroots([0.0, *he])
    places = places[places > -1e-9].clip(0.0)
    return places, np.abs(hermite_e.hermeval(places, he)) * np.exp(-0.5 * places**2)
