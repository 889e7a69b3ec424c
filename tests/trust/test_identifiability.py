"""The uninformed subspace is exact, is named in the user's words, and is where the posterior keeps the prior."""

import json
import re

import numpy as np
import pytest
from scipy import stats

import kdbirl as kb
from kdbirl.errors import InputError
from kdbirl.likelihood.ckde import CKDE
from kdbirl.likelihood.kernels import as_kernel, on_columns
from kdbirl.posterior.priors import Prior
from kdbirl.trust.directions import axis_in_words, direction_in_words, scale_and_direction
from kdbirl.trust.identifiability import Identifiability, contraction, identify, principal_contractions

# tasks that say nothing about a parameter are what some tests are about; the warning has its own test
pytestmark = pytest.mark.filterwarnings("ignore::kdbirl.errors.IdentifiabilityWarning")

RNG = np.random.default_rng(0)


def bank_of(rewards: np.ndarray, rows: int = 40, seed: int = 0) -> tuple[kb.TaskBank, kb.Demonstrations]:
    """States lie around the first two parameters of their task's reward; the expert's around the first task's."""
    rng = np.random.default_rng(seed)
    rewards = np.asarray(rewards, dtype=float)
    tasks = np.repeat(np.arange(len(rewards)), rows)
    centre = np.pad(rewards, ((0, 0), (0, max(0, 2 - rewards.shape[1]))))[:, :2]
    states = centre[tasks] + rng.normal(0, 0.5, (len(tasks), 2))
    bank = kb.TaskBank.from_arrays(states=states, actions=None, tasks=tasks, rewards=rewards)
    return bank, kb.Demonstrations(states=centre[0] + rng.normal(0, 0.5, (12, 2)))


def identified(
    rewards: np.ndarray,
    prior: Prior | None = None,
    reward_kernel: object = "gaussian",
    distance: str = "euclidean",
    h: float = 0.8,
) -> Identifiability:
    rewards = np.asarray(rewards, dtype=float)
    tasks = np.repeat(np.arange(len(rewards)), 5)
    rows = RNG.normal(size=(len(tasks), 2))
    kernel = on_columns(as_kernel("gaussian"), ("x", "y"), {})
    ckde = CKDE.from_rows(rows, tasks, rewards, kernel, as_kernel(reward_kernel, distance))
    names = tuple(f"r{j}" for j in range(rewards.shape[1]))
    return identify(ckde, (prior or kb.Uniform(-1, 2)).for_parameters(len(names)), names, h)


def spans(first: np.ndarray, second: np.ndarray) -> bool:
    """Whether two tables of orthonormal rows span the same subspace: equal projections."""
    return first.shape == second.shape and np.allclose(first.T @ first, second.T @ second, atol=1e-10)


def orthonormal(rows: np.ndarray) -> np.ndarray:
    return np.linalg.qr(np.asarray(rows, dtype=float).T)[0].T


@pytest.mark.parametrize("q", [1, 2, 5])
def test_every_rank_from_none_to_all(q):
    for rank in range(q + 1):
        basis = np.linalg.qr(RNG.normal(size=(q, q)))[0][:rank]
        rewards = 0.3 + RNG.normal(size=(rank + 2, rank)) @ basis
        found = identified(rewards)
        assert found.rank == rank
        assert spans(found.informed, basis)
        assert np.allclose(found.uninformed @ basis.T, 0, atol=1e-10)
        assert (np.diff(found.strengths) <= 0).all()
        assert (found.strengths > 0).all()


def test_equal_and_collinear_rewards():
    equal = identified(np.full((4, 3), 0.3))
    assert equal.rank == 0
    assert equal.sentence == (
        "The 4 training tasks inform none of the 3 reward directions: the posterior is the prior, whatever the "
        "expert does."
    )
    line = identified(np.array([0.1, 0.2, 0.3]) + np.outer([0.0, 0.2, 0.5, 0.9], [1.0, 2.0, -2.0]))
    assert line.rank == 1
    assert spans(line.informed, np.array([[1.0, 2.0, -2.0]]) / 3)


