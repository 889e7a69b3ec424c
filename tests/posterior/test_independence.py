"""Independence Metropolis: the proposal's density is that of its draws, and the chain's bookkeeping is right."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from kdbirl._jax import float64
from kdbirl.posterior.independence import (
    CENTRES,
    WIDE,
    Independence,
    Proposal,
    _or_equal,
    _Run,
    _Stack,
    _starts,
    accepted_enough,
    accepted_places,
    drawn,
    effective_share,
    fitted_proposal,
    freedom,
    log_density,
    longest_stays,
)
from kdbirl.posterior.independence_loops import mean_kernels
from kdbirl.posterior.target import Draws
from kdbirl.progress import Silent
from kdbirl.random_streams import stream

from .problems import setting

MEAN, COVARIANCE = np.array([1.0, -2.0]), np.array([[1.5, 0.4], [0.4, 0.3]])


def proposal_of(share: float = 0.0, q: int = 2, count: int = 4000) -> tuple[Proposal, np.ndarray, np.ndarray]:
    """Fitted to wide points whose weights are those of a normal density, so that their covariance is known."""
    mean, covariance = np.resize(MEAN, q), np.eye(q) * 0.5
    covariance[: min(q, 2), : min(q, 2)] = COVARIANCE[: min(q, 2), : min(q, 2)]
    wide = stats.multivariate_normal(mean, 2 * covariance, seed=0)
    points = wide.rvs(count).reshape(count, q)
    logs = stats.multivariate_normal(mean, covariance).logpdf(points) - wide.logpdf(points)
    return fitted_proposal(points, logs - 700.0, share, np.random.default_rng(1)), mean, covariance


@pytest.mark.parametrize("q", [1, 2, 3])
def test_the_density_is_that_of_the_draws(q: int) -> None:
    """E_g[p / g] = 1 for any density p that is nowhere much larger than g: within 4.5 standard errors."""
    proposal, mean, covariance = proposal_of(q=q)
    points = drawn(proposal, 20_000, np.random.default_rng(2))
    logs = log_density(proposal, points, np.full(len(points), -np.inf))
    for scale in (0.5, 1.0):
        ratios = np.exp(stats.multivariate_normal(mean, scale * covariance).logpdf(points) - logs)
        assert abs(ratios.mean() - 1) < 4.5 * ratios.std() / np.sqrt(len(ratios))
        assert ratios.std() < 1.5  # and g is near enough for that to say something


@pytest.mark.parametrize("q", [1, 2, 3, 6])
def test_proposals_have_the_mean_and_nearly_the_covariance_of_the_points(q: int) -> None:
    """Half of the draws are of the wide kernel, 1.3 times as wide: (1 + 1.69) / 2 of the points' covariance."""
    proposal, mean, covariance = proposal_of(q=q, count=20_000)
    points = drawn(proposal, 100_000, np.random.default_rng(2))
    sd = np.sqrt(np.diag(covariance))
    np.testing.assert_allclose(points.mean(axis=0), mean, atol=0.06 * sd.max())
    relative = np.cov(points.T).reshape(q, q) / 1.345 - covariance
    assert np.abs(relative / np.outer(sd, sd)).max() < 0.12


def test_the_priors_share_is_part_of_the_density() -> None:
    """g = (1 - d) kernels + d p."""
    points = np.array([[1.0, -2.0], [40.0, 7.0]])
    log_prior = np.array([-3.0, -9.0])
    without = np.exp(log_density(proposal_of()[0], points, np.full(2, -np.inf)))
    found = log_density(proposal_of(share=0.1)[0], points, log_prior)
    np.testing.assert_allclose(found, np.log(0.9 * without + 0.1 * np.exp(log_prior)))


@pytest.mark.parametrize(("q", "count"), [(1, 1), (2, 5), (3, 64), (4, 192), (5, 192), (8, 7), (9, 7)])
@pytest.mark.parametrize("power", [1, 2, 3, 4, 7, 8])
def test_mean_kernels_are_those_written_out(q: int, count: int, power: int) -> None:
    rng = np.random.default_rng(q)
    points, centres = rng.normal(size=(11, q)) * 3, rng.normal(size=(q, count))
    points[0], found = 1e8, np.full(11, np.nan)
    mean_kernels(points, centres, 6.0, power, found)
    squares = ((points[:, :, None] - centres) ** 2).sum(axis=1)
    np.testing.assert_allclose(found, ((1 + squares / 6.0) ** -power).mean(axis=1), rtol=1e-13)


