"""Bandwidth rules against the formulas, on the raw rows (before identical ones are collapsed)."""

from dataclasses import replace
from itertools import combinations

import jax.numpy as jnp
import numpy as np
import pytest

from kdbirl.errors import InputError
from kdbirl.likelihood import bandwidths, cross_validation
from kdbirl.likelihood.bandwidths import by_rule, given, parse_bandwidth, sampled_rows
from kdbirl.likelihood.ckde import CKDE
from kdbirl.likelihood.distances import DISTANCES
from kdbirl.likelihood.kernels import Categorical, Part, ProductKernel, on_columns

from . import direct_sum
from .problems import GROUPS, NAMES, Problem, estimator, named, problem

GAUSSIAN = named("gaussian", "euclidean")
COMPUTED = ("paper", "median", "silverman", "scott")


def pairs(points: np.ndarray, distance: str) -> np.ndarray:
    """d(x_i, x_j) for i < j."""
    return np.array([direct_sum.DISTANCES[distance](x, y) for x, y in combinations(points, 2)])


def positive_median(distances: np.ndarray) -> float:
    """The median; that of the positive ones where more than half are zero."""
    return float(np.median(distances) or np.median(distances[distances > 0]))


def by_hand(rule: str, of: Problem, distance: str, columns: tuple[int, ...]) -> tuple[float, float]:
    """(h, h') from the raw rows."""
    rows = of.rows[:, list(columns)]
    if rule == "paper":
        return float(np.std(pairs(rows, distance))), float(np.std(pairs(of.rewards[of.tasks], distance)))
    if rule == "median":
        return positive_median(pairs(rows, distance)), positive_median(pairs(of.rewards, distance))
    results = []
    for points in (rows, of.rewards):
        n, d = points.shape
        factor = (4 / (d + 2)) ** (1 / (d + 4)) if rule == "silverman" else 1.0
        results.append(float(np.sqrt(points.var(axis=0).mean()) * factor * n ** (-1 / (d + 4))))
    return results[0], results[1]


@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("rule", COMPUTED)
def test_rules_against_formulas(rule: str, distance: str) -> None:
    """Unequal tasks with repeated rows: a rule that forgot the weights, or took tasks for rows, would differ."""
    of, kernel = problem(seed=21, sizes=(9, 2, 4)), named("laplace", distance)
    ckde = estimator(of, kernel, kernel)
    assert len(ckde.rows) < len(of.rows)
    if rule in ("silverman", "scott") and distance in ("cosine", "dot"):
        with pytest.raises(InputError, match=f"need a distance in the units of the columns, not {distance}"):
            by_rule(rule, ckde)
        return
    result = by_rule(rule, ckde)
    h, h_reward = by_hand(rule, of, distance, (0, 1, 2))
    assert result.h == pytest.approx([h], rel=1e-12)
    assert result.h_reward == pytest.approx(h_reward, rel=1e-12)
    assert result.rule == rule
    assert result.notes == ()


@pytest.mark.parametrize("rule", COMPUTED)
def test_each_factor_of_a_product_has_its_own(rule: str) -> None:
    of = problem(seed=22)
    kernel = ProductKernel(action=Categorical(0.1), s1=named("gaussian", "manhattan"), s0="laplace")
    result = by_rule(rule, estimator(of, kernel, GAUSSIAN))
    expected = [1.0, by_hand(rule, of, "manhattan", (1,))[0], by_hand(rule, of, "euclidean", (0,))[0]]
    assert result.h == pytest.approx(expected, rel=1e-12)  # labels have no bandwidth: 1 stands for it


def test_a_users_distance_is_used_by_the_rules() -> None:
    of = problem(seed=23)
    kernel = named("gaussian", "euclidean")
    own = type(kernel)("gaussian", lambda x, y: 3.0 * jnp.max(jnp.abs(x - y)))
    result = by_rule("median", estimator(of, own, own))
    expected = [3.0 * max(abs(x - y)) for x, y in combinations(of.rows, 2)]
    assert result.h == pytest.approx([np.median(expected)])


def test_the_paper_rule_of_two_tasks_is_not_zero() -> None:
    """Over tasks the variance of one distance is zero; over rows it is that of a coin: 0 or |R_1 - R_2|."""
    of = problem(seed=24, sizes=(6, 6))
    distance = np.linalg.norm(of.rewards[0] - of.rewards[1])
    share = 36 / 66
    expected = distance * np.sqrt(share * (1 - share))
    assert by_rule("paper", estimator(of, GAUSSIAN, GAUSSIAN)).h_reward == pytest.approx(expected, rel=1e-12)


def test_the_median_where_most_rows_coincide() -> None:
    """More than half of the pairs at distance zero: the median of the others."""
    rows = np.repeat([[0.0, 0, 1], [3.0, 4, 1]], [9, 1], axis=0)
    of = Problem(rows, np.arange(10) % 2, np.array([[0.0, 0], [0, 2]]), rows, rows[:, :2])
    result = by_rule("median", estimator(of, GAUSSIAN, GAUSSIAN))
    assert result.h == pytest.approx([5.0])
    assert result.h_reward == pytest.approx(2.0)