def test_a_hundred_parameters_with_four_tasks():
    rewards = RNG.normal(size=(4, 100))
    found = identified(rewards, kb.Normal(0, 1))
    assert found.rank == 3
    assert spans(found.informed, orthonormal(rewards[1:] - rewards[0]))
    assert np.allclose(found.uninformed @ (rewards - rewards[0]).T, 0, atol=1e-9)
    one_hot = identified(np.eye(100)[:4], kb.Normal(0, 1))
    assert one_hot.keeps_prior() == tuple(f"r{j}" for j in range(4, 100))
    assert "89 more, and r0 + r1 + r2 + r3 (their sum) keep their prior" in one_hot.sentence


def test_directions_are_told_in_the_users_own_names():
    found = identified(np.eye(4)[:2])
    assert found.sentence == (
        "The 2 training tasks inform 1 of 4 reward directions; r2 and r3, and r0 + r1 (their sum) keep their prior, "
        "given the informed ones, whatever the expert does."
    )
    assert found.warning == found.sentence
    assert found.keeps_prior() == ("r2", "r3")
    assert found.keeps_prior(["r0", "r3"]) == ("r3",)
    np.testing.assert_allclose(found.informed_share, [0.5, 0.5, 0, 0], atol=1e-12)
    with pytest.raises(InputError, match="no reward parameter 'r7'"):
        found.keeps_prior(["r7"])
    assert "0.6 r0 + 0.8 r1 keeps its prior" in identified([[0, 0], [0.8, -0.6]], kb.Normal(0, 1)).sentence
    full = identified(RNG.normal(size=(5, 2)))
    assert full.warning is None
    assert full.sentence == "The 5 training tasks inform all 2 reward directions."
    assert full.next_task.sentence in full.describe()


def test_the_prior_decides_whether_directions_are_coupled():
    rewards = np.eye(3)[:2]
    assert not identified(rewards, kb.Normal(0, 1)).coupled
    assert identified(rewards, kb.Normal(0, [1, 2, 1])).coupled
    assert identified(rewards, kb.Uniform(0, 1)).coupled
    assert not identified(np.array([[0, 0.1, 0.2], [1, 0.1, 0.2]]), kb.Uniform(0, 1)).coupled


KERNELS = [
    ("gaussian", "euclidean"),
    ("gaussian", "manhattan"),
    ("laplace", "manhattan"),
    ("laplace", "dot"),
    ("triangular", "cosine"),
    ("uniform", "euclidean"),
    ("uniform", "manhattan"),
]


@pytest.mark.parametrize(("kernel", "distance"), KERNELS)
def test_the_likelihood_does_not_move_along_the_uninformed_and_moves_along_the_informed(kernel, distance):
    """For every kernel, against the likelihood itself: it is constant on shifts that stay inside the prior."""
    bank, expert = bank_of(np.array([[1.0, 0, 0.5, 0], [0, 1, 0.5, 0], [0.5, 1, 0.5, 0]]))
    model = kb.KDBIRL(prior=kb.Uniform(0, 1), reward_kernel=kernel, reward_distance=distance, bandwidth=(0.7, 1.2)).fit(
        bank
    )
    found = identify(model.fitted.ckde, model.fitted.prior, bank.reward_names, 1.2)
    rng = np.random.default_rng(1)
    start = rng.uniform(0, 1, (1000, 4))
    before = model.log_likelihood(expert, start)
    if len(found.uninformed):
        moved = start + rng.uniform(-0.3, 0.3, (1000, len(found.uninformed))) @ found.uninformed
        inside = ((moved > 0) & (moved < 1)).all(axis=1)
        assert inside.sum() > 50
        np.testing.assert_allclose(model.log_likelihood(expert, moved[inside]), before[inside], rtol=1e-10, atol=1e-9)
    for direction in found.informed:
        there = model.log_likelihood(expert, np.clip(start + 0.3 * direction, 0, 1))
        assert not np.allclose(there, before, rtol=0, atol=1e-6)
    assert found.exact == ((kernel, distance) == ("gaussian", "euclidean"))


