"""Chebyshev nodes that stand for the rows of a box: points with (signed) weights that keep the rows' moments.

Sums of every function of the row that is a polynomial of degree below `ORDER`, the nodes along a side, in each column
stay what they were. Along columns where a box has no length there is one node.
"""

import numpy as np
from jaxtyping import Float, Float32, Int


def chebyshev_nodes(half: Float[np.ndarray, "3"]) -> Float[np.ndarray, "nodes 3"]:
    """Chebyshev nodes of a box around zero, the first column's fastest."""
    sides = [side * _nodes_of_a_side() if side > 0 else np.zeros(1) for side in half]
    z, y, x = np.meshgrid(*reversed(sides), indexing="ij")
    return np.stack([x.reshape(-1), y.reshape(-1), z.reshape(-1)], axis=1)


def _nodes_of_a_side() -> Float[np.ndarray, " p"]:
    from kdbirl.likelihood.box_loops import ORDER

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
    from kdbirl.likelihood.box_loops import ORDER, moments

    found = np.zeros((len(first), *(ORDER if side > 0 else 1 for side in reversed(half))))
    moments(points, first, last, half, found)
    degree = np.arange(ORDER)
    lagrange = (
        np.cos(degree[:, None] * np.arccos(_nodes_of_a_side())[None]) * np.where(degree, 2.0, 1.0)[:, None] / ORDER
    )
    for size in found.shape[1:]:  # of z, y and x; each turn transforms the first axis of the moments, and puts it last
        found = np.tensordot(found, lagrange if size > 1 else np.ones((1, 1)), axes=(1, 0))
    return found.reshape(len(found), -1)
