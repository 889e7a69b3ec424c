"""Independence Metropolis for one task or thousands: proposals that do not look at where the chain is.

A chain at z moves to a proposal z' ~ g with probability min(1, w(z') / w(z)), w = posterior / g. It is exact for any g,
and because no proposal depends on the chain, all densities are computed beforehand, in large matrix products over all
tasks: some hundred nanoseconds each, where a chain that has to wait for its last step pays microseconds. What it needs
is a g that is nearly the posterior (below): it is fitted to weighted points, first of the prior (the same for
all tasks), then of itself, and fixed before the chains start. Up to some ten informed parameters that works; where it
does not, few proposals are accepted, which the result says, and `accepted_enough` asks.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from scipy.special import ndtr, ndtri

from kdbirl._jax import float64
from kdbirl.posterior.priors import Prior, prior_points
from kdbirl.posterior.target import Draws, Problem, Target, density_problem, require_counts, require_numbers
from kdbirl.progress import Progress
from kdbirl.random_streams import stream

# A proposal for independence Metropolis: Student-t kernels around weighted points, and a share of the prior.
#
# With centres z_c drawn from weighted points of mean m and covariance Sigma,
#
#     g(z) = (1 - d) [ (1 - b) mean_c t_nu(z; m + a (z_c - m), h^2 Sigma) + b t_nu(z; m, s^2 Sigma) ] + d p(z),
#
# with a^2 + h^2 = 1, so that the narrow kernels have the points' mean and, nearly, their covariance whatever the number
# of centres (West 1993; Liu and West 2001); one wide kernel (s > 1) is for what the points have missed. The share d of
# the prior p bounds the weights p(z) L(z) / g(z) by L / d: the chain is then uniformly ergodic (Mengersen and Tweedie
# 1996), however badly the kernels fit. A prior of the user's own may lack its constant, and then has no share: the
# kernels' tails must do.

CENTRES = 192
PRIOR_SHARE = 0.1
WIDE, WIDE_SHARE = 1.3, 0.5  # one more kernel, around the mean and wider than the points, for what they have missed
LEAST_FREEDOM = 6  # of the Student-t kernels; one more where that makes the exponent a whole number, which is cheap


class Proposal(NamedTuple):
    """The mixture of one task. whitening: W with W'W = (h^2 Sigma)^-1; centres: W (m + a (z_c - m))."""

    centres: Float[np.ndarray, "c q"]
    whitening: Float[np.ndarray, "q q"]
    log_constant: Float[np.ndarray, ""]
    middle: Float[np.ndarray, " q"]
    width: Float[np.ndarray, ""]
    share: Float[np.ndarray, ""]


def freedom(q: int) -> int:
    """nu: degrees of freedom such that (nu + q) / 2 is a whole number."""
    return LEAST_FREEDOM + (q + LEAST_FREEDOM) % 2


def fitted_proposal(
    points: Float[np.ndarray, "p q"], log_weights: Float[np.ndarray, " p"], share: float, rng: np.random.Generator
) -> Proposal:
    """The mixture around weighted points, with that share of the prior."""
    from scipy.special import gammaln

    q = points.shape[1]
    weights = np.exp(log_weights - log_weights.max())
    weights /= weights.sum()
    effective = 1.0 / np.sum(weights**2)
    mean = weights @ points
    covariance = _covariance(points, weights, mean, effective)
    h = (4.0 / ((q + 2.0) * min(CENTRES, effective))) ** (1.0 / (q + 4.0))  # Silverman's rule
    h = min(h, 0.95)
    edges = np.cumsum(weights)
    chosen = np.searchsorted(edges, (np.arange(CENTRES) + rng.random()) / CENTRES * edges[-1])
    centres = mean + np.sqrt(1 - h**2) * (points[chosen] - mean)
    nu = freedom(q)
    root = h * np.sqrt((nu - 2) / nu) * np.linalg.cholesky(covariance)  # a Student-t has nu / (nu - 2) of its scale
    whitening = np.linalg.inv(root)
    constant = gammaln((nu + q) / 2) - gammaln(nu / 2) - 0.5 * q * np.log(nu * np.pi) - np.sum(np.log(np.diag(root)))
    return Proposal(
        centres @ whitening.T,
        whitening,
        np.asarray(constant),
        whitening @ mean,
        np.asarray(WIDE / h),
        np.asarray(share),
    )


