"""What KD-BIRL learns from a bank."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from kdbirl.features import FeatureMap
from kdbirl.likelihood.ckde import CKDE
from kdbirl.methods.bandwidth_choice import Choices
from kdbirl.posterior.priors import Prior
from kdbirl.random_streams import stream

PRIOR_DRAWS = 4000


@dataclass(frozen=True)
class Fitted:
    """What `fit` learns: the feature map, the training rows in feature space, the bandwidths, the bank's names."""

    features: FeatureMap
    ckde: CKDE
    choices: Choices
    prior: Prior
    reward_features: FeatureMap | None
    reward_names: tuple[str, ...]
    task_names: tuple[str, ...]
    bank_fingerprint: str


class ExpertRows(NamedTuple):
    """An expert's rows in feature space, their episodes, and the fingerprint of the demonstrations."""

    rows: Float[np.ndarray, "n d"]
    episodes: Int[np.ndarray, " n"]
    fingerprint: str


def drawn_prior(prior: Prior, seed: int) -> Float[np.ndarray, "d q"]:
    """The prior draws that are kept beside a posterior: no sampler has started from them."""
    return prior.sample(np.random.default_rng(stream(seed, "prior draws")), PRIOR_DRAWS)
