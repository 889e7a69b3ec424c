"""Leave one demonstration out: how well the other episodes predict each episode, by PSIS-LOO (Vehtari et al. 2017).

    elpd_e = log sum_s w_s p(x_e | R_s),      w_s proportional to p(x_e | R_s)^(-power), Pareto-smoothed,

with p(x_e | R) the product over the rows of episode e: rows of one episode are not independent, so they leave
together. The weights carry the posterior's power; the predicted density never does. Densities are normalised by the
kernel's constant where it is known. Two posteriors of the same rows are compared by the sum of differences, and by its
standard error over episodes. Where the kernel or h differ, that asks for the constants (DESIGN 11), and for rows that
do not repeat: a density on values that repeat grows without bound as h shrinks, so it would always prefer the smaller.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.special import logsumexp

from kdbirl.errors import InputError
from kdbirl.posterior.convergence import FEWEST_WEIGHTS, is_independent
from kdbirl.posterior.result import Posterior
from kdbirl.trust.calibration import plain, shortened

MOST_REPEATED = 0.5  # share of expert rows that repeat another one, above which a density in h means nothing
FEW_EPISODES = 10  # below this a standard error over episodes is itself a guess


@dataclass(frozen=True, eq=False)
class LeaveOneOut:
    """elpd of each left-out episode `(E,)`, with Pareto k-hat `(E,)`; above `good_k` the estimate is unreliable.

    normalised: whether the kernel's constant is part of elpd. effective_parameters: log density in sample minus elpd.
    """

    episodes: Int[np.ndarray, " E"]
    rows: Int[np.ndarray, " E"]
    elpd: Float[np.ndarray, " E"]
    pareto_k: Float[np.ndarray, " E"]
    good_k: float
    effective_parameters: float
    power: float
    normalised: bool

    @property
    def total(self) -> float:
        """The sum over episodes."""
        return float(self.elpd.sum())

    @property
    def standard_error(self) -> float:
        """Of the total, over episodes."""
        return float(np.sqrt(len(self.elpd)) * self.elpd.std(ddof=1))

    @property
    def unreliable(self) -> Bool[np.ndarray, " E"]:
        """Episodes without which the posterior would be another one, beyond what reweighting can tell."""
        return self.pareto_k > self.good_k

    @property
    def sentence(self) -> str:
        """What was found."""
        bad = int(self.unreliable.sum())
        warning = (
            f" {bad} of {len(self.elpd)} episodes decide so much that leaving them out cannot be imitated (k-hat above "
            f"{self.good_k:.2g}): refit without them."
            if bad
            else ""
        )
        return (
            f"Leaving one episode of {len(self.elpd)} out, its log density is {self.total:.4g} in all (standard error "
            f"{self.standard_error:.2g}).{warning}"
        )

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        numbers = ("total", "standard_error", "good_k", "effective_parameters", "power", "normalised", "sentence")
        arrays = {name: plain(getattr(self, name)) for name in ("elpd", "pareto_k")}
        return {**{name: getattr(self, name) for name in numbers}, **arrays, "rows": self.rows.tolist()}


@dataclass(frozen=True, eq=False)
class Comparison:
    """Posteriors of the same expert, best first: total elpd, the difference to the best, and its standard error."""

    names: tuple[str, ...]
    results: tuple[LeaveOneOut, ...]
    differences: Float[np.ndarray, " models"]
    standard_errors: Float[np.ndarray, " models"]
    notes: tuple[str, ...]

    @property
    def sentence(self) -> str:
        """Which is best, and whether the others are worse by more than the noise."""
        close = [
            name
            for name, gap, error in zip(self.names[1:], self.differences[1:], self.standard_errors[1:], strict=True)
            if -gap <= 2 * error
        ]
        within = f"; {' and '.join(close)} within two standard errors of it" if close else "; clearly, by the others"
        return f"{self.names[0]} predicts left-out episodes best{within}.{''.join(f' {note}' for note in self.notes)}"

    def describe(self) -> list[str]:
        """A table in lines of at most 80 characters."""
        lines = [f"{'':32}{'elpd':>11}{'difference':>12}{'its s.e.':>10}{'k too high':>12}"]
        for i, (name, found) in enumerate(zip(self.names, self.results, strict=True)):
            numbers = f"{found.total:11.1f}{self.differences[i]:12.1f}{self.standard_errors[i]:10.1f}"
            lines.append(f"{shortened(name, 31):32}{numbers}{int(found.unreliable.sum()):12d}")
        return lines

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        rows = zip(self.names, self.results, self.differences, self.standard_errors, strict=True)
        models = [{"name": n, **r.to_dict(), "difference": float(d), "difference_se": float(s)} for n, r, d, s in rows]
        return {"sentence": self.sentence, "notes": list(self.notes), "models": models}


def leave_one_out(posterior: Posterior, episodes: Any) -> LeaveOneOut:
    """PSIS-LOO over the expert's episodes; `episodes (n,)` says which of them each expert row belongs to."""
    if posterior.log_likelihood is None:
        raise InputError("Leaving demonstrations out needs the log likelihood of each row; this posterior has none.")
    labels, index = _episodes(episodes, posterior)
    rows = np.bincount(index)
    # which distinct rows, and how often, each episode has (E, u)
    counts = np.zeros((len(labels), posterior.log_likelihood.shape[2]))
    np.add.at(counts, (index, posterior.expert_index), 1.0)
    table = np.einsum("cdu,eu->ecd", posterior.log_likelihood, counts)
    if not np.isfinite(table).all():
        raise InputError("Some draws give an expert row no density at all: use a kernel without an edge, or a wider h.")
    constant = _constant(posterior)
    elpd, pareto_k, parameters = _psis(table, posterior.power, _relative_efficiency(posterior))
    draws = posterior.draws.shape[0] * posterior.draws.shape[1]
    good_k = float(min(1 - 1 / np.log10(max(draws, 11)), 0.7))
    normalised = elpd - rows * (constant or 0.0)
    return LeaveOneOut(
        labels, rows, normalised, pareto_k, good_k, float(parameters.sum()), posterior.power, constant is not None
    )