def _covariance(points: np.ndarray, weights: np.ndarray, mean: np.ndarray, effective: float) -> np.ndarray:
    """Of the weighted points; with few effective points, drawn towards its own diagonal."""
    centred = points - mean
    own = (centred * weights[:, None]).T @ centred
    spread = np.maximum(np.diag(own), 1e-6 * np.maximum(points.var(axis=0), 1e-12))
    trust = effective / (effective + points.shape[1] + 1.0)
    return trust * own + (1 - trust) * np.diag(spread) + 1e-9 * np.diag(spread)


def drawn(proposal: Proposal, count: int, rng: np.random.Generator) -> Float[np.ndarray, "count q"]:
    """Independent draws from the kernels; the prior's share of them is to be replaced by draws from the prior."""
    centres, q = proposal.centres, proposal.centres.shape[1]
    nu = freedom(q)
    chosen = centres[rng.integers(len(centres), size=count)]
    steps = rng.standard_normal((count, q)) / np.sqrt(rng.chisquare(nu, (count, 1)) / nu)
    wide = rng.random((count, 1)) < WIDE_SHARE
    whitened = np.where(wide, proposal.middle + proposal.width * steps, chosen + steps)
    return np.asarray(whitened @ np.linalg.inv(proposal.whitening).T)


def log_density(
    proposal: Proposal, points: Float[np.ndarray, "p q"], log_prior: Float[np.ndarray, " p"]
) -> Float[np.ndarray, " p"]:
    """log g of each point, where `log_prior` is the prior's log density there. Costs a kernel for each centre."""
    from kdbirl.posterior.independence_loops import mean_kernels

    q = points.shape[1]
    nu = freedom(q)
    power = (nu + q) // 2
    own, narrow = points @ proposal.whitening.T, np.empty(len(points))
    mean_kernels(own, np.ascontiguousarray(proposal.centres.T), float(nu), power, narrow)
    squares = np.sum(((own - proposal.middle) / proposal.width) ** 2, axis=1)
    wide = (1.0 + squares / nu) ** -power / proposal.width**q
    kernels = (1 - WIDE_SHARE) * narrow + WIDE_SHARE * wide
    smooth = proposal.log_constant + np.log(np.maximum(kernels, 1e-300)) + np.log1p(-proposal.share)
    with np.errstate(divide="ignore"):  # no share
        return np.asarray(np.logaddexp(smooth, log_prior + np.log(proposal.share)))


PRIOR_POINTS = 4096  # where every task's density is looked at first
ROUND = 2048  # points of each round that fits the proposal
ROUNDS = 2
POINTS_AT_ONCE = 1024  # densities computed together: the table exp(b) of so many stays in the second cache
LEAST_ACCEPTED, LEAST_SHARE = 0.25, 0.2
LONGEST_STAY = 0.1  # proposals that a chain may refuse in a row, as a share of its draws
SMALLEST_LEVEL = 1e-300
SETTLING = 50  # proposals before the first draw: each chain starts at a point of the last round, chosen by its weight


@dataclass(frozen=True)
class Independence:
    """Independence Metropolis; `thin` proposals for each draw."""

    chains: int = 4
    draws: int = 1000
    thin: int = 2
    name: ClassVar[str] = "Independence"

    def __post_init__(self) -> None:
        require_counts(self.name, chains=self.chains, draws=self.draws, thin=self.thin)

    def sample(self, problem: Problem, seed: int, progress: Progress) -> Draws:
        """Draws of one task."""
        rng = np.random.default_rng(stream(seed, "independence sampler"))
        result = self.sample_many([problem.target], problem.prior, [rng])[0]
        progress.update(self.name, 1, 1)
        require_numbers(result.draws.reshape(-1, problem.target.size), result.stats["lp"].ravel())
        if not np.isfinite(result.stats["lp"]).all():
            raise density_problem("zero", PRIOR_POINTS)
        return result

    @float64
    def sample_many(
        self, targets: Sequence[Target], prior: Prior, generators: Sequence[np.random.Generator]
    ) -> list[Draws]:
        """Draws of each of several tasks, whose targets have arrays of the same shapes; a generator for each."""
        run = _Run(_Stack.of(targets), targets[0], prior, generators)
        run.fit()
        return run.chains(self)


