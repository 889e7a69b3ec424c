"""`cv` against a slow leave-one-task-out score, and on data whose best bandwidths are known."""

from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
import pytest

from kdbirl.errors import InputError
from kdbirl.likelihood import cross_validation
from kdbirl.likelihood.bandwidths import Bandwidths, by_rule
from kdbirl.likelihood.ckde import CKDE, log_reward_kernel
from kdbirl.likelihood.cross_validation import FACTORS, TIE, _folds, _log_sums, _scored_rows, _scores, _thinned
from kdbirl.likelihood.kernels import Categorical, Kernel, ProductKernel, UserKernel, on_columns

from .problems import named

GAUSSIAN = named("gaussian", "euclidean")


def bank(rows: np.ndarray, tasks: np.ndarray, rewards: np.ndarray, kernel: Kernel = GAUSSIAN, **options) -> CKDE:
    """Columns x0, x1, ... of which the last is also the group `action`, the others the group `state`."""
    d = rows.shape[1]
    groups = {"state": tuple(range(d - 1)), "action": (d - 1,)}
    return CKDE.from_rows(
        rows, tasks, rewards, on_columns(kernel, [f"x{i}" for i in range(d)], groups), GAUSSIAN, **options
    )


def smooth(seed: int, n_tasks: int = 9, per_task: int = 40) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows from N(R, 1) for rewards R spread over [-2, 2]: the density of a reward in between is known."""
    generator = np.random.default_rng(seed)
    rewards = np.linspace(-2, 2, n_tasks)[:, None] + 0.1 * generator.normal(size=(n_tasks, 1))
    tasks = np.repeat(np.arange(n_tasks), per_task)
    return rewards[tasks] + generator.normal(size=(len(tasks), 1)), tasks, rewards


def labels(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """One-hot codes of six labels, seen 15 times in each of eight tasks, more often near 5 R."""
    generator = np.random.default_rng(seed)
    rewards = generator.uniform(size=(8, 1))
    likely = np.exp(-((np.arange(6)[None] - 5 * rewards) ** 2) / 2)
    drawn = [generator.choice(6, 15, p=p / p.sum()) for p in likely]
    return np.eye(6)[np.concatenate(drawn)], np.repeat(np.arange(8), 15), rewards


def gaussian(x: np.ndarray, y: np.ndarray, h: float) -> np.ndarray:
    """K(x_i, y_j) not normalised."""
    return np.exp(-((x[:, None] - y[None]) ** 2).sum(axis=2) / (2 * h**2))


def density(h: float) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    """The kernel as a density of x."""
    return lambda x, y: gaussian(x, y, h) / (np.sqrt(2 * np.pi) * h) ** x.shape[1]


def probability(h: float, values: np.ndarray) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    """The kernel as a probability over the values that x can take."""
    return lambda x, y: gaussian(x, y, h) / gaussian(values, y, h).sum(axis=0)[None]


def direct_score(rows, tasks, rewards, kernel, h_reward: float, equal: bool = False) -> float:
    """The mean log density of each row under its task's reward, by the rows of the other tasks."""
    logs = []
    for k in np.unique(tasks):
        other = tasks != k
        near = gaussian(rewards[[k]], rewards[tasks[other]], h_reward)[0]
        near = near / np.bincount(tasks)[tasks[other]] if equal else near
        above, below = kernel(rows[~other], rows[other]) @ near, near.sum()
        with np.errstate(divide="ignore", invalid="ignore"):
            logs.append(np.where(above > 0, np.log(above / below), -np.inf))
    return float(np.concatenate(logs).mean())


def widest_best(scores: np.ndarray) -> tuple[int, int]:
    """Of the best candidates, equal up to the tie, the widest."""
    first, second = np.argwhere(scores >= np.nanmax(scores) - TIE)[-1]
    return int(first), int(second)


