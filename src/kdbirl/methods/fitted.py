"""What KD-BIRL learns from a bank."""

from dataclasses import dataclass
from typing import Any

from kdbirl.features import FeatureMap
from kdbirl.likelihood.ckde import CKDE
from kdbirl.methods.bandwidth_choice import Choices


@dataclass(frozen=True)
class Fitted:
    """What `fit` learns: the feature map, the training rows in feature space, the bandwidths, the bank's names."""

    features: FeatureMap
    ckde: CKDE
    choices: Choices
    prior: Any
    reward_features: FeatureMap | None
    reward_names: tuple[str, ...]
    task_names: tuple[str, ...]
    bank_fingerprint: str
