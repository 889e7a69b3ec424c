"""Rules that choose the bandwidths h (features, one per kernel part) and h' (rewards) from the training tasks alone.

All bandwidths are standard deviations. Rules over pairs of rows use every pair up to `ROWS_FOR_PAIRS` rows and a seeded
subsample of that size above.

| rule        | h (features)                                   | h' (rewards)                                |
|-------------|------------------------------------------------|---------------------------------------------|
| `paper`     | sd of the distances between rows i < j         | sd of the reward distances of rows i < j    |
| `median`    | median distance between rows i < j             | median distance between distinct tasks      |
| `silverman` | s (4/(d+2))^(1/(d+4)) m^(-1/(d+4)), m rows     | the same with K tasks and q parameters      |
| `scott`     | s m^(-1/(d+4))                                 | the same with K tasks and q parameters      |
| `cv`        | likelihood of whole tasks left out (`cross_validation.py`)                                    |

s is the root of the mean variance over columns, so that one number serves all of them. The paper's rule sets its h, a
variance in exp(-d^2/2h), to the *variance* of the distances: hence the standard deviation here.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from kdbirl._jax import float64
from kdbirl.errors import InputError, did_you_mean
from kdbirl.likelihood.ckde import CKDE
from kdbirl.likelihood.cross_validation import cross_validated
from kdbirl.likelihood.distances import Distance, distance_name, euclidean, manhattan
from kdbirl.likelihood.kernels import Categorical, Part
from kdbirl.likelihood.sums import order_by_content
from kdbirl.random_streams import stream

ROWS_FOR_PAIRS = 3000
ROUNDING = 1e-12  # widths and distances below this part of the largest value are zero
RULES = ("paper", "silverman", "scott", "median", "cv")
FeatureRule = Callable[[CKDE, np.ndarray, Part], float]
RewardRule = Callable[[CKDE], float]


@dataclass(frozen=True)
class Bandwidths:
    """The bandwidths in use, the rule that chose them, and what the user should know about the choice."""

    h: Float[np.ndarray, " parts"]
    h_reward: float
    rule: str
    notes: tuple[str, ...] = ()


def given(h: object, h_reward: object, parts: Sequence[Part]) -> Bandwidths:
    """Bandwidths that the user gives as numbers; h may be one number, one per kernel part, or a dict by group."""
    groups = [part.group for part in parts]
    if isinstance(h, dict):
        if set(h) != set(groups):
            raise InputError(f"The bandwidths h = {h} must name the kernel's parts: {', '.join(groups)}.")
        values = [h[g] for g in groups]
    else:
        numbers = _numbers(h)
        values = list(np.broadcast_to(numbers, len(parts)) if numbers.ndim == 0 else numbers)
    if len(values) != len(parts):
        raise InputError(f"h has {len(values)} values, but the kernel has {len(parts)} parts: {', '.join(groups)}.")
    widths = np.asarray([_positive("h", value) for value in values])
    return Bandwidths(widths, _positive("h_reward", h_reward), "given")


def _numbers(value: object) -> np.ndarray:
    try:
        return np.asarray(value, dtype=float)
    except (TypeError, ValueError):
        raise InputError(f"A bandwidth must be a number (a standard deviation), not {value!r}.") from None


def _positive(name: str, value: object) -> float:
    numbers = _numbers(value)
    if numbers.ndim:
        raise InputError(f"The bandwidth {name} must be one number, not {value!r}.")
    number = float(numbers)
    if not (np.isfinite(number) and number > 0):
        raise InputError(
            f"The bandwidth {name} = {number:g} must be a positive, finite number: it is a standard deviation in the "
            "units of the distance."
        )
    return number


def by_rule(rule: str, ckde: CKDE, seed: int = 0) -> Bandwidths:
    """Bandwidths by a rule that needs only the bank."""
    if rule == "cv":
        start = by_rule("median", ckde, seed)
        h, h_reward, notes = cross_validated(ckde, start.h, start.h_reward, seed)
        return Bandwidths(h, h_reward, "cv", notes)
    if rule not in FEATURE_RULES:
        raise InputError(f"There is no bandwidth rule called {rule!r}.{did_you_mean(rule, RULES)}")
    rows = sampled_rows(ckde, ROWS_FOR_PAIRS, seed)
    widths = [_width(rule, ckde, rows, part) for part in ckde.kernel.parts]
    h_reward = _nonzero(REWARD_RULES[rule](ckde), "rewards", rule)
    notes = () if len(rows) == ckde.weights.sum() else (f"{rule}: distances between {len(rows)} sampled rows",)
    return Bandwidths(np.asarray(widths), h_reward, rule, notes if rule in ("paper", "median") else ())


def _width(rule: str, ckde: CKDE, rows: np.ndarray, part: Part) -> float:
    if isinstance(part.kernel, Categorical):
        return 1.0  # labels have no scale: it is ignored
    return _nonzero(FEATURE_RULES[rule](ckde, rows, part), part.group, rule)


def sampled_rows(ckde: CKDE, size: int, seed: int) -> np.ndarray:
    """Rows of the bank as they were before identical ones were collapsed: all, or a seeded sample of that size."""
    total = round(float(ckde.weights.sum()))
    if total <= size:
        return np.repeat(ckde.rows, ckde.weights.astype(int), axis=0)
    order = order_by_content(ckde.rows, ckde.task_rewards[ckde.tasks], seed)
    places = np.sort(np.random.default_rng(stream(seed, "rows for pairs")).choice(total, size, replace=False))
    return ckde.rows[order[np.searchsorted(np.cumsum(ckde.weights[order]), places, side="right")]]


def _nonzero(width: float, what: str, rule: str) -> float:
    if width > 0 and np.isfinite(width):
        return width
    raise InputError(
        f"The rule {rule!r} gives a bandwidth of {width:g} for {what}: all distances are the same there. "
        "Give the bandwidths as numbers, bandwidth=(h, h_reward), or choose another rule."
    )


@float64
def pair_distances(rows: Float[np.ndarray, "n d"], distance: Distance, with_itself: bool = False) -> np.ndarray:
    """The distances of all pairs i < j, or i <= j."""
    square = np.asarray(_all_distances(jnp.asarray(rows), distance))
    return square[np.triu_indices(len(rows), k=0 if with_itself else 1)]


@partial(jax.jit, static_argnames="distance")
def _all_distances(rows: Float[Array, "n d"], distance: Distance) -> Float[Array, "n n"]:
    distances: Array = jax.lax.map(lambda x: jax.vmap(distance, (None, 0))(x, rows), rows)
    return distances


def _distance(part: Part) -> Distance:
    return getattr(part.kernel, "distance", euclidean)


def _paper(ckde: CKDE, rows: np.ndarray, part: Part) -> float:
    distances = pair_distances(rows[:, list(part.columns)], _distance(part))
    return _spread(distances, np.ones(len(distances)))


def _spread(distances: np.ndarray, pairs: np.ndarray) -> float:
    """Population sd of distances that occur `pairs` times each."""
    if not pairs.sum():
        return 0.0
    mean = np.average(distances, weights=pairs)
    return _unless_rounding(float(np.sqrt(np.average((distances - mean) ** 2, weights=pairs))), distances)


def _unless_rounding(width: float, values: np.ndarray) -> float:
    """0 for a width that is nothing but rounding of these values: equal numbers differ by 1e-16 of their size."""
    return width if width > ROUNDING * np.abs(values).max() else 0.0


def _median(ckde: CKDE, rows: np.ndarray, part: Part) -> float:
    return _positive_median(pair_distances(rows[:, list(part.columns)], _distance(part)))


def _positive_median(distances: np.ndarray) -> float:
    """The median, or, where more than half of the pairs coincide, the median of the others."""
    if not len(distances):
        return 0.0
    smallest = ROUNDING * distances.max()  # the cosine of equal rows may differ from one in the last digit
    positive = distances[distances > smallest]
    middle = float(np.median(distances))
    return middle if middle > smallest or not len(positive) else float(np.median(positive))


def _pooled_spread(columns: np.ndarray, weights: np.ndarray | None, distance: Distance) -> float:
    if distance not in (euclidean, manhattan):
        raise InputError(
            f"silverman and scott need a distance in the units of the columns, not {distance_name(distance)}; "
            "use median, cv or numbers."
        )
    mean = np.average(columns, axis=0, weights=weights)
    variance = np.average((columns - mean) ** 2, axis=0, weights=weights).mean()
    return _unless_rounding(float(np.sqrt(variance)), columns)


def _normal_reference(n: float, d: int, factor: float) -> float:
    return float((factor / n) ** (1 / (d + 4)))


def _reference_rule(factor: Callable[[int], float]) -> tuple[FeatureRule, RewardRule]:
    """A normal-reference rule for features (n = rows) and for rewards (n = tasks)."""

    def features(ckde: CKDE, rows: np.ndarray, part: Part) -> float:
        columns, d = ckde.rows[:, list(part.columns)], len(part.columns)
        spread = _pooled_spread(columns, ckde.weights, _distance(part))
        return spread * _normal_reference(ckde.weights.sum(), d, factor(d))

    def rewards(ckde: CKDE) -> float:
        q = ckde.task_rewards.shape[1]
        distance = getattr(ckde.reward_kernel, "distance", euclidean)
        return _pooled_spread(ckde.task_rewards, None, distance) * _normal_reference(float(ckde.n_tasks), q, factor(q))

    return features, rewards


def _paper_reward(ckde: CKDE) -> float:
    """Population sd over row pairs i < j: n_k n_l pairs between two tasks, n_k (n_k - 1)/2 within one."""
    counts = ckde.rows_per_task
    first, second = np.triu_indices(ckde.n_tasks)
    pairs = np.where(first == second, counts[first] * (counts[first] - 1) / 2, counts[first] * counts[second])
    distance = getattr(ckde.reward_kernel, "distance", euclidean)
    return _spread(pair_distances(ckde.task_rewards, distance, with_itself=True), pairs)


def _median_reward(ckde: CKDE) -> float:
    return _positive_median(pair_distances(ckde.task_rewards, getattr(ckde.reward_kernel, "distance", euclidean)))


_silverman = _reference_rule(lambda d: 4 / (d + 2))
_scott = _reference_rule(lambda d: 1.0)
FEATURE_RULES: dict[str, FeatureRule] = {
    "paper": _paper,
    "median": _median,
    "silverman": _silverman[0],
    "scott": _scott[0],
}
REWARD_RULES: dict[str, RewardRule] = {
    "paper": _paper_reward,
    "median": _median_reward,
    "silverman": _silverman[1],
    "scott": _scott[1],
}


def parse_bandwidth(text: str) -> str | tuple[float, float]:
    """A rule's name, or `(h, h_reward)` from the command line's `0.5,0.4`."""
    if text.strip().lower() in ("loto", *RULES):
        return text.strip().lower()
    try:
        first, second = (float(number) for number in text.split(","))
    except ValueError:
        near = did_you_mean(text, ("loto", *RULES))
        raise InputError(
            f"The bandwidth {text!r} is neither a rule nor two numbers h,h_reward such as 0.5,0.4.{near}"
        ) from None
    return _positive("h", first), _positive("h_reward", second)