def chosen(result: Bandwidths, start: Bandwidths) -> tuple[int, int]:
    """The candidates that a result stands for."""
    factors = result.h[0] / start.h[0], result.h_reward / start.h_reward
    return tuple(int(np.argmin(np.abs(FACTORS - factor))) for factor in factors)


def test_the_slow_score_has_the_same_best() -> None:
    """Continuous rows, tasks of very unequal size, some rows repeated: weighting tasks equally changes the choice."""
    rows, tasks, rewards = smooth(seed=1, n_tasks=6, per_task=30)
    keep = np.r_[0:3, 30:60, 60:63, 90:120, 120:124, 150:155, 40:46]
    rows, tasks = rows[keep], tasks[keep]
    start = by_rule("median", bank(rows, tasks, rewards))
    best = {}
    for task_weights in ("rows", "equal"):
        kernels = [density(start.h[0] * factor) for factor in FACTORS]
        arguments = [(kernel, start.h_reward * factor) for kernel in kernels for factor in FACTORS]
        scores = [direct_score(rows, tasks, rewards, *pair, equal=task_weights == "equal") for pair in arguments]
        best[task_weights] = widest_best(np.reshape(scores, (len(FACTORS), -1)))
        result = by_rule("cv", bank(rows, tasks, rewards, task_weights=task_weights))
        assert chosen(result, start) == best[task_weights]
        assert (result.rule, result.notes) == (
            "cv",
            (f"cv: {len(rows)} rows scored, each by the tasks other than its own",),
        )
    assert best["rows"] != best["equal"]


@pytest.mark.parametrize("task_weights", ["rows", "equal"])
def test_scores_are_those_of_the_slow_one_where_tasks_have_a_single_row(task_weights: str) -> None:
    """One row, and one row twice, beside tasks of many: n_k is counted as it is."""
    rows, tasks, rewards = smooth(seed=2, n_tasks=5, per_task=12)
    keep = np.r_[0, 12:24, 24, 24, 36:48, 48]
    rows, tasks = rows[keep], tasks[keep]
    ckde = bank(rows, tasks, rewards, task_weights=task_weights)
    h, h_reward = by_rule("median", ckde).h, np.array([0.3, 2.0])
    folds = _folds(ckde, seed=0)
    found = _scores(folds, h, log_reward_kernel(GAUSSIAN, rewards[folds.held_out], rewards, h_reward))
    slow = [direct_score(rows, tasks, rewards, density(h[0]), width, task_weights == "equal") for width in h_reward]
    np.testing.assert_allclose(found, slow, rtol=1e-12)


@pytest.mark.parametrize("seed", [0, 1])
def test_labels_are_scored_as_probabilities(seed: int) -> None:
    """The density of labels grows without bound as h goes to 0; their probability does not."""
    rows, tasks, rewards = labels(seed)
    ckde = bank(rows, tasks, rewards)
    start = by_rule("median", ckde)

    def all_scores(kernel: Callable) -> np.ndarray:
        kernels = [kernel(start.h[0] * factor) for factor in FACTORS]
        return np.array([[direct_score(rows, tasks, rewards, k, start.h_reward * g) for g in FACTORS] for k in kernels])

    naive = all_scores(density)
    assert widest_best(naive)[0] == 0  # at the lower edge, however low that is
    result = by_rule("cv", ckde)
    assert chosen(result, start) == widest_best(all_scores(lambda h: probability(h, np.eye(6))))
    assert chosen(result, start)[0] > 0


def test_labels_beside_numbers_do_not_pull_h_down() -> None:
    """Four one-hot columns of which one never occurs, beside two continuous ones, under one Gaussian."""
    generator = np.random.default_rng(0)
    rewards = np.linspace(-1, 1, 9)[:, None]
    tasks = np.repeat(np.arange(9), 40)
    states = rewards[tasks] + generator.normal(size=(360, 2))
    actions = np.eye(4)[(states[:, 0] > 0).astype(int) + (states[:, 1] > 1)]
    numbers = by_rule("cv", bank(states, tasks, rewards)).h[0]
    both = by_rule("cv", bank(np.column_stack([states, actions]), tasks, rewards)).h[0]
    assert 1 / 1.6 < both / numbers < 1.6  # as independent densities they would differ by a factor of 5


