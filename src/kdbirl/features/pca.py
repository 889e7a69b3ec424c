"""Principal components as a feature map: the plain alternative to the VAE."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float64

from kdbirl.demos.data import Demonstrations
from kdbirl.errors import InputError
from kdbirl.features.base import SILENT, Features
from kdbirl.features.latent_map import Inputs, LatentMap, is_whole, with_fitted_inputs
from kdbirl.features.row_blocks import in_row_blocks
from kdbirl.features.stored_array import StoredArray
from kdbirl.progress import Progress

NO_VARIANCE = 1e-12  # of a component, as a share of the largest: what rounding leaves of none


@dataclass(frozen=True)
class PCA(LatentMap):
    """phi = (x - mean) V: scores on the first right singular vectors V of the centred inputs X = U S V'.

    x are the standardised states and the action, see `LatentMap`. The signs, which a decomposition leaves open, are
    such that the entry of each vector that is largest in size is positive. Scores keep their variances S^2 / m; all 1:
    `Standardize(PCA(3))`. Cost: one singular value decomposition of (m, inputs).
    """

    kind: ClassVar[str] = "pca"
    prefix: ClassVar[str] = "pc"
    components: Any = 3
    mean: tuple[float, ...] = ()
    variances: tuple[float, ...] = ()
    total_variance: float = 0.0
    loadings: StoredArray | None = None

    def __post_init__(self) -> None:
        if not is_whole(self.components, 1):
            raise InputError(f"PCA(components={self.components!r}) should be a positive whole number.")
        object.__setattr__(self, "components", int(self.components))
        self._check_inputs()

    @property
    def is_fitted(self) -> bool:
        """Whether the components are known."""
        return self.loadings is not None

    @property
    def width(self) -> int:
        """How many components."""
        return int(self.components)

    @property
    def explained(self) -> tuple[float, ...]:
        """The share of the inputs' variance in each component."""
        self._require_fitted()
        return tuple(variance / self.total_variance for variance in self.variances)

    def _fit(self, rows: Demonstrations, progress: Progress = SILENT) -> "PCA":
        fitted = with_fitted_inputs(self, rows)
        inputs = fitted._read(rows)
        mean = inputs.mean(axis=0)
        _, sizes, vectors = np.linalg.svd(inputs - mean, full_matrices=False)
        variances = sizes**2 / len(inputs)
        self._require_variance(variances, inputs.shape)
        kept = with_fixed_signs(vectors[: self.width])
        return replace(
            fitted,
            mean=tuple(mean.tolist()),
            variances=tuple(variances[: self.width].tolist()),
            total_variance=float(variances.sum()),
            loadings=StoredArray.of(kept.T),
        )

    def _require_variance(self, variances: Float64[np.ndarray, " r"], shape: tuple[int, ...]) -> None:
        vary = int(np.sum(variances > NO_VARIANCE * max(float(variances[0]), np.finfo(np.float64).tiny)))
        if vary < self.width:
            raise InputError(
                f"PCA(components={self.components}) asks for more than there is: the {shape[0]} training rows vary in "
                f"{vary} directions of their {shape[1]} inputs. Ask for at most {vary}."
                if vary
                else f"PCA finds nothing to compress: all {shape[0]} training rows have the same inputs."
            )

    def _latents(self, inputs: Inputs) -> Features:
        return in_row_blocks(lambda block: (block - np.asarray(self.mean)) @ self._loadings, inputs)

    def _reconstructed(self, latents: Features) -> Inputs:
        return in_row_blocks(lambda block: block @ self._loadings.T + np.asarray(self.mean), latents)

    @property
    def _loadings(self) -> Float64[np.ndarray, "inputs components"]:
        assert self.loadings is not None
        return self.loadings.values


def with_fixed_signs(vectors: Float64[np.ndarray, "r inputs"]) -> Float64[np.ndarray, "r inputs"]:
    """Each row or its negative, so that its largest entry in size is positive."""
    largest = vectors[np.arange(len(vectors)), np.abs(vectors).argmax(axis=1)]
    return vectors * np.where(largest < 0, -1.0, 1.0)[:, None]
