"""A posterior with what is known about how far it can be trusted: findings as data, and the report card."""

import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from kdbirl.errors import IdentifiabilityWarning
from kdbirl.methods.fitted import Choice, Fitted
from kdbirl.posterior.result import Posterior
from kdbirl.posterior.target import Target
from kdbirl.trust.calibration import Calibration
from kdbirl.trust.card import NOT_ASSESSED, InUse, card
from kdbirl.trust.directions import scale_and_direction
from kdbirl.trust.identifiability import Identifiability, identify, principal_contractions
from kdbirl.trust.predictive import Predictive
from kdbirl.trust.sensitivity import Sensitivity
from kdbirl.trust.support import Support, assess_support

NOTHING = 1e-12  # share of a parameter's axis that is informed, below which it is not at all
LARGEST_BASIS = 20  # parameters up to which the directions themselves are kept on record


def diagnosed(posterior: Posterior, fitted: Fitted, choice: Choice) -> Posterior:
    """The posterior with its findings: identifiability and support, and calibration where tasks were left out anyway.

    The findings are in `settings["diagnosis"]`, their colours in `cards`.
    """
    widths, seed = choice.bandwidths, posterior.seed
    known = identify(fitted.ckde, fitted.prior, fitted.reward_names, widths.h_reward, seed)
    support = assess_support(
        fitted.ckde, posterior.expert_features, widths.h, posterior.feature_names, fitted.task_names, seed
    )
    return with_findings(posterior, known, support, None if choice.loto is None else choice.loto.calibration, choice)


def warn_of_silence(fitted: Fitted) -> None:
    """Warn where the training tasks say nothing about a parameter: its posterior will be its prior.

    Where the informed directions have no closed form, the posterior's report card says it later.
    """
    directions = fitted.ckde.informed_directions()
    if directions is not None and (np.sum(directions**2, axis=0) < NOTHING).any():
        known = identify(fitted.ckde, fitted.prior, fitted.reward_names, fitted.choices.start.h_reward)
        warnings.warn(known.sentence, IdentifiabilityWarning, stacklevel=3)


def with_findings(
    posterior: Posterior,
    identifiability: Identifiability,
    support: Support,
    calibration: Calibration | None,
    choice: Choice,
    sensitivity: Sensitivity | None = None,
    loto_possible: bool = True,
    predictive: Predictive | None = None,
) -> Posterior:
    """The same draws with findings and colours; loto_possible: whether held-out tasks could choose the bandwidths."""
    identifiability = identifiability.beside(posterior.flat, posterior.prior_draws)
    contractions = (
        principal_contractions(posterior.flat, posterior.prior_draws, identifiability.informed)[0]
        if identifiability.rank
        else ()
    )
    rule, fell_back = choice.bandwidths.rule, [n for n in choice.bandwidths.notes if n.startswith("loto: ")]
    searched = choice.loto is not None and len(choice.loto.power_candidates) > 1
    in_use = InUse(rule, choice.power, searched, loto_possible and not fell_back)
    cards = card(None, identifiability, support, calibration, sensitivity, contractions, predictive, in_use)
    cards.pop("convergence")  # the posterior knows its own
    if calibration is None and fell_back:
        cards["calibration"] = (NOT_ASSESSED, f"Nobody has checked these intervals: {fell_back[-1][6:]}.")
    scale = scale_and_direction(posterior.flat, posterior.names, posterior.prior_draws)
    found = {
        "identifiability": _compact(identifiability),
        "support": support.to_dict(),
        "scale": scale.to_dict(),
        "calibration": None if calibration is None else calibration.to_dict(),
        "sensitivity": None if sensitivity is None else sensitivity.to_dict(),
        "loto": None if choice.loto is None else choice.loto.to_dict(),
    }
    record = {name: value for name, value in found.items() if value is not None}
    return posterior.with_findings(cards, record)


def _compact(identifiability: Identifiability) -> dict[str, object]:
    """Without the directions where they would be thousands of numbers."""
    found = identifiability.to_dict()
    if len(identifiability.names) > LARGEST_BASIS:
        del found["informed"], found["uninformed"]
    return found


# The log prior of many draws at once.


@jax.jit
def _log_prior_batches(target: Target, rewards: Array) -> Array:
    return jax.vmap(target.log_prior)(rewards)


def log_priors(target: Target, rewards: Any) -> Any:
    """(r,) for rewards (r, q); inside `float64`."""
    return np.asarray(_log_prior_batches(target, jnp.asarray(rewards)))