@pytest.mark.parametrize("seed", [0, 1])
def test_bandwidths_are_near_the_best_for_new_tasks(seed: int) -> None:
    """2000 rows of new tasks: their mean log density within 0.03 of the best candidate's, h within a factor of 2."""
    rows, tasks, rewards = smooth(seed)
    ckde = bank(rows, tasks, rewards)
    start, result = by_rule("median", ckde), by_rule("cv", ckde)
    generator = np.random.default_rng(100 + seed)
    new = generator.uniform(-1.8, 1.8, size=(2000, 1))
    test = new + generator.normal(size=(2000, 1))
    scores = np.empty((len(FACTORS), len(FACTORS)))
    near = [gaussian(new, rewards, start.h_reward * factor) * 40.0 for factor in FACTORS]
    for i, factor in enumerate(FACTORS):
        kernel = density(start.h[0] * factor)(test, rows)
        per_task = np.stack([kernel[:, tasks == k].mean(axis=1) for k in range(9)], axis=1)
        with np.errstate(divide="ignore", invalid="ignore"):
            scores[i] = [np.log((per_task * w).sum(axis=1) / w.sum(axis=1)).mean() for w in near]
    scores = np.nan_to_num(scores, nan=-np.inf)
    ours, best = chosen(result, start), np.unravel_index(scores.argmax(), scores.shape)
    assert scores[ours] > scores.max() - 0.03
    assert abs(np.log2(FACTORS[ours[0]] / FACTORS[best[0]])) <= 1.0
    truth = -0.5 * np.log(2 * np.pi * np.e)
    assert truth - 0.15 < scores[ours] < truth + 0.05  # and the estimate is a good one: the entropy of N(R, 1)


def test_a_bound_that_was_hit_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, tasks, rewards = smooth(seed=5, n_tasks=6, per_task=20)
    ckde = bank(rows, tasks, rewards)
    assert not any("edge" in note for note in by_rule("cv", ckde).notes)
    monkeypatch.setattr(cross_validation, "FACTORS", np.array([2.0, 3.0, 4.0]))
    assert by_rule("cv", ckde).notes[1:] == (
        "cv: h ended at the edge of the search (2 times the median rule's)",
        "cv: h_reward ended at the edge of the search (2 times the median rule's)",
    )
    monkeypatch.setattr(cross_validation, "FACTORS", np.array([0.001, 0.1, 0.2]))
    assert by_rule("cv", ckde).notes[1:] == (
        "cv: h ended at the edge of the search (0.2 times the median rule's)",
        "cv: h_reward ended at the edge of the search (0.2 times the median rule's)",
    )


def test_two_tasks_leave_nothing_to_choose_h_reward_by() -> None:
    rows, tasks, rewards = smooth(seed=6, n_tasks=2, per_task=60)
    ckde = bank(rows, tasks, rewards)
    start, result = by_rule("median", ckde), by_rule("cv", ckde)
    scores = [direct_score(rows, tasks, rewards, density(start.h[0] * factor), start.h_reward) for factor in FACTORS]
    assert result.h[0] == pytest.approx(start.h[0] * FACTORS[np.argmax(scores)])
    assert result.h_reward == start.h_reward
    assert any("with two tasks nothing is left to choose h_reward by" in note for note in result.notes)
    assert not any("h_reward ended" in note for note in result.notes)


