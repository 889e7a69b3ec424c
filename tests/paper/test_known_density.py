"""The world whose density is known, and the estimator on it, against integrals and sums written out."""

import numpy as np
import pytest
from paper.theory_lemma import DRAWS, estimated_density, expert, held_out_rewards, posterior_draws, quadrature
from paper.theory_world import BankPath, TwoTargets, bank_of, shrinking, task_rewards

from kdbirl.errors import InputError

WORLD = TwoTargets()
REWARDS = np.array([[0.3, 0.8], [0.9, 0.2], [0.5, 0.5]])


def test_the_density_integrates_to_one_on_the_grid():
    rows, area = quadrature()
    assert WORLD.density(rows, REWARDS).sum(axis=1) * area == pytest.approx(1.0, abs=1e-3)


@pytest.mark.parametrize("reward", REWARDS)
def test_the_target_is_the_optimum_of_the_expected_reward(reward):
    """E[-R_1 (s-1)^2 - R_2 (s+1)^2] for s = a + noise, by quadrature over the noise, is largest at a = g(R)."""
    places = np.linspace(-1, 1, 2001)
    nodes, weights = np.polynomial.hermite_e.hermegauss(8)
    s = places[:, None] + WORLD.spreads[0] * nodes
    expected = (-reward[0] * (s - 1) ** 2 - reward[1] * (s + 1) ** 2) @ weights
    assert places[expected.argmax()] == pytest.approx(WORLD.targets(reward[None])[0], abs=1e-3)


def test_drawn_rows_are_the_steady_state_of_the_control_problem():
    """A long walk, step by step, has the mean and spread of `draw` and of `spreads`; 5 standard errors."""
    rng, steps = np.random.default_rng(0), 20_000
    target = WORLD.targets(REWARDS[:1])[0]
    actions = target + WORLD.hand_noise * rng.standard_normal(steps)
    states = actions + WORLD.world_noise * rng.standard_normal(steps)  # the states that follow
    walk = np.stack([states[:-1], actions[1:]], axis=1)
    drawn = WORLD.draw(np.repeat(REWARDS[:1], steps, axis=0), rng)
    for rows in (walk, drawn):
        assert rows.mean(axis=0) == pytest.approx([target] * 2, abs=5 * WORLD.spreads[0] / np.sqrt(steps))
        assert rows.std(axis=0) == pytest.approx(WORLD.spreads, rel=5 / np.sqrt(2 * steps))
        assert abs(np.corrcoef(rows.T)[0, 1]) < 5 / np.sqrt(steps)


def test_l1_distances_are_the_integrals_that_they_stand_for():
    axis = np.linspace(-2.5, 2.5, 401)
    rows = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2)
    difference = WORLD.density(rows, REWARDS) - WORLD.density(rows, REWARDS[:1])
    integrals = np.abs(difference).sum(axis=1) * (axis[1] - axis[0]) ** 2
    assert WORLD.l1_distances(REWARDS, REWARDS[0]) == pytest.approx(integrals, abs=1e-4)


def test_an_equivalence_class_is_a_ray():
    assert WORLD.l1_distances(np.outer([0.5, 1.0, 3.0], REWARDS[0]), REWARDS[0]) == pytest.approx(0.0, abs=1e-12)
    assert WORLD.l1_distances(REWARDS[1:], REWARDS[0]).min() > 0.5


def test_task_rewards_are_draws_from_the_prior_and_stay_when_more_come():
    from scipy import stats

    rewards = task_rewards(WORLD, 4000, seed=3)
    uniform = stats.beta(4, 4, WORLD.low, WORLD.high - WORLD.low).cdf(rewards)
    assert stats.kstest(uniform.ravel(), "uniform").pvalue > 1e-4
    assert rewards.std() == pytest.approx(WORLD.reward_spread, rel=0.05)
    assert np.array_equal(task_rewards(WORLD, 10, seed=3), rewards[:10])
    assert not np.array_equal(task_rewards(WORLD, 10, seed=4), rewards[:10])