def accepted_enough(draws: Draws) -> bool:
    """Whether the proposal was near enough to the posterior for the chains to be worth keeping.

    Enough proposals were accepted, their weights are even, and no chain stood still for long: a point that a chain
    cannot leave is one that the proposal hardly reaches.
    """
    count = draws.draws.shape[1]
    rested = draws.facts["longest_stay"] <= LONGEST_STAY * count
    return bool(
        draws.facts["acceptance"] >= LEAST_ACCEPTED and draws.facts["effective_share"] >= LEAST_SHARE and rested
    )


class _Form(NamedTuple):
    """How a target is put together: its tree, and which of its leaves all tasks share."""

    tree: Any
    shared: tuple[bool, ...]

    def target(self, own: tuple[Array, ...], shared: tuple[Array, ...]) -> Target:
        """Of one task."""
        parts = iter(own), iter(shared)
        built: Target = jax.tree.unflatten(self.tree, [next(parts[is_shared]) for is_shared in self.shared])
        return built


class _Stack(NamedTuple):
    """Several targets: the arrays of which each has its own, below each other, and those that are the same for all."""

    own: tuple[Array, ...]
    shared: tuple[Array, ...]
    form: _Form

    @classmethod
    def of(cls, targets: Sequence[Target]) -> "_Stack":
        columns = list(zip(*(jax.tree.leaves(target) for target in targets), strict=True))
        shared = tuple(all(value is column[0] for value in column) for column in columns)
        if all(shared):  # one target, alone or several times
            shared = (False,) * len(columns)
        own = (column for column, same in zip(columns, shared, strict=True) if not same)
        return cls(
            tuple(jnp.asarray(np.stack([np.asarray(value) for value in column])) for column in own),
            tuple(column[0] for column, same in zip(columns, shared, strict=True) if same),
            _Form(jax.tree.structure(targets[0]), shared),
        )


class _Round(NamedTuple):
    """Points of every task, their rewards and log weights, and log p(R) + power * log p(expert | R)."""

    points: Float[np.ndarray, "t *p q"]
    rewards: Float[np.ndarray, "t *p q"]
    logs: Float[np.ndarray, "t *p"]
    lp: Float[np.ndarray, "t *p"]


