"""Have the draws converged? R-hat, effective sample sizes, divergences and E-BFMI, and one plain sentence.

R-hat is the larger of the rank-normalised split R-hat and its folded version; bulk ESS is that of rank-normalised
split chains, tail ESS the smaller of those of the 5 % and 95 % quantiles (Vehtari et al. 2021, arXiv:1903.08008);
all three come from ArviZ. E-BFMI is mean((E_t - E_{t-1})^2) / var(E) per chain (Betancourt 2016, arXiv:1604.00695).

A single chain is cut in two before R-hat is taken (which cuts again), so that drift is seen; that several chains
would agree cannot be. Draws that are independent by construction (`INDEPENDENT`) have nothing to converge: they are
only checked against the sampling noise of the diagnostics themselves, see `r_hat_limit` and `ess_limit`.

Draws on a lattice may agree on the wrong answer: `_on_a_lattice` and `_in_cells` ask whether it is fine enough.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

R_HAT_LIMIT = 1.01
ESS_PER_CHAIN = 100
E_BFMI_LIMIT = 0.3
PARETO_K_LIMIT = 0.7
FEWEST_WEIGHTS = 25  # of which k-hat can be estimated: ArviZ takes a fifth of them for the tail, and needs five
MINIMUM_DRAWS = 8  # per chain: two halves of four are the least that split diagnostics can use
INDEPENDENT = frozenset({"grid", "exact", "vi", "amortised"})
POINT_ESTIMATE = "Point estimate"  # the sampler's name where there is one draw, by design
FALSE_ALARM = 1e-3  # how often independent draws may be blamed, over all parameters of one posterior
SEVERE_R_HAT = 1.05
SD_IN_STEPS, SEVERE_SD_IN_STEPS = 1.0, 0.5  # of draws on a lattice; `_on_a_lattice` has what they stand for
PAIR_IN_STEPS = 0.45  # of the sd of a sum or difference of two parameters; `_along_a_ridge` has what it stands for
FINE_STEP = 0.75  # of the sd: the step to take, which leaves a third for the error of the estimate
FEW_CELLS = 10.0  # effective cells below which a posterior drawn within cells is as narrow as these can say

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, eq=False)
class Convergence:
    """What the diagnostics say. NaN where a number cannot be computed (too few draws, a parameter that never moves)."""

    r_hat: Float[np.ndarray, " q"]
    ess_bulk: Float[np.ndarray, " q"]
    ess_tail: Float[np.ndarray, " q"]
    divergences: int
    e_bfmi: Float[np.ndarray, " chain"]
    ok: bool
    sentence: str
    colour: str = "green"  # "green", "amber" or "red", as on a report card


@dataclass(frozen=True)
class Finding:
    """One finding: what is wrong and what to do; `severe` makes the card red."""

    sentence: str
    severe: bool = False


def assess(
    draws: Float[np.ndarray, "chain draw q"],
    names: Sequence[str],
    sampler: str,
    sample_stats: Mapping[str, Array] | None = None,
    pareto_k: float | None = None,
    lattice_step: Sequence[float] | None = None,
    effective_cells: float | None = None,
) -> Convergence:
    """Judge draws by the limits above.

    pareto_k: the k-hat of a variational approximation. lattice_step `(q,)`: of draws on a lattice, between neighbours.
    effective_cells: 1 / sum of squared masses, of draws spread within cells.
    """
    if sampler == POINT_ESTIMATE:
        return _of_a_point(draws)
    stats = sample_stats or {}
    independent = is_independent(sampler)
    r_hat, bulk, tail = _diagnose(draws)
    divergences = int(np.count_nonzero(stats["diverging"])) if "diverging" in stats else 0
    e_bfmi = _e_bfmi(stats.get("energy"), draws.shape[0])
    problems = [
        *(_immobile(draws, names) if lattice_step is None else _on_a_lattice(draws, names, np.asarray(lattice_step))),
        *([] if lattice_step is None else _along_a_ridge(draws, names, np.asarray(lattice_step))),
        *_in_cells(effective_cells),
        *_too_few(draws, independent),
        *_disagreeing(r_hat, names, r_hat_limit(draws.shape, independent), draws.shape[0], sampler),
        *_inefficient(bulk, tail, names, ess_limit(draws.shape, independent), draws.shape, sampler),
        *_diverging(divergences, draws.shape),
        *_slow_energy(e_bfmi),
        *_poor_approximation(pareto_k),
    ]
    ok = not problems
    sentence = _praise(r_hat, bulk, tail, draws.shape, sampler) if ok else _blame(problems)
    colour = "green" if ok else "red" if any(p.severe for p in problems) else "amber"
    return Convergence(r_hat, bulk, tail, divergences, e_bfmi, ok, sentence, colour)


def _of_a_point(draws: Array) -> Convergence:
    """Nothing to converge, and nothing known about uncertainty."""
    chains, _, q = draws.shape
    nothing = np.full(q, np.nan)
    sentence = "This is a point estimate: it has no uncertainty to judge, and no interval."
    return Convergence(nothing, nothing, nothing, 0, np.full(chains, np.nan), True, sentence, "not assessed")


def is_independent(sampler: str) -> bool:
    """Whether the sampler's draws are independent by construction; only the first word of its name counts."""
    word = re.match(r"[A-Za-z]+", sampler)
    return word is not None and word.group().casefold() in INDEPENDENT