def test_what_numerical_kernels_find():
    rewards = np.array([[1.0, 0, 0.5, 0], [0, 1, 0.5, 0]])
    box = kb.Uniform(0, 1)
    manhattan = identified(rewards, box, "laplace", "manhattan")
    assert spans(manhattan.informed, np.array([[1.0, -1, 0, 0]]) / 2**0.5)
    assert manhattan.keeps_prior() == ("r2", "r3")
    assert identified(rewards, box, "laplace").rank == 4
    wide, narrow = (identified(rewards, box, "uniform", h=h) for h in (3.0, 0.8))
    assert (wide.rank, narrow.rank) == (0, 4)  # no edge inside the prior; edges inside it
    steps = identified(rewards, box, lambda x, y, h: 1.0 + (x[0] > y[0] + 0.4))
    assert steps.keeps_prior() == ("r1", "r2", "r3")


def test_parameters_in_other_units_change_nothing_numerically():
    rewards = np.array([[1.0, 0, 5e-7, 0], [0, 1e6, 5e-7, 0]])
    prior = kb.Uniform(0, [1, 1e6, 1e-6, 1])
    found = identified(rewards, prior, lambda x, y, h: 1 / (1 + (x[0] - y[0]) ** 2 + 1e12 * x[2] ** 2 * y[0]))
    assert found.keeps_prior() == ("r1", "r3")


def test_an_isotropic_normal_prior_stays_along_the_uninformed_subspace():
    """Kolmogorov-Smirnov on 4,000 independent draws; false alarms by chance: 4 tests at 1e-4."""
    rewards = np.random.default_rng(2).normal(0.2, 1, (3, 6))
    bank, expert = bank_of(rewards)
    model = kb.KDBIRL(prior=kb.Normal(0.2, 0.7), bandwidth=(0.4, 0.7)).fit(bank)
    post = model.posterior(expert, seed=0)
    found = identify(model.fitted.ckde, model.fitted.prior, bank.reward_names, 0.7)
    assert (post.sampler, found.rank) == ("Grid", 2)
    for direction in found.uninformed:
        assert stats.kstest((post.flat - 0.2) @ direction / 0.7, "norm").pvalue > 1e-4
    assert stats.kstest((post.flat - 0.2) @ found.informed[0] / 0.7, "norm").pvalue < 1e-8
    assert np.abs(contraction(post.flat, post.prior_draws, found.uninformed)).max() < 0.15
    assert principal_contractions(post.flat, post.prior_draws, found.informed)[0][0] > 0.5


def weighted_ks(draws: np.ndarray, others: np.ndarray, weights: np.ndarray) -> tuple[float, float]:
    """Largest distance of two distribution functions, and what it stays below with probability 1 - 1e-4."""
    order = np.argsort(others)
    reference = np.concatenate([[0.0], np.cumsum(weights[order]) / weights.sum()])
    place = np.sort(draws)
    at = reference[np.searchsorted(others[order], place, side="right")]
    gap = np.abs(at - np.arange(1, len(place) + 1) / len(place)).max()
    effective = 1 / (1 / len(draws) + np.sum(weights**2) / weights.sum() ** 2)
    return float(gap), float(stats.kstwobign.isf(1e-4) / np.sqrt(effective))