class _Run:
    """Proposals of a stack of tasks.

    Points x are the prior's normal scores, R = F^-1(Phi(x)) with the prior's quantiles F^-1: there the prior is the
    standard normal whatever its family, and the posterior, the prior times L, has no heavier tails than a normal. A
    prior of the user's own, without quantiles, is seen in the unconstrained z of `Target`.
    """

    def __init__(self, stack: _Stack, one: Target, prior: Prior, generators: Sequence[np.random.Generator]) -> None:
        self._stack, self._one, self._prior, self._rng = stack, one, prior, generators
        self._by_scores = prior.quantiles(np.full((1, one.size), 0.5)) is not None  # the density then has its constant
        self._share = PRIOR_SHARE if self._by_scores else 0.0
        rewards, points = self._prior_points()
        logs = np.asarray(_log_likelihoods(*stack, rewards)).T
        self._each = [
            fitted_proposal(points, weights, self._share, rng)
            for weights, rng in zip(_or_equal(logs), generators, strict=True)
        ]

    def _prior_points(self) -> tuple[Float[np.ndarray, "p q"], Float[np.ndarray, "p q"]]:
        """Rewards that stand for the prior, and where they are."""
        if not self._by_scores:
            rewards = prior_points(self._prior, PRIOR_POINTS)
            return rewards, np.asarray(_positions(self._one, jnp.asarray(rewards)))
        from scipy.stats import qmc

        levels = qmc.Sobol(self._one.size, rng=np.random.default_rng(0)).random(PRIOR_POINTS)
        scores = ndtri(levels.clip(1e-12, 1 - 1e-12))
        return self._rewards_at(scores), scores

    def _rewards_at(self, scores: Float[np.ndarray, "... q"]) -> Float[np.ndarray, "... q"]:
        """F^-1(Phi(x)); beyond eight standard deviations it is not told apart from the end."""
        levels = ndtr(scores).clip(SMALLEST_LEVEL, 1 - 2.0**-53)
        rewards = self._prior.quantiles(levels.reshape(-1, scores.shape[-1]))
        assert rewards is not None
        return rewards.reshape(scores.shape)

    def fit(self) -> None:
        """Fit the proposals, which were fitted to the prior's points, to their own."""
        for _ in range(ROUNDS):
            self._round = self._evaluated(self._drawn(ROUND))
            for t, (points, logs, rng) in enumerate(zip(self._round.points, self._round.logs, self._rng, strict=True)):
                if np.isfinite(logs).any():
                    self._each[t] = fitted_proposal(points, logs, self._share, rng)

    def _drawn(self, count: int) -> Float[np.ndarray, "t count q"]:
        """Points of every task: from its kernels, and a share of them from the prior."""
        points = np.stack([drawn(proposal, count, rng) for proposal, rng in zip(self._each, self._rng, strict=True)])
        for own, rng in zip(points, self._rng, strict=True):
            if self._share:
                places = np.flatnonzero(rng.random(count) < self._share)
                own[places] = rng.standard_normal((len(places), own.shape[1]))
        return points

    def _evaluated(self, points: Float[np.ndarray, "t p q"]) -> "_Round":
        if self._by_scores:
            rewards = self._rewards_at(points)
            log_base = -0.5 * np.sum(points**2, axis=2) - 0.5 * points.shape[2] * np.log(2 * np.pi)
        else:
            rewards, log_base = (np.asarray(part) for part in _constrained(self._one, jnp.asarray(points)))
        log_likelihood, log_prior = (np.asarray(part) for part in _log_densities(*self._stack, rewards))
        lp = log_likelihood + log_prior
        found = [log_density(*given) for given in zip(self._each, points, log_base, strict=True)]
        logs = np.where(np.isfinite(lp), log_base + log_likelihood - np.stack(found), -np.inf)
        return _Round(points, rewards, logs, lp)

    def _proposed(self, chains: int, length: int) -> "_Round":
        """Where each chain starts, and its proposals: arrays `(t, chain, 1 + length, ...)`.

        Starts are points of the last round, chosen by their weights there, and weighed again by the proposals of now.
        """
        starts = _starts(self._round.logs, chains, self._rng)
        first = np.take_along_axis(self._round.points, starts[..., None], axis=1)
        found = self._evaluated(np.concatenate([first, self._drawn(chains * length)], axis=1))

        def by_chain(values: np.ndarray) -> np.ndarray:
            rest = values[:, chains:].reshape(len(values), chains, length, *values.shape[2:])
            return np.concatenate([values[:, :chains, None], rest], axis=2)

        return _Round(*map(by_chain, found))

    def chains(self, sampler: Independence) -> list[Draws]:
        """The chains, with the proposals as they are now."""
        length = SETTLING + sampler.draws * sampler.thin
        _, candidates, logs, lp = self._proposed(sampler.chains, length)
        levels = np.stack([np.log(rng.random((sampler.chains, length))) for rng in self._rng])
        at = accepted_places(logs, levels)
        kept = at[:, :, SETTLING + sampler.thin :: sampler.thin]
        rewards = np.take_along_axis(candidates, kept[..., None], axis=2)
        lp = np.take_along_axis(lp, kept, axis=2)
        rates = np.mean(np.diff(at, axis=2) > 0, axis=(1, 2))
        stays = longest_stays(at)
        shares = effective_share(logs.reshape(len(logs), -1))
        return [
            Draws(
                rewards[t],
                {"lp": lp[t]},
                sampler.name,
                (),
                {"acceptance": float(rates[t]), "effective_share": float(shares[t]), "longest_stay": int(stays[t])},
            )
            for t in range(len(rewards))
        ]


def _or_equal(logs: Float[np.ndarray, "t p"]) -> Float[np.ndarray, "t p"]:
    """Equal log weights where a task has none: a compact kernel may reach none of the points."""
    return np.where(np.isfinite(logs).any(axis=1, keepdims=True), logs, 0.0)


