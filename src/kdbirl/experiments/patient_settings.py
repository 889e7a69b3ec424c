"""The sepsis experiments of the paper's Section 6.4 as frozen settings: `printed`, `released` and `ours`.

The text names four training tasks and a VAE with three latents; neither the weights, nor m, nor the bandwidths. So:

    printed     four training weights drawn from the prior for each seed, the paper's rule for bandwidths, prior
                U[0, 1]^3 (the text's default), 500 rows a task
    released    120 weights drawn from U[0, 1]^3, m = 500 rows sampled one by one, variances h = .4 and h' = .5, prior
                N(0, 1) cut to [0, 1]
    ours        phi = SOFA, fluid and vasopressor (a VAE's latents hardly tell treatments apart, so rows in them say
                little about a policy), prior U[-1, 1]^3, since weights have either sign; the four training weights
                are corners of the prior's box that lie as far apart as they can (every second corner of the cube);
                bandwidths by the rule that did best with eight *other* weights in both worlds: EVD at n = 100 was
                .02 and .13 with the paper's, .03 and .14 with Silverman's, .16 and .25 with the median's (the rule
                that the library falls back on with so few tasks)

The test weights are drawn from the same box, once: they are four (and a fifth for Figure 5), the same for all seeds, as
in the paper. Nothing of a setting was chosen by them.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float

from kdbirl.likelihood.kernels import sigma_from_paper

Q = 3
STARS = 5  # test weights; the fifth is Figure 5's
STAR_SEED = 2024
EVERY_SECOND_CORNER = ((1.0, 1.0, 1.0), (1.0, -1.0, -1.0), (-1.0, 1.0, -1.0), (-1.0, -1.0, 1.0))


@dataclass(frozen=True)
class PatientSetting:
    """phi: "vae", or "named" (SOFA, fluid, vasopressor). low: of the box of weights, up to 1.

    training: "corners", or how many weights are drawn from the box.
    rows: of the bank, per task or (sampled one by one) in all. prior: as text. bandwidth: a rule, or (h, h') as sigmas.
    """

    variant: str
    phi: Literal["vae", "named"]
    low: float
    training: Literal["corners"] | int
    rows: int
    sampled: bool
    prior: str
    bandwidth: str | tuple[float, float]

    def stars(self) -> Float[np.ndarray, "5 3"]:
        """The test weights."""
        return np.random.default_rng(STAR_SEED).uniform(self.low, 1.0, (STARS, Q))

    def weights(self, seed: int) -> Float[np.ndarray, "K 3"]:
        """The training weights of one seed."""
        if self.training == "corners":
            return np.array(EVERY_SECOND_CORNER)
        # [STAR_SEED, 0] would be the stream of the test weights themselves: NumPy fills seeds up with zeros.
        return np.random.default_rng([STAR_SEED, 1, seed]).uniform(self.low, 1.0, (self.training, Q))


SETTINGS = {
    "printed": PatientSetting("printed", "vae", 0.0, 4, 500, False, "uniform:0,1", "paper"),
    "released": PatientSetting(
        "released",
        "vae",
        0.0,
        120,
        500,
        True,
        "truncated-normal:0,1,0,1",
        (sigma_from_paper(0.4), sigma_from_paper(0.5)),
    ),
    "ours": PatientSetting("ours", "named", -1.0, "corners", 500, False, "uniform:-1,1", "paper"),
}