def test_a_box_prior_gives_likelihood_reweighted_prior_draws():
    bank, expert = bank_of(np.array([[0.9, 0.1, 0.2, 0.4], [0.1, 0.8, 0.6, 0.4], [0.2, 0.1, 0.9, 0.4]]))
    model = kb.KDBIRL(prior=kb.Uniform(0, 1), bandwidth=(0.4, 0.3)).fit(bank)
    post = model.posterior(expert, seed=0)
    found = identify(model.fitted.ckde, model.fitted.prior, bank.reward_names, 0.3)
    prior = np.random.default_rng(3).uniform(0, 1, (30_000, 4))
    logs = model.log_likelihood(expert, prior)
    weights = np.exp(logs - logs.max())
    assert found.keeps_prior() == ("r3",)
    for direction in (*found.uninformed, *found.informed):
        gap, bound = weighted_ks(post.flat @ direction, prior @ direction, weights)
        assert gap < bound
    assert stats.kstest(post.flat[:, 3], "uniform").pvalue > 1e-4
    gap, bound = weighted_ks(post.flat @ found.uninformed[-1], prior @ found.uninformed[-1], np.ones(len(prior)))
    assert gap > bound  # the box couples this combination to what was learnt: it is not the prior
    assert found.coupled


def test_contraction_and_what_hides_between_two_directions():
    rng = np.random.default_rng(4)
    prior = rng.normal(size=(20_000, 3))
    draws = rng.normal(size=(20_000, 3)) * [0.5, 1.0, 1.0]
    np.testing.assert_allclose(contraction(draws, prior, np.eye(3)), [0.75, 0, 0], atol=0.04)
    turned = np.array([[1.0, 1, 0], [1, -1, 0]]) / 2**0.5
    np.testing.assert_allclose(contraction(draws, prior, turned), [0.375, 0.375], atol=0.04)
    values, directions = principal_contractions(draws, prior, turned)
    np.testing.assert_allclose(values, [0.75, 0], atol=0.04)
    np.testing.assert_allclose(np.abs(directions), [[1, 0, 0], [0, 1, 0]], atol=0.03)
    assert np.isnan(contraction(draws, np.ones((5, 3)), np.eye(3))).all()


@pytest.mark.parametrize("alike", [(1, 2), (0, 1, 2)])
def test_tasks_that_behave_alike_inform_less(alike):
    """Their rewards differ, so that direction counts as informed; their rows do not, so little is learnt about it."""
    rng = np.random.default_rng(5)
    states = np.array([-2.0, 0, 2])[:, None] + rng.normal(0, 0.5, (3, 100))
    states[list(alike)] = states[alike[0]]
    tasks = np.repeat(np.arange(3), 100)
    bank = kb.TaskBank.from_arrays(states=states.reshape(-1, 1), actions=None, tasks=tasks, rewards=np.eye(3))
    expert = kb.Demonstrations(states=rng.normal(-2, 0.5, (20, 1)))
    model = kb.KDBIRL(prior=kb.Normal(0, 1), bandwidth=(0.5, 0.8)).fit(bank)
    post = model.posterior(expert, seed=0)
    found = identify(model.fitted.ckde, model.fitted.prior, bank.reward_names, 0.8)
    assert found.rank == 2
    learnt = contraction(post.flat, post.prior_draws, np.array([[1.0, -1, 0], [0, 1, -1]]))
    lines = found.describe_with(post.flat, post.prior_draws)[1:3]
    if alike == (1, 2):
        weakest = principal_contractions(post.flat, post.prior_draws, found.informed)[1][-1]
        assert abs(weakest @ np.array([0, 1, -1])) / 2**0.5 > 0.95
        assert learnt[1] < learnt[0] - 0.1
        assert lines[0].startswith("learnt: ")
    else:
        assert np.abs(learnt).max() < 0.1
        assert all(line.startswith("informed in principle, but not by these demonstrations: ") for line in lines)


