"""The claims of the paper's section 4 and what the measured numbers say about them."""

from typing import Any

import numpy as np

from kdbirl.experiments.contraction import NAME
from kdbirl.experiments.ledger import Claim, Verdict, opposite, withheld
from kdbirl.experiments.statistics import (
    NEARLY_ONE,
    RATE_TOLERANCE,
    TAIL,
    Interval,
    converges,
    goes_to_one,
    has_rate,
)

Numbers = dict[str, Any]
LEMMA, THEOREM = "Section 4, Lemma 4.1; proof in Appendix A", "Section 4, Theorem 4.2; proof in Appendix A"
CONVERGES = "the CKDE converges to the true p(s, a | R) as m grows"
CONTRACTS = "the posterior mass in an L1 ball about the equivalence class of R* goes to 1 as n and m grow"


def claims(numbers: Numbers) -> list[Claim]:
    """One row for each claim and variant; without a verdict where the run was quick or had too few seeds."""
    made = [*_lemma(numbers["lemma_4_1"]), *_theorem(numbers["theorem_4_2"])]
    return [withheld(claim, numbers["configuration"]["quick"]) for claim in made]


def _lemma(lemma: Numbers) -> list[Claim]:
    return [_convergence(lemma), _rate(lemma), _with_the_papers_rule(lemma), _root(lemma), _few_tasks(lemma)]


def _errors(lemma: Numbers, path: str) -> tuple[np.ndarray, np.ndarray, float]:
    return np.asarray(lemma["paths"][path]["error"]), np.asarray(lemma["m"], dtype=float), lemma["rate"]


def _from_to(lemma: Numbers, path: str) -> str:
    mean, m = lemma["paths"][path]["mean"]["number"], lemma["m"]
    return f"mean L1 error {mean[0]:.3f} at m = {m[0]:,} and {mean[-1]:.3f} at m = {m[-1]:,}"


def _tail(lemma: Numbers) -> str:
    return (
        f"slope of log L1 error in log m over the {min(TAIL, len(lemma['m']))} largest m, "
        f"below {lemma['rate'] / 2:g} (half of the theory's) for convergence"
    )


def _convergence(lemma: Numbers) -> Claim:
    found, verdict = converges(*_errors(lemma, "every-row"))
    why = f"a reward drawn anew for each row, h and h' ~ m^(-1/(p+4)): {_from_to(lemma, 'every-row')}"
    return _claim(
        "lemma-4.1", "ours", CONVERGES, LEMMA, _tail(lemma), found, _errors(lemma, "every-row")[0], verdict, why
    )


def _rate(lemma: Numbers) -> Claim:
    errors, sizes, rate = _errors(lemma, "every-row")
    found, verdict = has_rate(errors, sizes, rate)
    squared = lemma["paths"]["every-row"]["squared_error_slope"]
    why = (
        f"theory {rate:g}, which the interval {'covers' if found.low <= rate <= found.high else 'does not cover'}: the "
        f"verdict allows {RATE_TOLERANCE:g} for finite m; the integrated squared error has slope "
        f"{squared['number']:.3f} [{squared['low']:.3f}, {squared['high']:.3f}] against {2 * rate:g}"
    )
    claim = "with h ~ m^(-1/(p+4)) the error falls as m^(-2/(p+4)), the root of the MISE's rate; p = 4 here"
    where = "Appendix A, proof of Lemma 4.1 (MISE of Wand and Jones, of Chacon and Duong); the text states no rate"
    statistic = f"slope of log L1 error in log m over all m, within {RATE_TOLERANCE:g} of the theory's"
    return _claim("lemma-4.1-rate", "ours", claim, where, statistic, found, errors, verdict, why)


def _with_the_papers_rule(lemma: Numbers) -> Claim:
    errors, sizes, rate = _errors(lemma, "paper-rule")
    found, verdict = converges(errors, sizes, rate)
    h = lemma["paths"]["paper-rule"]["h"]
    why = (
        "with the printed bandwidth rule (variance of the pairwise distances) h does not shrink "
        f"(h = {h[0]:.3f} at the smallest m, {h[-1]:.3f} at the largest): it meets the lemma's printed conditions, but "
        f"not h -> 0, which only the appendix asks for; {_from_to(lemma, 'paper-rule')}"
    )
    return _claim("lemma-4.1", "printed", CONVERGES, LEMMA, _tail(lemma), found, errors, verdict, why)