@pytest.mark.parametrize(("tasks", "count"), [("rows", 50), ("root", 8), (4, 4)])
def test_a_bank_has_the_tasks_that_its_path_says(tasks, count):
    bank = bank_of(WORLD, BankPath("p", "p", tasks), 50, seed=0).ckde
    assert bank.n_tasks == count
    assert bank.rows_per_task.sum() == 50
    assert np.ptp(bank.rows_per_task) <= 1


def test_bandwidths_shrink_by_the_lemmas_exponent():
    small, large = shrinking(WORLD, 100), shrinking(WORLD, 1600)
    assert large.h / small.h == pytest.approx(16 ** (-1 / 8))
    assert large.h_reward / small.h_reward == pytest.approx(16 ** (-1 / 8))


def gaussian(distances, h):
    return np.exp(-0.5 * (distances / h) ** 2)


def direct_density(bank, rows, rewards):
    """Eq. 5 as the paper writes it, a sum over training rows, with the constant of a normal density."""
    ckde, h, h_reward = bank.ckde, float(bank.bandwidths.h[0]), bank.bandwidths.h_reward
    near = gaussian(np.linalg.norm(rows[:, None] - ckde.rows[None], axis=2), h) / (2 * np.pi * h**2)
    own = ckde.task_rewards[ckde.tasks]
    weights = gaussian(np.linalg.norm(rewards[:, None] - own[None], axis=2), h_reward)
    return (weights @ near.T) / weights.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("path", [BankPath("a", "a", "rows"), BankPath("b", "b", 3, "paper")], ids=["rows", "paper"])
def test_the_estimate_is_the_papers_sum_in_the_order_of_the_rows(path, monkeypatch):
    monkeypatch.setattr("paper.theory_lemma.LARGEST_TABLE", 100)  # several blocks
    bank = bank_of(WORLD, path, 40, seed=1)
    rows = np.random.default_rng(0).uniform(-1, 1, (30, 2))  # in no order
    rewards = held_out_rewards(WORLD)
    assert estimated_density(bank, rows, rewards) == pytest.approx(direct_density(bank, rows, rewards), rel=1e-9)


def test_posterior_draws_follow_the_posterior_on_a_fine_grid():
    """Share of draws in the ball against a sum over a 120 x 120 grid of the paper's own formula; 5 standard errors."""
    truth, rows = expert(WORLD, 12, seed=2)
    path = BankPath("root", "root", "root")
    axis = np.linspace(WORLD.low, WORLD.high, 122)[1:-1]
    points = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2)
    u = (points - WORLD.low) / (WORLD.high - WORLD.low)
    logs = np.log(direct_density(bank_of(WORLD, path, 100, 2), rows, points)).sum(axis=1) + 3 * np.log(u * (1 - u)).sum(
        axis=1
    )
    weights = np.exp(logs - logs.max())
    for radius in (0.2, 0.4, 0.8):
        exact = weights[WORLD.l1_distances(points, truth) < radius].sum() / weights.sum()
        drawn = (WORLD.l1_distances(posterior_draws(WORLD, path, 100, rows, 2), truth) < radius).mean()
        assert drawn == pytest.approx(exact, abs=5 * np.sqrt(0.25 / DRAWS) + 0.005)


def test_an_expert_grows_by_rows_and_keeps_its_reward():
    few, many = expert(WORLD, 5, 7), expert(WORLD, 50, 7)
    assert np.array_equal(few[0], many[0])
    assert np.array_equal(few[1], many[1][:5])


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: TwoTargets(hand_noise=0.0), "noise must be positive"),
        (lambda: TwoTargets(low=0.0), "0 < low < high"),
        (lambda: BankPath("p", "p", 1), "should be"),
    ],
)
def test_wrong_settings_are_refused(make, sentence):
    with pytest.raises(InputError, match=sentence):
        make()