def test_size_and_direction_are_reported_apart():
    rng = np.random.default_rng(6)
    sizes = rng.uniform(1, 3, 4000)
    angles = np.radians(30) + np.radians(10) * rng.uniform(-1, 1, 4000)
    draws = sizes[:, None] * np.stack([np.cos(angles), np.sin(angles)], axis=1)
    found = scale_and_direction(draws, ("x", "y"), rng.normal(size=(4000, 2)))
    np.testing.assert_allclose(found.sizes, [1.1, 2, 2.9], atol=0.05)
    np.testing.assert_allclose(found.direction, [np.cos(np.pi / 6), 0.5], atol=0.01)
    assert found.angle == pytest.approx(9, abs=0.3)
    assert found.prior_angle == pytest.approx(162, abs=4)
    assert found.concentration > 0.99
    doubled = scale_and_direction(2 * draws, ("x", "y"))
    assert doubled.angle == pytest.approx(found.angle)
    assert doubled.sizes == pytest.approx(2 * found.sizes)
    assert "does not reveal" in found.sentence
    json.dumps(found.to_dict())
    with pytest.raises(InputError, match="no direction"):
        scale_and_direction(np.zeros((3, 2)), ("x", "y"))


def printed_signs(sentence: str, names: tuple[str, ...]) -> dict[str, int]:
    """The sign of each parameter in "... degrees of - 0.1 a + b; size ..."."""
    words = sentence.split(" degrees")[1].split(" of ", 1)[1].split("; size")[0]
    for tag in (" (their sum)", " (their difference)", " (nearly alone)"):
        words = words.removesuffix(tag)
    signs, sign = {}, 1
    for word in re.sub(r" and \d+ smaller terms$", "", words).split():
        if word in names:
            signs[word] = sign
        elif word in "+-":
            sign = 1 if word == "+" else -1
    return signs


@pytest.mark.parametrize("q", [1, 2, 3, 7])
def test_a_direction_is_told_with_the_signs_of_the_posterior_mean(q):
    """Random posteriors, among them some that are nearly or exactly along one parameter, or even in all of them."""
    rng, names = np.random.default_rng(7), tuple(f"r{j}" for j in range(q))
    for case in range(60):
        mean = rng.normal(size=q) * 10.0 ** rng.integers(-4 if case % 3 else 0, 1, q)
        if q <= 4 and case % 5 == 0:
            mean = np.sign(mean)
        noise = rng.normal(size=(50, q)) * rng.choice([0.0, 0.1, 2.0])
        draws = mean + noise * rng.lognormal(0, 1, (50, 1))
        signs = printed_signs(scale_and_direction(draws, names).sentence, names)
        assert signs
        for name, sign in signs.items():
            assert sign == np.sign(draws[:, names.index(name)].mean()), (case, draws.mean(axis=0), signs)


def test_words_of_directions_and_of_axes():
    names = ("safety", "speed", "c", "d", "e")
    assert direction_in_words(np.array([-1.0, 0.1]), names) == "- safety + 0.1 speed"
    assert axis_in_words(np.array([-1.0, 0.1]), names) == "safety - 0.1 speed"
    assert direction_in_words(np.array([-2.0]), names) == "- safety"
    assert axis_in_words(np.array([-2.0]), names) == "safety"
    assert direction_in_words(np.array([1e-3, -1.0]), names) == "- speed (nearly alone)"
    assert direction_in_words(-np.ones(5), names) == "minus the sum of safety, speed, c, d and e"
    assert (
        direction_in_words(np.array([-1.0, 1, 1, 1, 1]), names) == "the sum of speed, c, d and e minus that of safety"
    )
    assert axis_in_words(np.array([-1.0, 1]), names) == "safety - speed (their difference)"


def test_plain_values_and_refusals():
    found = identified(np.eye(4)[:2])
    stored = json.loads(json.dumps(found.to_dict()))
    assert stored["rank"] == 1
    assert stored["uninformed_in_words"] == ["r2", "r3", "r0 + r1 (their sum)"]
    assert stored["next_task"]["reward"] == found.suggested_reward.tolist()
    with pytest.raises(InputError, match="orthonormal"):
        Identifiability(np.ones((1, 2)), np.ones((1, 2)), np.ones(1), ("a", "b"), 2, True)
    many = identified(RNG.normal(size=(30, 20)), kb.Normal(0, 1))
    assert len(many.describe()) < 16