def _root(lemma: Numbers) -> Claim:
    errors, sizes, rate = _errors(lemma, "root")
    found, verdict = converges(errors, sizes, rate)
    claim = "it converges too where rewards repeat, if the number of tasks grows (K = sqrt(m))"
    why = f"the proof takes the rewards of rows as independent; {_from_to(lemma, 'root')}"
    return _claim("lemma-4.1-repeated-rewards", "ours", claim, LEMMA, _tail(lemma), found, errors, verdict, why)


def _few_tasks(lemma: Numbers) -> Claim:
    errors, sizes, rate = _errors(lemma, "few-tasks")
    found, verdict = converges(errors, sizes, rate)
    claim = "the training rewards must sufficiently cover the reward space: with 4 tasks, more rows do not help"
    where = "Section 4, the sentence before Lemma 4.1"
    why = f"{_from_to(lemma, 'few-tasks')}; the largest m no longer lower it"
    return _claim("lemma-4.1-cover", "ours", claim, where, _tail(lemma), found, errors, opposite(verdict), why)


def _theorem(theorem: Numbers) -> list[Claim]:
    n = theorem["n"][-1]
    statistic = f"mean mass in the ball of radius {theorem['radii'][0]:g} at n = {n:,}, above {NEARLY_ONE:g} for 1"
    made = []
    for path, name, variant, claim, contrary in (
        ("growing", "theorem-4.2", "ours", CONTRACTS, False),
        ("paper-rule", "theorem-4.2", "printed", CONTRACTS, False),
        (
            "fixed-1024",
            "theorem-4.2-n-alone",
            "ours",
            "m must grow with n: at m = 1,024 the mass does not go to 1",
            True,
        ),
        ("fixed-64", "theorem-4.2-n-alone-64", "ours", "m must grow with n: at m = 64 the mass does not go to 1", True),
    ):
        mass = np.asarray(theorem["paths"][path]["mass"])[:, :, 0]
        found, verdict = goes_to_one(mass)
        shown = opposite(verdict) if contrary else verdict
        why = _about(theorem, path)
        made.append(_claim(name, variant, claim, THEOREM, statistic, found, mass, shown, why))
    return made


def _about(theorem: Numbers, path: str) -> str:
    """Where the posterior ended: its distance from the truth beside its own width, and what its intervals cover."""
    found, seeds = theorem["paths"][path], len(theorem["paths"][path]["mass"])
    error, sd, scale = (np.asarray(found[name])[:, -1] for name in ("error", "sd", "scale_sd"))
    covered = round(found["coverage"][-1] * seeds)
    mass = np.asarray(found["mass"])[:, :, 0].mean(axis=0)
    return (
        f"{found['label']}: at n = {theorem['n'][-1]:,} the posterior of g lies {np.mean(np.abs(error)):.3f} from the "
        f"truth in the mean, with sd {np.mean(sd):.3f} (median ratio {np.median(np.abs(error) / sd):.1f}; mean mass "
        f"{mass[-2]:.2f} at the n before, {mass[-1]:.2f} at the last); its 90 % intervals cover the truth for "
        f"{covered} of {seeds} seeds; the sd of R_1 + R_2, of which behaviour says nothing, fell from the prior's "
        f"{theorem['prior_scale_sd']:.2f} to {np.mean(scale):.3f}"
    )


def _claim(
    name: str,
    variant: str,
    claim: str,
    where: str,
    statistic: str,
    found: Interval,
    table: np.ndarray,
    verdict: Verdict,
    why: str,
) -> Claim:
    number, low, high = (round(value, 6) for value in (found.number, found.low, found.high))
    return Claim(NAME, name, variant, claim, where, statistic, number, low, high, len(table), verdict, why)