def r_hat_limit(shape: tuple[int, ...], independent: bool) -> float:
    """1.01; for independent draws, where R-hat is only noise, at least what that noise reaches once in 1/FALSE_ALARM.

    With m pieces of n draws R-hat^2 = (F + n - 1) / n, and for independent draws F has an F distribution with m - 1
    and m (n - 1) degrees of freedom: 400 draws in one chain pass 1.01 for one parameter in fifteen. The limit divides
    FALSE_ALARM by the 2 q values (bulk and folded) that are compared with it.
    """
    chains, draws, q = shape
    if not independent or draws < MINIMUM_DRAWS:
        return R_HAT_LIMIT
    from scipy.stats import f as f_distribution

    pieces = 2 * max(chains, 2)
    length = draws // (2 if chains > 1 else 4)
    ratio = float(f_distribution.ppf(1 - FALSE_ALARM / (2 * q), pieces - 1, pieces * (length - 1)))
    return max(R_HAT_LIMIT, math.sqrt((ratio + length - 1) / length))


def ess_limit(shape: tuple[int, ...], independent: bool) -> float:
    """100 per chain; independent draws only have to show 5 % of their number.

    The ESS of a hundred independent draws is estimated anywhere between 10 and 200, so a limit of 100 would blame
    them for the noise of the estimate. That there are enough of them is asked of their number, in `_too_few`.
    """
    chains, draws, _ = shape
    wanted = float(ESS_PER_CHAIN * chains)
    return min(wanted, 0.05 * chains * draws) if independent else wanted


def _arviz() -> Any:
    """ArviZ's functions on arrays. Importing them takes a second or two, so only when somebody asks."""
    from arviz_stats.base.array import array_stats

    return array_stats


