"""What is seen of a septic patient and what can be done: the 46 covariates of gym-sepsis and its treatments."""

import numpy as np
from jaxtyping import Float

COVARIATES = (
    *("albumin", "anion gap", "bands", "bicarbonate", "bilirubin", "BUN", "chloride", "creatinine", "DiasBP"),
    *("glucose (bedside)", "glucose (lab)", "heart rate", "hematocrit", "hemoglobin", "INR", "lactate", "MeanBP"),
    *("PaCO2", "platelets", "potassium", "PT", "PTT", "RespRate", "sodium", "SpO2", "SysBP", "TempC", "WBC"),
    *("age", "is_male", "race white", "race black", "race hispanic", "race other", "height", "weight"),
    *("vent", "SOFA", "LODS", "SIRS", "qSOFA", "qSOFA SysBP", "qSOFA GCS", "qSOFA RespRate"),
    *("Elixhauser", "blood culture positive"),
)
COLUMN = {name: column for column, name in enumerate(COVARIATES)}
PERSONAL = (*COVARIATES[28:36], "Elixhauser", "blood culture positive")  # the ten that no treatment can change
MEMORY_ROWS, MEMORY_COLUMNS = 10, len(COVARIATES) + 2  # covariates, action, index of the step

LEVELS = 5  # of each drug; action = 5 * fluid + vasopressor
FLUID_CUTS = (0.0, 50.0, 180.0, 530.0)  # mL in 4 hours: the level is the number of cuts that the dose exceeds
VASOPRESSOR_CUTS = (0.0, 0.08, 0.22, 0.45)  # ug/kg/min of norepinephrine or its equivalent
FLUID_DOSES = (0.0, 30.0, 115.0, 340.0, 850.0)  # what an action of each level gives: one dose inside of each bin
VASOPRESSOR_DOSES = (0.0, 0.05, 0.15, 0.33, 0.65)


def treatment_names(n_actions: int) -> tuple[str, ...]:
    """ "fluid 0 vasopressor 0" and so on."""
    return tuple(f"fluid {a // LEVELS} vasopressor {a % LEVELS}" for a in range(n_actions))


def treatment_doses(n_actions: int) -> tuple[Float[np.ndarray, " A"], Float[np.ndarray, " A"]]:
    """Fluid in mL per 4 hours and vasopressor in ug/kg/min of each action."""
    fluid, vasopressor = np.divmod(np.arange(n_actions), LEVELS)
    return np.array(FLUID_DOSES)[fluid], np.array(VASOPRESSOR_DOSES)[vasopressor]