def _starts(logs: Float[np.ndarray, "t p"], chains: int, generators: Any) -> Int[np.ndarray, "t chains"]:
    """Places of points drawn by their weights."""
    weights = np.exp(_or_equal(logs) - _or_equal(logs).max(axis=1, keepdims=True))
    shares = weights / weights.sum(axis=1, keepdims=True)
    return np.stack([rng.choice(len(own), chains, p=own) for own, rng in zip(shares, generators, strict=True)])


def effective_share(logs: Float[np.ndarray, "t p"]) -> Float[np.ndarray, " t"]:
    """(sum w)^2 / (p sum w^2) of each row of log weights."""
    logs = _or_equal(logs)
    weights = np.exp(logs - logs.max(axis=1, keepdims=True))
    return np.asarray(weights.sum(axis=1) ** 2 / (weights**2).sum(axis=1) / logs.shape[1])


def accepted_places(
    log_weights: Float[np.ndarray, "t c n"], log_levels: Float[np.ndarray, "t c m"]
) -> Int[np.ndarray, "t c n"]:
    """Which proposal each chain stands at: 0 is where it starts, and proposal j is compared with level j - 1."""
    from kdbirl.posterior.independence_loops import accepted

    at = np.empty(log_weights.shape, dtype=np.int64)
    for weights, levels, places in zip(log_weights, log_levels, at, strict=True):
        accepted(np.ascontiguousarray(weights), np.ascontiguousarray(levels), places)
    return at


def longest_stays(at: Int[np.ndarray, "t c n"]) -> Int[np.ndarray, " t"]:
    """The longest time that any chain of a task stood at one point."""
    tasks, chains, n = at.shape
    moved = np.concatenate([np.ones((tasks, chains, 1), bool), np.diff(at, axis=2) > 0], axis=2)
    last = np.maximum.accumulate(np.where(moved, np.arange(n), 0), axis=2)
    return np.asarray((np.arange(n) - last).max(axis=(1, 2)) + 1)


@jax.jit
def _positions(target: Target, rewards: Float[Array, "p q"]) -> Float[Array, "p q"]:
    return jax.vmap(target.unconstrain)(rewards)


@jax.jit
def _constrained(target: Target, points: Float[Array, "t p q"]) -> tuple[Float[Array, "t p q"], Float[Array, "t p"]]:
    """R(z), and the prior's log density of z up to a constant; of any of the targets, which share the prior."""

    def one(z: Array) -> tuple[Array, Array]:
        reward, log_slope = target.constrain(z)
        return reward, target.log_prior(reward) + log_slope

    return jax.vmap(jax.vmap(one))(points)


@partial(jax.jit, static_argnames="form")
def _log_likelihoods(
    own: tuple[Array, ...], shared: tuple[Array, ...], form: _Form, rewards: Float[Array, "p q"]
) -> Float[Array, "p t"]:
    """power * log p(expert | R) of every task at the same rewards: what tasks share is computed once for each."""

    def at(reward: Array) -> Array:
        def of_task(arrays: tuple[Array, ...]) -> Array:
            target = form.target(arrays, shared)
            return target.power * target.likelihood(reward)

        return jax.vmap(of_task)(own)

    return jax.lax.map(at, rewards, batch_size=max(POINTS_AT_ONCE // len(own[0]), 1))


@partial(jax.jit, static_argnames="form")
def _log_densities(
    own: tuple[Array, ...], shared: tuple[Array, ...], form: _Form, rewards: Float[Array, "t p q"]
) -> tuple[Float[Array, "t p"], Float[Array, "t p"]]:
    """power * log p(expert | R) and log p(R) of every task at its own rewards."""

    def of_task(task: tuple[tuple[Array, ...], Array]) -> tuple[Array, Array]:
        target = form.target(task[0], shared)

        def one(reward: Array) -> tuple[Array, Array]:
            return target.power * target.likelihood(reward), target.log_prior(reward)

        return jax.lax.map(one, task[1], batch_size=POINTS_AT_ONCE)

    return jax.lax.map(of_task, (own, rewards))