def test_the_median_of_cosines_where_most_rows_coincide() -> None:
    """1 - cos of equal rows is 0 or 1e-16: neither is a bandwidth."""
    rows = np.repeat([[0.1, 0.7, 0.3], [0.3, 0.2, 1.1]], [9, 1], axis=0)
    of = Problem(rows, np.arange(10) % 2, np.array([[0.1, 0.7], [0.3, 0.2]]), rows, rows[:, :2])
    result = by_rule("median", estimator(of, named("gaussian", "cosine"), GAUSSIAN))
    assert result.h == pytest.approx([direct_sum.DISTANCES["cosine"](rows[0], rows[-1])])


def equal_rewards(of: Problem) -> Problem:
    """All tasks with the same reward, one that rounds."""
    return Problem(of.rows, of.tasks, np.full((3, 2), 0.1) / 3, of.expert, of.asked)


def equal_rows(of: Problem) -> Problem:
    """All rows equal, to a value that rounds."""
    return Problem(np.full((len(of.rows), 3), 0.1) / 3, of.tasks, of.rewards, of.expert, of.asked)


@pytest.mark.parametrize("rule", [*COMPUTED, "cv"])
@pytest.mark.parametrize(("spoil", "what"), [(equal_rewards, "rewards"), (equal_rows, "all")])
def test_no_spread_is_refused_with_a_sentence(rule: str, spoil, what: str) -> None:
    named_rule = "median" if rule == "cv" else rule  # where cv starts
    with pytest.raises(InputError, match=f"The rule '{named_rule}' gives a bandwidth of 0 for {what}"):
        by_rule(rule, estimator(spoil(problem(seed=25)), GAUSSIAN, GAUSSIAN))


def test_equal_distances_are_no_spread_for_the_paper_rule() -> None:
    """One row per task and one-hot rewards: all distances are sqrt(2), give or take a rounding."""
    rows, tasks = np.random.default_rng(0).normal(size=(7, 2)), np.arange(7)
    kernel = on_columns(GAUSSIAN, ("x", "y"), {})
    assert np.std(pairs(0.1 * np.eye(7), "euclidean")) > 0  # that of equal numbers!
    for size in (1.0, 0.1, 1 / 3):
        with pytest.raises(InputError, match="for rewards: all distances are the same"):
            by_rule("paper", CKDE.from_rows(rows, tasks, size * np.eye(7), kernel, GAUSSIAN))
        one_hot = on_columns(GAUSSIAN, tuple("abcdefg"), {})
        with pytest.raises(InputError, match="for all: all distances are the same"):
            by_rule("paper", CKDE.from_rows(size * np.eye(7), tasks, rows, one_hot, GAUSSIAN))


def test_a_single_row_or_task_is_refused_with_a_sentence() -> None:
    kernel = on_columns(GAUSSIAN, ("x",), {})
    ckde = CKDE.from_rows(np.ones((1, 1)), np.zeros(1, int), np.ones((1, 1)), kernel, GAUSSIAN)
    for rule in COMPUTED:
        with pytest.raises(InputError, match="gives a bandwidth of 0"):
            by_rule(rule, ckde)


def test_unknown_rules_name_the_nearest() -> None:
    ckde = estimator(problem(), GAUSSIAN, GAUSSIAN)
    with pytest.raises(InputError, match=r"no bandwidth rule called 'silvermann'\. Did you mean 'silverman'"):
        by_rule("silvermann", ckde)