def _diagnose(draws: Array) -> tuple[Array, Array, Array]:
    """R-hat, bulk ESS and tail ESS of each parameter; NaN where a parameter is constant or the draws are too few."""
    chains, n_draws, q = draws.shape
    r_hat, bulk, tail = (np.full(q, np.nan) for _ in range(3))
    if n_draws < MINIMUM_DRAWS:
        return r_hat, bulk, tail
    array_stats = _arviz()
    for j in np.flatnonzero(np.ptp(draws, axis=(0, 1)) > 0):
        values = draws[:, :, j]
        two_or_more = values if chains > 1 else values[0, : n_draws // 2 * 2].reshape(2, -1)
        with np.errstate(all="ignore"):  # a chain that is stuck has no variance within: R-hat is then infinite
            r_hat[j] = np.nan_to_num(array_stats.rhat(two_or_more), nan=np.inf, posinf=np.inf)
            bulk[j] = array_stats.ess(values, method="bulk")
            tail[j] = array_stats.ess(values, method="tail", prob=(0.05, 0.95))
    return r_hat, bulk, tail


def _e_bfmi(energy: Array | None, chains: int) -> Array:
    """E-BFMI of each chain; NaN without energies, with too few of them, or when they do not vary."""
    values = np.full(chains, np.nan)
    if energy is None or energy.shape[1] < MINIMUM_DRAWS:
        return values
    moving = np.isfinite(energy).all(axis=1) & (np.ptp(np.nan_to_num(energy), axis=1) > 0)
    if moving.any():
        values[moving] = _arviz().bfmi(np.asarray(energy[moving], dtype=float))
    return values


def _immobile(draws: Array, names: Sequence[str]) -> list[Finding]:
    if draws.shape[0] * draws.shape[1] < 2:
        return []  # a single draw cannot move; `_too_few` speaks of it
    stuck = np.flatnonzero(np.ptp(draws, axis=(0, 1)) == 0)
    if not stuck.size:
        return []
    value = f" (always {draws[0, 0, stuck[0]]:.4g})" if stuck.size == 1 else ""
    return [
        Finding(
            f"{_listed(stuck, names)} never moved{value}: the sampler is stuck or the prior leaves no room; "
            "check the prior's bounds and the bandwidths, or use another sampler.",
            severe=True,
        )
    ]


def _on_a_lattice(draws: Array, names: Sequence[str], step: Float[np.ndarray, " q"]) -> list[Finding]:
    """The sd of each parameter's draws should be a step or more.

    Worst is a posterior that runs to a bound: with density exp(-x / s) from the bound inwards and points in the middle
    of cells of width h, the sum over points gives, with u = h / (2 s),

        mean / s = u coth(u),        sd / s = u / sinh(u),        sd / h = 1 / (2 sinh(u)).

    At sd = h the mean is off by 0.08 s and the sd 4 % too small; at half of it by 0.25 s and 12 %; at sd = h / 10 by
    1.4 s and 54 %. (A flat posterior over a few cells has the same 4 % at sd = h; a normal one away from bounds is
    right to 1e-8.) Solved for s, the last formula says from draws on a coarse lattice which step would do. Draws at a
    single point say that another has less than 3 / n of the mass: sd < h sqrt(3 / n).
    """
    least = step * np.sqrt(3 / (draws.shape[0] * draws.shape[1]))
    in_steps = np.maximum(draws.std(axis=(0, 1)), least) / step
    bad = _worst_first(in_steps < SD_IN_STEPS, -in_steps)
    if not bad.size or draws.shape[0] * draws.shape[1] < MINIMUM_DRAWS:
        return []
    worst, wanted = int(bad[0]), float(np.min((FINE_STEP * step / (2 * np.arcsinh(1 / (2 * in_steps))))[bad]))
    return [
        Finding(
            f"The lattice is too coarse for {_listed(bad, names)}: the draws' sd is {in_steps[worst]:.2g} of the step "
            f"{step[worst]:.3g} (at least {SD_IN_STEPS:g} is wanted), so the lattice, not the data, decides mean and "
            f"width; {_finer(wanted)}",
            severe=bool(in_steps[worst] < SEVERE_SD_IN_STEPS),
        )
    ]


def _along_a_ridge(draws: Array, names: Sequence[str], step: Float[np.ndarray, " q"]) -> list[Finding]:
    """The sd of each sum and difference of two parameters should be half a step: a diagonal ridge can be thinner.

    A normal density of variance v across the ridge, in steps, has on the lattice the variance of the masses
    exp(-k^2 / (2 v)): at sd = 0.5 it gives 0.46 steps, at 0.36 only 0.2. There it is 2 exp(-1 / (2 v)), which is solved
    for v to say which step would do. Parameters that are each too narrow are told by `_on_a_lattice`.
    """
    n, q = draws.shape[0] * draws.shape[1], draws.shape[2]
    if q < 2 or n < MINIMUM_DRAWS:
        return []
    covariance = np.cov((draws / step).reshape(n, q), rowvar=False)
    variances = np.diag(covariance)
    across = np.maximum(variances[:, None] + variances - 2 * np.abs(covariance), 3 / n)
    told = variances < SD_IN_STEPS**2
    bad = np.triu((across < PAIR_IN_STEPS**2) & ~told & ~told[:, None], 1)
    if not bad.any():
        return []
    i, j = (int(k) for k in np.unravel_index(int(np.where(bad, across, np.inf).argmin()), bad.shape))
    pair = f"{names[i]!r} {'-' if covariance[i, j] > 0 else '+'} {names[j]!r}"
    more = f" and {int(bad.sum()) - 1} more sums and differences" if bad.sum() > 1 else ""
    sd = float(across[i, j] ** 0.5)
    wanted = FINE_STEP * float(step[[i, j]].min()) / float(np.sqrt(2 * np.log(2 / across[i, j])))
    return [
        Finding(
            f"The lattice is too coarse for {pair}{more}: the draws' sd is {sd:.2g} steps (at least {PAIR_IN_STEPS:g} "
            f"is wanted), so the lattice, not the data, decides it; {_finer(wanted)}",
            severe=sd < PAIR_IN_STEPS / 2,
        )
    ]


def _finer(step: float) -> str:
    """What to do about a coarse lattice: a step of two digits, rounded down."""
    digits = 10.0 ** (np.floor(np.log10(step)) - 1)
    rounded = f"{np.floor(step / digits) * digits:.2g}"
    return f'take step={rounded} or less, with a larger thin, or a sampler without a lattice, such as "nuts".'


def _in_cells(effective: float | None) -> list[Finding]:
    if effective is None or effective >= FEW_CELLS:
        return []
    return [
        Finding(
            f"The posterior fills about {effective:.2g} cells of its table (at least {FEW_CELLS:g} are wanted): it may "
            "be narrower than these draws; use more cells (per_axis, shells)."
        )
    ]


def _too_few(draws: Array, independent: bool) -> list[Finding]:
    chains, n_draws, _ = draws.shape
    if n_draws < MINIMUM_DRAWS:
        extent = _extent(chains, n_draws)
        return [Finding(f"There is only {extent}, too few to judge: ask for more draws.", severe=True)]
    if independent and chains * n_draws < ESS_PER_CHAIN:
        return [Finding(f"There are only {chains * n_draws} draws: ask for at least {ESS_PER_CHAIN}, better 1000.")]
    return []


def _disagreeing(r_hat: Array, names: Sequence[str], limit: float, chains: int, sampler: str = "") -> list[Finding]:
    bad = _worst_first(r_hat >= limit, r_hat)
    if not bad.size:
        return []
    worst = float(r_hat[bad[0]])
    who = "the chains disagree" if chains > 1 else "the beginning and the end of the chain disagree"
    shown = f"{worst:.3f}" if worst < 100 else "over 100"
    return [
        Finding(
            f"R-hat of {_listed(bad, names)} is {'up to ' if bad.size > 1 else ''}{shown} (below {limit:.4g} is wanted)"
            f": {who}; raise {_what_to_raise(sampler)}, and if that does not help the posterior may have several "
            f"modes: {_for_several_modes(sampler)}.",
            severe=worst >= SEVERE_R_HAT,
        )
    ]


def _is(sampler: str, *names: str) -> bool:
    return sampler.casefold().startswith(names)


def _what_to_raise(sampler: str) -> str:
    """What this sampler has: only chains warm up."""
    if _is(sampler, "smc"):
        return "particles (--draws)"
    return "draws" if _is(sampler, "independence", *INDEPENDENT) else "warmup and draws"


def _for_several_modes(sampler: str) -> str:
    return "look at each run's draws" if _is(sampler, "smc") else "use the sampler SMC"


def _inefficient(
    bulk: Array, tail: Array, names: Sequence[str], limit: float, shape: tuple[int, ...], sampler: str = ""
) -> list[Finding]:
    least = np.fmin(bulk, tail)
    bad = _worst_first(least <= limit, -least)
    if not bad.size:
        return []
    worst = float(least[bad[0]])
    where = "bulk" if bulk[bad[0]] <= tail[bad[0]] else "tails"
    factor = math.ceil(limit / worst * 1.2)
    return [
        Finding(
            f"{_listed(bad, names)} {'has' if bad.size == 1 else 'have'} as few as {worst:.0f} effective draws in the "
            f"{where} of {shape[0] * shape[1]} (over {limit:.0f} are wanted): "
            f"raise {'particles (--draws)' if _is(sampler, 'smc') else 'draws'}, about {max(factor, 2)} times as many.",
            severe=worst < limit / 10,
        )
    ]


def _diverging(divergences: int, shape: tuple[int, ...]) -> list[Finding]:
    if not divergences:
        return []
    total = shape[0] * shape[1]
    return [
        Finding(
            f"{divergences} of {total} draws diverged: the sampler could not follow the density there, so a region may "
            "be missing; raise target_acceptance (for example to 0.95), or use wider bandwidths.",
            severe=divergences > 0.01 * total,
        )
    ]


def _slow_energy(e_bfmi: Array) -> list[Finding]:
    bad = np.flatnonzero(e_bfmi <= E_BFMI_LIMIT)
    if not bad.size:
        return []
    chains = ", ".join(str(c + 1) for c in bad[:4]) + (", ..." if bad.size > 4 else "")
    return [
        Finding(
            f"E-BFMI is {float(e_bfmi[bad].min()):.2f} in chain {chains} (above {E_BFMI_LIMIT} is wanted): "
            "the tails are explored slowly; raise warmup and draws, or take a prior with lighter tails."
        )
    ]


def _poor_approximation(pareto_k: float | None) -> list[Finding]:
    if pareto_k is None or pareto_k < PARETO_K_LIMIT:
        return []
    return [
        Finding(
            f"Pareto k-hat is {pareto_k:.2f} (below {PARETO_K_LIMIT} is wanted): the variational approximation is far "
            "from the posterior; use NUTS, SMC or Grid.",
            severe=True,
        )
    ]


def _blame(problems: Sequence[Finding]) -> str:
    start = "Do not use these draws yet." if any(p.severe for p in problems) else "Use these draws with care."
    return " ".join([start, *(p.sentence for p in problems)])


def _praise(r_hat: Array, bulk: Array, tail: Array, shape: tuple[int, ...], sampler: str) -> str:
    chains, draws, _ = shape
    if is_independent(sampler):
        note = " They are draws of an approximation." if sampler.casefold().startswith("vi") else ""
        return f"{chains * draws} independent draws ({sampler}): there is no chain that has to converge.{note}"
    agree = "agree" if chains > 1 else "is steady (several chains would be a stronger check)"
    return (
        f"{_extent(chains, draws).capitalize()} {agree}: R-hat is at most {np.max(r_hat):.3f}, "
        f"with at least {np.min(np.fmin(bulk, tail)):.0f} effective draws and no divergences."
    )


def _extent(chains: int, draws: int) -> str:
    plural = "draws" if draws != 1 else "draw"
    return f"{chains} chains of {draws} {plural}" if chains > 1 else f"one chain of {draws} {plural}"


def _worst_first(bad: Array, badness: Array) -> Array:
    """Indices where `bad`, largest `badness` first. Comparisons with NaN are False, so unknown values are left out."""
    index = np.flatnonzero(bad)
    ordered: Array = index[np.argsort(-badness[index], kind="stable")]
    return ordered


def _listed(index: Array, names: Sequence[str]) -> str:
    """`'w1'`, `'w1' and 'w2'`, or `'w1' and 7 more parameters`."""
    first = repr(names[int(index[0])])
    if index.size == 1:
        return first
    if index.size == 2:
        return f"{first} and {names[int(index[1])]!r}"
    return f"{first} and {index.size - 1} more parameters"