@pytest.mark.parametrize("q", range(1, 9))
def test_the_exponent_of_the_kernels_is_a_whole_number(q: int) -> None:
    assert (freedom(q) + q) % 2 == 0
    assert freedom(q) in (6, 7)


@pytest.mark.parametrize("q", [1, 2, 4, 7])
def test_the_width_of_the_kernels_is_silvermans(q: int) -> None:
    """As SciPy has it; the wide kernel is wider. Points without weight do not count, nor more points than kernels."""
    points = np.random.default_rng(0).normal(size=(400, q))
    for count, effective in ((100, 100), (400, CENTRES)):
        logs = np.where(np.arange(400) < count, 0.0, -np.inf)
        expected = stats.gaussian_kde(points[:effective].T).silverman_factor()
        proposal = fitted_proposal(points, logs, 0.1, np.random.default_rng(1))
        assert proposal.width == pytest.approx(WIDE / min(expected, 0.95))


def test_few_and_equal_points_still_give_a_proposal() -> None:
    """One weight that is all of the weight, and a direction along which the points do not vary."""
    rng = np.random.default_rng(0)
    points = np.stack([rng.normal(size=100), np.full(100, 3.0)], axis=1)
    for logs in (np.zeros(100), np.where(np.arange(100) == 7, 0.0, -800.0)):
        proposal = fitted_proposal(points, logs, 0.1, rng)
        assert proposal.centres.shape == (CENTRES, 2)
        assert all(np.isfinite(part).all() for part in proposal)
        assert np.isfinite(drawn(proposal, 50, rng)).all()


@pytest.mark.parametrize("place", [0, 41, 99])
def test_a_point_with_all_of_the_weight_is_every_centre(place: int) -> None:
    points = np.random.default_rng(0).normal(size=(100, 2))
    logs = np.where(np.arange(100) == place, 0.0, -800.0)
    proposal = fitted_proposal(points, logs, 0.1, np.random.default_rng(1))
    centres = np.linalg.solve(proposal.whitening, proposal.centres.T).T
    np.testing.assert_allclose(centres, np.broadcast_to(points[place], centres.shape), rtol=1e-6, atol=1e-9)


def test_correlated_points_far_outnumber_their_diagonal() -> None:
    """With many effective points the covariance is theirs, with one it is a diagonal."""
    rng = np.random.default_rng(0)
    points = rng.multivariate_normal([0, 0], [[1.0, 0.9], [0.9, 1.0]], 5000)

    def correlation(proposal: Proposal) -> float:
        inner = np.linalg.inv(proposal.whitening.T @ proposal.whitening)
        return float(inner[0, 1] / np.sqrt(inner[0, 0] * inner[1, 1]))

    assert correlation(fitted_proposal(points, np.zeros(5000), 0.1, rng)) == pytest.approx(0.9, abs=0.02)
    few = fitted_proposal(points, np.where(np.arange(5000) < 3, 0.0, -800.0), 0.1, rng)
    assert abs(correlation(few)) < 0.6


def places_one_by_one(logs: np.ndarray, levels: np.ndarray) -> list[int]:
    at = [0]
    for j in range(1, len(logs)):
        ratio = logs[j] - logs[at[-1]] if np.isfinite(logs[j]) else -np.inf
        at.append(j if levels[j - 1] < ratio else at[-1])
    return at


def test_chains_and_their_longest_stays_are_those_of_a_slow_loop() -> None:
    rng = np.random.default_rng(0)
    logs = rng.normal(size=(3, 4, 60)) * 3
    logs[rng.random(logs.shape) < 0.1] = -np.inf
    logs[0, 0], logs[1, 1, :9] = -np.inf, -np.inf  # a chain without a point to stand at, and one that begins so
    levels = np.log(rng.random((3, 4, 59)))
    at = accepted_places(logs, levels)
    assert not at[0, 0].any()
    for t in range(3):
        stays = []
        for c in range(4):
            expected = places_one_by_one(logs[t, c], levels[t, c])
            np.testing.assert_array_equal(at[t, c], expected)
            stays += [expected.count(place) for place in set(expected)]
        assert longest_stays(at)[t] == max(stays)


def test_a_chain_that_never_moves_stays_for_its_whole_length() -> None:
    np.testing.assert_array_equal(longest_stays(np.zeros((2, 1, 9), dtype=np.int64)), [9, 9])
    np.testing.assert_array_equal(longest_stays(np.arange(9)[None, None]), [1])