def compare_leave_one_out(posteriors: Mapping[str, Posterior], episodes: Any) -> Comparison:
    """Compare posteriors of the same expert rows: kernels, bandwidths, powers, priors."""
    if len(posteriors) < 2:
        raise InputError("compare_leave_one_out needs at least two posteriors, by name.")
    for (name, one), (other_name, other) in pairwise(posteriors.items()):
        _require_comparable(name, one, other_name, other)
    found = {name: leave_one_out(posterior, episodes) for name, posterior in posteriors.items()}
    order = sorted(found, key=lambda name: -found[name].total)
    gaps = np.stack([found[name].elpd - found[order[0]].elpd for name in order])
    errors = np.sqrt(gaps.shape[1]) * gaps.std(axis=1, ddof=1)
    results = tuple(found[name] for name in order)
    return Comparison(tuple(order), results, gaps.sum(axis=1), errors, _notes(results))


def _notes(results: tuple[LeaveOneOut, ...]) -> tuple[str, ...]:
    notes = []
    if any(found.unreliable.any() for found in results):
        notes.append("Some episodes decide too much for this to be reliable (k-hat too high): refit without them.")
    if len(results[0].elpd) < FEW_EPISODES:
        notes.append(f"With {len(results[0].elpd)} episodes the standard errors are themselves guesses.")
    return tuple(notes)


def _require_comparable(name: str, one: Posterior, other_name: str, other: Posterior) -> None:
    if not np.array_equal(one.expert_features, other.expert_features):
        raise InputError(
            f"{name} and {other_name} do not see the same expert rows in the same features: their densities have "
            "different units and cannot be compared."
        )
    if one.settings.get("conditional") != other.settings.get("conditional"):
        raise InputError(f"{name} and {other_name} have different conditionals: densities of different things.")
    if one.h == other.h and one.settings.get("kernel") == other.settings.get("kernel"):
        return  # the constants are the same, whatever they are
    for label, posterior in ((name, one), (other_name, other)):
        if _constant(posterior) is None:
            raise InputError(
                f"{label}: the constant of its kernel ({posterior.settings.get('kernel', 'unknown')}) is not known, so "
                "its densities cannot be compared with those of another kernel or h. Compare at the same kernel and h, "
                "or by leaving tasks out (bandwidth='loto')."
            )
    repeated = 1 - len(np.unique(one.expert_features, axis=0)) / max(len(one.expert_features), 1)
    if repeated > MOST_REPEATED:
        raise InputError(
            f"{100 * repeated:.0f} % of the expert's rows repeat others: on discrete rows a density prefers the "
            f"smallest h without end, so {name} and {other_name} cannot be compared by it. Compare at the same kernel "
            "and h, or by leaving tasks out (bandwidth='loto')."
        )


def _constant(posterior: Posterior) -> float | None:
    """log of the integral of K_h; p(a | s, R) needs that of the action's part alone, which is not on record."""
    if posterior.settings.get("conditional", "state-action") != "state-action":
        return None
    constant = posterior.settings.get("kernel_log_constant")
    return None if constant is None else float(constant)


def _episodes(episodes: Any, posterior: Posterior) -> tuple[Any, Any]:
    labels, index = np.unique(np.asarray(episodes), return_inverse=True)
    n = len(posterior.expert_features)
    if index.ndim != 1 or len(index) != n:
        raise InputError(f"episodes: expected one value for each of the {n} expert rows, not {np.shape(episodes)}.")
    if len(labels) < 2:
        raise InputError("The expert has one episode: nothing is left without it. At least two are needed.")
    return np.arange(len(labels)), index


def _relative_efficiency(posterior: Posterior) -> float:
    """Effective draws over draws, which decides how long a tail is smoothed; 1 for independent draws."""
    if is_independent(posterior.sampler):
        return 1.0
    draws = posterior.draws.shape[0] * posterior.draws.shape[1]
    efficiency = float(np.mean(np.nan_to_num(posterior.convergence.ess_bulk, nan=draws))) / draws
    return min(max(efficiency, 1 / draws), 1.0)


def _psis(table: Float[np.ndarray, "E chain draw"], power: float, efficiency: float) -> tuple[Any, Any, Any]:
    """elpd, k-hat and effective parameters of each episode, by ArviZ."""
    from arviz_stats.base import array

    array_stats: Any = array.array_stats
    found: list[Any] = []
    for values in table:
        if values.size < FEWEST_WEIGHTS:
            found.append((np.nan, np.nan, np.nan))
            continue
        with np.errstate(all="ignore"):  # no tail can be fitted to weights that span more than a double's range
            weights, k = array_stats.psislw(power * values, r_eff=efficiency, axis=(-2, -1))
            found.append(array_stats.loo(values, r_eff=efficiency, log_weights=weights, pareto_k=k))
    elpd, pareto_k, parameters = (np.array(column, dtype=float) for column in zip(*found, strict=True))
    failed = ~np.isfinite(elpd) | ~np.isfinite(pareto_k)
    raw = logsumexp((1 - power) * table, axis=(1, 2)) - logsumexp(-power * table, axis=(1, 2))
    in_sample = elpd + parameters
    elpd = np.where(failed, raw, elpd)  # without smoothing, and marked as unreliable
    return elpd, np.where(failed, np.inf, pareto_k), np.where(failed, 0.0, in_sample - elpd)
