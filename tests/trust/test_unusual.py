"""Rows that a task of the bank's kind would not show: false alarms, power, codings, and the two findings."""

from dataclasses import replace

import numpy as np
import pytest

import kdbirl as kb
from kdbirl.data.demonstrations import TaskBank
from kdbirl.features import Identity
from kdbirl.likelihood.kernels import RadialKernel, on_columns
from kdbirl.trust.held_out import Plays
from kdbirl.trust.unusual import Unusual, _p_value, how_unusual

EPISODES, STEPS = 6, 4


def behaviour(rng: np.random.Generator, reward: np.ndarray, episodes: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows around a curved function of the reward; those of an episode are alike (correlation .64)."""
    centre = np.array([np.sin(2 * reward[0]), reward[0] + reward[1]])
    of_episode = np.repeat(rng.normal(0, 0.4, (episodes, 2)), STEPS, axis=0)
    rows = centre + of_episode + rng.normal(0, 0.3, (episodes * STEPS, 2))
    return rows, np.repeat(np.arange(episodes), STEPS)


def bank_of(rng: np.random.Generator, tasks: int) -> TaskBank:
    rewards = rng.uniform(-1, 1, (tasks, 2))
    rows, episodes = zip(*(behaviour(rng, reward, 2 * EPISODES) for reward in rewards), strict=True)
    of_task = np.repeat(np.arange(tasks), 2 * EPISODES * STEPS)
    states, episodes = np.concatenate(rows), np.concatenate(episodes)
    return TaskBank.from_arrays(states=states, actions=None, tasks=of_task, rewards=rewards, episodes=episodes)


def plays_of(bank: TaskBank) -> Plays:
    return Plays.from_bank(bank, Identity().fit(bank.demonstrations), 0)


def judged(plays: Plays, rewards: np.ndarray, rows: np.ndarray, h: float = 0.4) -> Unusual:
    kernel = on_columns(RadialKernel(), tuple(f"x{i}" for i in range(rows.shape[1])), {})
    found = how_unusual(plays, rewards, kernel, np.array([h]), rows)
    assert found is not None
    return found


def test_false_alarms_and_power():
    """100 banks of 8 to 16 tasks, 2 well-specified experts of each; for 20 of the banks 3 experts like no mixture.

    At 5 %, the count of false alarms of 200 has sd 3.3: a right check has more than 18 for one of 100 seeds.
    """
    alarms, found = [], []
    for number in range(100):
        rng = np.random.default_rng(number)
        bank = bank_of(rng, int(rng.integers(8, 17)))
        plays, n = plays_of(bank), EPISODES * STEPS
        experts = [behaviour(rng, reward, EPISODES)[0] for reward in rng.uniform(-1, 1, (2, 2))]
        alarms += [judged(plays, bank.rewards, rows).p_value <= 0.05 for rows in experts]
        side = np.repeat(rng.permutation([-1.8, -1.8, -1.8, 1.8, 1.8, 1.8]), STEPS)
        strangers = [
            rng.uniform(-2.5, 2.5, (n, 2)),  # goes everywhere
            np.stack([rng.normal(0, 0.4, n), side + rng.normal(0, 0.4, n)], axis=1),  # two agents in one file
            np.array([3.0, -1.0]) + rng.normal(0, 0.4, (n, 2)),  # where nobody goes
        ]
        found += [judged(plays, bank.rewards, rows).p_value <= 0.05 for rows in strangers if number < 20]
    assert 1 <= sum(alarms) <= 18
    assert sum(found) >= 54


@pytest.mark.parametrize("columns", [1, 2])
def test_a_p_value_is_valid_for_any_distribution(columns: int):
    """Cauchy numbers, for which no t-test holds: with 19 tasks P(p <= .05) <= 1/20, with 9 at most 1/10.

    Of 4,000, four standard errors above: fails a right formula once in 30,000 seeds.
    """
    rng = np.random.default_rng(0)
    for count, most in ((19, 1 / 20), (9, 1 / 10)):
        values = rng.standard_cauchy((4000, count + 1, columns))
        values[..., -1] += values[..., 0]  # of one task, numbers depend on each other
        alarms = np.mean([_p_value(v[:-1], v[-1]) <= 0.05 for v in values])
        assert alarms <= most + 4 * np.sqrt(most / 4000)


def test_a_p_value_of_normal_numbers_is_five_percent():
    rng = np.random.default_rng(1)
    values = rng.normal(size=(4000, 11, 1))
    alarms = np.mean([_p_value(v[:-1], v[-1]) <= 0.05 for v in values])
    assert alarms == pytest.approx(0.05, abs=4 * np.sqrt(0.05 * 0.95 / 4000))  # 4 standard errors
    assert _p_value(np.zeros((9, 2)), np.zeros(2)) == 1.0
    assert _p_value(np.zeros((9, 2)), np.array([1.0, 0.0])) < 1e-6
    assert _p_value(np.arange(9.0)[:, None], np.array([4.0])) == 0.6  # five of nine players are as large, and itself


@pytest.mark.parametrize("coding", ["units", "rotated", "repeated"])
def test_linear_codings_change_nothing(coding: str):
    rng = np.random.default_rng(3)
    bank, rows = bank_of(rng, 9), behaviour(rng, np.array([0.3, 0.2]), EPISODES)[0]
    table, width = {
        "units": (1000 * np.eye(2), 1000.0),
        "rotated": (np.array([[0.6, 0.8], [-0.8, 0.6]]), 1.0),
        "repeated": (np.concatenate([np.eye(2)] * 3, axis=1), np.sqrt(3)),
    }[coding]
    plays = plays_of(bank)
    one = judged(plays, bank.rewards, rows)
    other = judged(replace(plays, rows=plays.rows @ table), bank.rewards, rows @ table, 0.4 * width)
    assert other.p_value == pytest.approx(one.p_value, rel=1e-9)  # rounding of sums, in another order
    np.testing.assert_allclose(other.players, one.players, rtol=1e-9)


def diagnosis_of(bank: TaskBank, expert: kb.Demonstrations, **choices):
    model = kb.KDBIRL(prior=kb.Uniform(-1.5, 1.5), sampler="grid", **choices).fit(bank)
    return kb.diagnose(model, model.posterior(expert, seed=0))


def test_one_hot_and_coordinates_of_the_same_rows_agree():
    """Cells of a grid, with h far below a cell: both codings know only equal and unequal cells."""
    rng = np.random.default_rng(0)
    cells, tasks = np.stack(np.divmod(np.arange(25), 5), axis=1), 10
    rewards = rng.uniform(-1, 1, (tasks + 1, 2))
    shares = np.exp((cells - 2) @ rewards.T)
    # episodes stay in one of few cells: rows repeat, in some columns of a one-hot code and in every coordinate
    states = np.stack([np.repeat(rng.choice(25, 20, p=share / share.sum()), 3) for share in shares.T])
    episodes = np.repeat(np.arange(20), 3)
    given = {"actions": None, "tasks": np.repeat(np.arange(tasks), 60), "rewards": rewards[:-1]}
    found = []
    for code in (np.eye(25), cells.astype(float)):
        bank = TaskBank.from_arrays(states=code[states[:-1].ravel()], episodes=np.tile(episodes, tasks), **given)
        expert = kb.Demonstrations(states=code[states[-1]], episodes=episodes)
        found.append(diagnosis_of(bank, expert, features=Identity(), bandwidth=(0.05, 0.5)).predictive)
    assert found[0].p_value == pytest.approx(found[1].p_value, abs=1e-9)
    assert found[0].p_value > 0.05


def separate(seed: int, behave: np.ndarray) -> tuple[TaskBank, np.ndarray]:
    rng = np.random.default_rng(seed)
    of_task = np.repeat(np.arange(len(behave) - 1), 60)
    states = behave[of_task] + rng.normal(0, 0.3, (len(of_task), 2))
    rewards = behave[:-1] / 10
    bank = TaskBank.from_arrays(
        states=states, actions=None, tasks=of_task, rewards=rewards, episodes=np.tile(np.arange(60) // 5, len(rewards))
    )
    return bank, behave[-1] + rng.normal(0, 0.3, (20, 2))


def test_unlike_every_training_task_is_another_finding_than_unexplained():
    """Tasks that all behave differently: one more of them is like none, and still no reason to doubt the data."""
    angles = 2 * np.pi * np.arange(9) / 9
    bank, rows = separate(0, 6 * np.stack([np.cos(angles), np.sin(angles)], axis=1))
    chosen = {"features": Identity(), "bandwidth": (0.5, 0.3)}
    new = diagnosis_of(bank, kb.Demonstrations(states=rows), **chosen)
    assert (new.predictive.unexplained, new.predictive.unlike_training) == (False, True)
    assert new.predictive.sentence.startswith("No training task behaves like the expert")
    assert "Nothing speaks against the data" in new.predictive.sentence
    assert "Add training tasks that behave like the expert." in new.predictive.sentence
    assert new.predictive.sentence in new.posterior.report_card()["support"][1]

    everywhere = np.random.default_rng(1).uniform(-8, 8, (20, 2))
    wrong = diagnosis_of(bank, kb.Demonstrations(states=everywhere), **chosen)
    assert (wrong.predictive.unexplained, wrong.predictive.unlike_training) == (True, False)
    assert wrong.predictive.sentence.startswith("No reward explains the expert's rows: they are more scattered than")
    assert "Check the data" in wrong.predictive.sentence
    colour, sentence = wrong.posterior.report_card()["support"]
    assert colour == "red"
    assert wrong.predictive.sentence in sentence

    known = diagnosis_of(bank, kb.Demonstrations(states=np.asarray(bank.demonstrations.states)[:20] + 0.01), **chosen)
    assert (known.predictive.unexplained, known.predictive.unlike_training) == (False, False)


def test_few_tasks_are_not_judged_and_uneven_ones_are():
    rng = np.random.default_rng(0)
    bank = bank_of(rng, 9)
    kernel = on_columns(RadialKernel(), ("x0", "x1"), {})
    plays = Plays.from_bank(bank, Identity().fit(bank.demonstrations), 0)
    rows = behaviour(rng, np.zeros(2), EPISODES)[0]
    few = np.repeat(bank.rewards[:3], 3, axis=0)  # nine tasks, three rewards
    assert how_unusual(plays, few, kernel, np.array([0.4]), rows) is None
    keep = np.concatenate([np.flatnonzero(bank.tasks == k)[: 1 + 7 * k] for k in range(9)])
    uneven = TaskBank.from_arrays(
        states=np.asarray(bank.demonstrations.states)[keep], actions=None, tasks=bank.tasks[keep], rewards=bank.rewards
    )
    found = judged(plays_of(uneven), uneven.rewards, rows)
    assert found.rows == 24
    assert np.isfinite(found.players).all()
    assert judged(plays_of(uneven), uneven.rewards, rows[:1]).rows == 1


@pytest.mark.parametrize("kernel", ["gaussian", "laplace", "epanechnikov"])
def test_the_numbers_against_their_definition(kernel: str):
    rng = np.random.default_rng(5)
    bank, rows, h = bank_of(rng, 6), behaviour(rng, np.zeros(2), EPISODES)[0], 0.6
    features = Identity().fit(bank.demonstrations)
    pairs = on_columns(RadialKernel(kernel), features.names, features.groups)
    plays = Plays.from_bank(bank, features, 0)
    found = how_unusual(plays, bank.rewards, pairs, np.array([h]), rows)
    profile = {
        "gaussian": lambda u: np.exp(-(u**2) / 2),
        "laplace": lambda u: np.exp(-u),
        "epanechnikov": lambda u: np.maximum(0, 1 - u**2),
    }[kernel]

    def of(x: np.ndarray, tasks: list[np.ndarray]) -> list[float]:
        def near(y: np.ndarray) -> np.ndarray:
            return profile(np.linalg.norm(x[:, None] - y[None], axis=2) / h)

        def log(density: np.ndarray) -> float:
            return float(np.log((density + 0.1 / 24) / (1 + 0.1 / 24)).mean())

        return [-max(log(near(y).mean(axis=1)) for y in tasks), -log((near(x).sum(axis=1) - 1) / 23)]

    states = [np.asarray(bank.demonstrations.states)[bank.tasks == k] for k in range(6)]
    np.testing.assert_allclose([found.misfit, found.scatter], of(rows, states), rtol=1e-9)
    shown = [plays.rows[plays.of_task(k, 24, 1)[0]] for k in range(6)]
    expected = [of(shown[k], states[:k] + states[k + 1 :]) for k in range(6)]
    np.testing.assert_allclose(found.players, expected, rtol=1e-9)