def test_large_banks_are_sampled_with_a_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, tasks, rewards = smooth(seed=7)
    ckde = bank(rows, tasks, rewards)
    full = by_rule("cv", ckde)
    monkeypatch.setattr(cross_validation, "SCORED_ROWS", 100)
    monkeypatch.setattr(cross_validation, "BANK_ROWS", 200)
    first, again = (by_rule("cv", ckde, seed=1) for _ in range(2))
    assert "cv: 100 rows scored" in first.notes[0]
    assert (first.h, first.h_reward) == (again.h, again.h_reward)
    assert abs(np.log2(first.h / full.h)) <= 1.5


def test_a_categorical_factor_needs_no_constant_and_keeps_its_width() -> None:
    rows, tasks, rewards = smooth(seed=8, n_tasks=5, per_task=20)
    with_labels = np.column_stack([rows, np.arange(100) % 3])
    kernel = ProductKernel(state="gaussian", action=Categorical(0.1))
    result = by_rule("cv", bank(with_labels, tasks, rewards, kernel))
    assert result.h[0] == by_rule("cv", bank(rows, tasks, rewards)).h[0]  # labels that say nothing change nothing
    assert result.h[1] == 1.0


def test_a_kernel_without_a_constant_is_refused_for_numbers_and_fine_for_labels() -> None:
    own = UserKernel(lambda u: jnp.exp(-(u**2) / 2))
    rows, tasks, rewards = smooth(seed=9, n_tasks=5, per_task=20)
    with pytest.raises(InputError, match="cv compares bandwidths, which needs the kernel's constant"):
        by_rule("cv", bank(rows, tasks, rewards, own))
    discrete = labels(seed=0)
    np.testing.assert_allclose(by_rule("cv", bank(*discrete, own)).h, by_rule("cv", bank(*discrete)).h)


def test_a_compact_kernel_is_given_a_width_that_reaches_every_row() -> None:
    rows, tasks, rewards = smooth(seed=10, n_tasks=5, per_task=20)
    ckde = bank(rows, tasks, rewards, named("epanechnikov", "euclidean"))
    result = by_rule("cv", ckde)
    for k in range(5):
        nearest = np.abs(rows[tasks == k][:, None] - rows[tasks != k][None]).min(axis=1)
        assert nearest.max() < result.h[0]


def test_a_compact_reward_kernel_is_given_a_width_that_reaches_another_task() -> None:
    """Rows that no other task explains, because none is within reach, are not explained at all."""
    rows, tasks, rewards = smooth(seed=11)
    ckde = CKDE.from_rows(rows, tasks, rewards, on_columns(GAUSSIAN, ("x",), {}), named("epanechnikov", "euclidean"))
    result = by_rule("cv", ckde)
    apart = np.abs(rewards - rewards.T) + np.where(np.eye(len(rewards)) > 0, np.inf, 0.0)
    assert by_rule("median", ckde).h_reward * FACTORS[0] < apart.min()  # too narrow for all of them is tried, too
    assert result.h_reward > apart.min(axis=1).max()


def test_scores_of_rows_far_from_all_others_do_not_underflow() -> None:
    terms = np.array([[-1000.0, -1001.0, -np.inf], [-np.inf, 900.0, 901.0], [-np.inf, -np.inf, -np.inf]])
    np.testing.assert_allclose(_log_sums(terms), np.logaddexp.reduce(terms, axis=1), rtol=1e-15)


def test_no_row_is_scored_twice_or_held_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row occurs as often as its weight says, and is sampled no more often than that."""
    weights = np.repeat([1.0, 3.0], 500)
    scored = np.bincount(_scored_rows(weights, np.arange(1000), seed=0), minlength=1000)
    assert scored.sum() == cross_validation.SCORED_ROWS
    assert (scored <= weights).all()
    assert scored[500:].sum() == pytest.approx(750, abs=60)  # hypergeometric with sd 9.7
    rows, tasks, rewards = smooth(seed=12)
    monkeypatch.setattr(cross_validation, "BANK_ROWS", 300)
    held, _, of_task = _thinned(bank(rows, tasks, rewards), seed=0)
    assert len(np.unique(held)) == 300
    assert (np.diff(of_task) >= 0).all()