@pytest.mark.parametrize("rule", ["paper", "median"])
def test_many_rows_are_sampled_with_a_seed(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    of = problem(seed=26, sizes=(100, 50))
    ckde = estimator(of, GAUSSIAN, GAUSSIAN)
    full = by_rule(rule, ckde)
    monkeypatch.setattr(bandwidths, "ROWS_FOR_PAIRS", 60)
    first, again, other = (by_rule(rule, ckde, seed) for seed in (1, 1, 2))
    rows = sampled_rows(ckde, 60, seed=1)
    assert len(rows) == 60
    assert {tuple(row) for row in rows} <= {tuple(row) for row in of.rows}
    summary = np.std if rule == "paper" else np.median
    assert first.h == pytest.approx([summary(pairs(rows, "euclidean"))], rel=1e-12)
    assert first.h == again.h
    assert first.h != other.h
    assert full.notes == ()
    assert first.notes == (f"{rule}: distances between 60 sampled rows",)
    assert first.h_reward == full.h_reward  # rewards are never sampled
    assert first.h == pytest.approx(full.h, rel=0.25)


@pytest.mark.parametrize("rule", ["paper", "median", "cv"])
def test_samples_of_rows_do_not_depend_on_the_order_of_tasks_and_rows(
    rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows and tasks that occur several times are among them."""
    monkeypatch.setattr(bandwidths, "ROWS_FOR_PAIRS", 60)
    monkeypatch.setattr(cross_validation, "BANK_ROWS", 80)
    monkeypatch.setattr(cross_validation, "SCORED_ROWS", 40)
    of, rng = problem(seed=27, sizes=(60, 50, 40)), np.random.default_rng(0)
    order, place = rng.permutation(len(of.rows)), np.array([2, 0, 1])
    other = replace(of, rows=of.rows[order], tasks=place[of.tasks[order]], rewards=of.rewards[np.argsort(place)])
    found = [by_rule(rule, estimator(one, GAUSSIAN, GAUSSIAN), seed=4) for one in (of, other)]
    np.testing.assert_allclose(found[1].h, found[0].h, rtol=1e-12)
    assert found[1].h_reward == pytest.approx(found[0].h_reward, rel=1e-12)
    if rule == "cv":  # its candidates are far apart: the rows themselves
        scored = [cross_validation._folds(estimator(one, GAUSSIAN, GAUSSIAN), 4).scored for one in (of, other)]
        np.testing.assert_array_equal(scored[1], scored[0])


def test_no_row_is_sampled_twice() -> None:
    """A pair of a row with itself has no distance: it would make the bandwidths smaller."""
    rows = np.arange(100.0)[:, None]
    ckde = CKDE.from_rows(rows, np.arange(100) % 2, np.eye(2), on_columns(GAUSSIAN, ("x",), {}), GAUSSIAN)
    assert len(np.unique(sampled_rows(ckde, 90, seed=0))) == 90


def test_rows_are_sampled_as_often_as_they_occur() -> None:
    rows = np.repeat([[0.0], [1.0]], [900, 100], axis=0)
    ckde = CKDE.from_rows(rows, np.arange(1000) % 2, np.eye(2), on_columns(GAUSSIAN, ("x",), {}), GAUSSIAN)
    assert sampled_rows(ckde, 1000, seed=0).sum() == 100
    # hypergeometric with mean 20 and sd 3.8: outside 20 +- 19 (five sd) with probability 1e-6
    assert 1 <= sampled_rows(ckde, 200, seed=0).sum() <= 39


PARTS = [Part("state", (0,), GAUSSIAN), Part("action", (1,), GAUSSIAN)]


@pytest.mark.parametrize(
    ("h", "expected"),
    [
        (2, [2.0, 2.0]),
        (np.float32(0.5), [0.5, 0.5]),
        ([1, 3.0], [1.0, 3.0]),
        ({"action": 3, "state": 1e-4}, [1e-4, 3.0]),
    ],
)
def test_given_numbers(h: object, expected: list[float]) -> None:
    result = given(h, 0.25, PARTS)
    assert result.h.tolist() == expected
    assert result.h.dtype == np.float64
    assert (result.h_reward, result.rule, result.notes) == (0.25, "given", ())


@pytest.mark.parametrize(
    ("h", "h_reward", "message"),
    [
        (0.0, 1.0, "The bandwidth h = 0 must be a positive, finite number"),
        (-2.0, 1.0, "h = -2 must"),
        (np.nan, 1.0, "h = nan must"),
        (np.inf, 1.0, "h = inf must"),
        ([1.0, 0.0], 1.0, "h = 0 must"),
        ({"state": 1.0, "action": -1.0}, 1.0, "h = -1 must"),
        (1.0, 0.0, "h_reward = 0 must"),
        (1.0, -0.5, "h_reward = -0.5 must"),
        (1.0, np.nan, "h_reward = nan must"),
        (1.0, [1.0, 2.0], "h_reward must be one number"),
        (1.0, None, "h_reward = nan must"),
        (1.0, "wide", "must be a number .* not 'wide'"),
        ("wide", 1.0, "must be a number .* not 'wide'"),
        ([1.0, 2.0, 3.0], 1.0, "h has 3 values, but the kernel has 2 parts: state, action"),
        ([1.0], 1.0, "h has 1 values, but"),
        ([[1.0, 2.0], [1.0, 2.0]], 1.0, "h must be one number"),
        ({"state": 1.0}, 1.0, "must name the kernel's parts: state, action"),
        ({"state": 1.0, "action": 1.0, "x": 1.0}, 1.0, "must name the kernel's parts"),
        ({"state": [1.0, 2.0], "action": 1.0}, 1.0, "h must be one number"),
    ],
)
def test_given_mistakes(h: object, h_reward: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        given(h, h_reward, PARTS)


def test_groups_of_problems_are_those_of_the_kernel() -> None:
    kernel = on_columns(ProductKernel(state="gaussian", action="laplace"), NAMES, GROUPS)
    assert given({"action": 2.0, "state": 1.0}, 1.0, kernel.parts).h.tolist() == [1.0, 2.0]


def test_a_rule_or_two_numbers_from_the_command_line():
    assert parse_bandwidth(" LOTO ") == "loto"
    assert parse_bandwidth("median") == "median"
    assert parse_bandwidth("0.5, 0.4") == (0.5, 0.4)
    with pytest.raises(InputError, match="Did you mean 'median'"):
        parse_bandwidth("medain")
