"""Whether training rewards lie so far outside the others that leaving them out tests nothing but extrapolation."""

import numpy as np
from jaxtyping import Float
from scipy.optimize import nnls
from scipy.spatial.distance import pdist

FAR = 0.3  # in median distances between rewards: the least far of 8 random points in a cube is below 0.22 from the rest


def distance_to_hull(point: Float[np.ndarray, " q"], others: Float[np.ndarray, "k q"]) -> float:
    """The distance of a point to the convex hull of others: min |sum_k a_k x_k - point| with a >= 0, sum a = 1."""
    scale = max(float(np.abs(others - point).max()), np.finfo(float).tiny)
    centred = (others - point) / scale
    sum_to_one = 1e4  # the weight of that equation in the least squares
    equations = np.vstack([centred.T, np.full(len(others), sum_to_one)])
    weights, _ = nnls(equations, np.append(np.zeros(len(point)), sum_to_one))
    return float(np.linalg.norm(weights / weights.sum() @ centred)) * scale


def all_extrapolate(rewards: Float[np.ndarray, "K q"]) -> bool:
    """Whether every reward is far from the hull of the others, as with one task per corner of a box."""
    distinct = np.unique(rewards, axis=0)
    if len(distinct) < 3:
        return True
    typical = float(np.median(pdist(distinct)))
    others = (np.delete(distinct, k, axis=0) for k in range(len(distinct)))
    return all(distance_to_hull(point, rest) > FAR * typical for point, rest in zip(distinct, others, strict=True))