def test_the_effective_share_of_each_task() -> None:
    """1 for equal weights, 1/p where one point has all the weight; a task without any weight has them equal."""
    logs = np.stack([np.full(10, -5.0), np.where(np.arange(10) == 3, 0.0, -900.0), np.full(10, -np.inf)])
    np.testing.assert_allclose(effective_share(logs), [1.0, 0.1, 1.0])
    np.testing.assert_allclose(effective_share(np.log([[3.0, 1.0]])), 16 / 10 / 2)


def test_only_a_task_without_any_weight_gets_equal_ones() -> None:
    logs = np.array([[0.0, -np.inf, 2.0], [-np.inf, -np.inf, -np.inf]])
    np.testing.assert_array_equal(_or_equal(logs), [[0.0, -np.inf, 2.0], [0.0, 0.0, 0.0]])


def test_chains_start_at_points_drawn_by_their_weights() -> None:
    logs = np.log(np.array([[0.1, 0.6, 0.3], [0.25, 0.0, 0.75]]) + 1e-320) + 500.0
    starts = _starts(logs, 4000, [np.random.default_rng(0), np.random.default_rng(1)])
    shares = np.stack([np.bincount(own, minlength=3) for own in starts]) / 4000
    np.testing.assert_allclose(shares, [[0.1, 0.6, 0.3], [0.25, 0.0, 0.75]], atol=0.035)


@pytest.mark.parametrize(
    ("changed", "enough"),
    [({}, True), ({"acceptance": 0.249}, False), ({"effective_share": 0.199}, False), ({"longest_stay": 101}, False)],
)
def test_chains_are_kept_where_all_three_signs_are_good(changed: dict[str, float], enough: bool) -> None:
    facts = {"acceptance": 0.25, "effective_share": 0.2, "longest_stay": 100} | changed
    assert accepted_enough(Draws(np.zeros((4, 1000, 2)), {}, "Independence", (), facts)) is enough


@float64
def test_starting_points_are_weighed_by_the_proposals_that_the_chains_use() -> None:
    """With weights of an earlier proposal a chain would leave its first point too easily, or never."""
    problem = setting("corner").problem
    run = _Run(_Stack.of([problem.target]), problem.target, problem.prior, [np.random.default_rng(0)])
    run.fit()
    found = run._proposed(chains=3, length=500)
    assert found.points.shape == (1, 3, 501, problem.target.size)
    assert all(start in run._round.points[0] for start in found.points[0, :, 0])
    now = run._evaluated(found.points.reshape(1, 3 * 501, -1))
    np.testing.assert_allclose(found.logs.reshape(1, -1), now.logs, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(found.lp.reshape(1, -1), now.lp, rtol=1e-12)
    np.testing.assert_array_equal(found.rewards.reshape(now.rewards.shape), now.rewards)
    assert effective_share(now.logs)[0] > 0.4


@float64
@pytest.mark.parametrize("name", ["corner", "bimodal", "normal"])
def test_weights_are_the_posterior_over_the_whole_proposal(name: str) -> None:
    """log p(x) + power log p(expert | R) - log g(x), where a tenth of g is the prior p itself."""
    problem = setting(name).problem
    run = _Run(_Stack.of([problem.target]), problem.target, problem.prior, [np.random.default_rng(0)])
    run.fit()
    points = np.concatenate([run._drawn(50)[0], np.full((1, problem.target.size), 6.0)])  # where there is no kernel
    found = run._evaluated(points[None])
    log_prior = stats.norm.logpdf(points).sum(axis=1)
    kernels = log_density(run._each[0]._replace(share=np.asarray(0.0)), points, log_prior)
    proposal = np.logaddexp(np.log(0.9) + kernels, np.log(0.1) + log_prior)
    likelihood = [
        float(problem.target.power * problem.target.likelihood(jnp.asarray(reward))) for reward in found.rewards[0]
    ]
    np.testing.assert_allclose(found.logs[0], log_prior + likelihood - proposal, rtol=1e-9, atol=1e-9)


def test_the_same_task_twice_is_two_chains_of_it() -> None:
    """Targets whose every array is shared have no part of their own."""
    problem, sampler = setting("corner").problem, Independence(draws=50)
    alone = sampler.sample(problem, 3, Silent())
    streams = [stream(3, "independence sampler") for _ in range(2)]
    both = sampler.sample_many([problem.target] * 2, problem.prior, [np.random.default_rng(own) for own in streams])
    for one in both:
        np.testing.assert_allclose(one.draws, alone.draws, rtol=1e-9)
