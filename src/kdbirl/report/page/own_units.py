"""Expert rows in the units of the user's tables, where the density saw them standardised."""

import numpy as np
from jaxtyping import Float

from kdbirl.features.standardize import Standardize
from kdbirl.report.run_files import Run

AS_IN_TABLES = "in the units of the tables; the density sees quantities with mean 0 and sd 1 over the training rows"
STANDARDISED = "standardised: in units of the training rows' standard deviation, from their mean"


def in_own_units(run: Run) -> tuple[Float[np.ndarray, "n d"], str]:
    """The expert's features, and what they are measured in, if that has to be said: x = mean + sd phi."""
    rows = run.posterior.expert_features
    if run.posterior.settings.get("features") != Standardize.__name__:
        return rows, ""
    fitted = None if run.model is None else run.model.fitted
    features = None if fitted is None else fitted.features
    if not isinstance(features, Standardize) or len(features.mean) != rows.shape[1]:
        return rows, STANDARDISED
    return np.asarray(features.mean) + np.asarray(features.scale) * rows, AS_IN_TABLES
