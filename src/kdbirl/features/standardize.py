"""Features with mean 0 and standard deviation 1 over the training rows: the package's default."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from kdbirl.demos.data import Demonstrations
from kdbirl.demos.moments import Moments
from kdbirl.errors import InputError
from kdbirl.features.base import SILENT, Column, FeatureMap, Features, refuse_not_finite
from kdbirl.features.columns import Identity
from kdbirl.progress import Progress

ROUNDING = 8 * float(np.finfo(np.float64).eps)


@dataclass(frozen=True)
class Standardize(FeatureMap):
    """phi_j = (x_j - mean_j) / sd_j, with the mean and the population standard deviation (1/m) of the training rows.

    By default x are the state columns and the columns of vector actions, and discrete states and actions are one-hot
    and not scaled, as labels have no scale. `Standardize(inner)` standardises *every* column of another map. A column
    that is constant in training, up to rounding, keeps scale 1 (its standard deviation, 0, says nothing): it is centred
    only.
    """

    kind: ClassVar[str] = "standardize"
    inner: Any = None
    default: FeatureMap | None = None
    mean: tuple[float, ...] = ()
    scale: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if self.inner is not None and not isinstance(self.inner, FeatureMap):
            raise InputError(f"Standardize takes a feature map, such as Standardize(Function(f)), not {self.inner!r}.")

    @property
    def is_fitted(self) -> bool:
        """Whether means and scales are known."""
        return bool(self.scale)

    @property
    def _unscaled(self) -> FeatureMap:
        chosen = self.default if self.inner is None else self.inner
        assert isinstance(chosen, FeatureMap)
        return chosen

    def _fit(self, rows: Demonstrations, progress: Progress = SILENT) -> "Standardize":
        if self.inner is not None:
            inner = self.inner._fit(rows, progress)
            mean, scale = _mean_and_scale(inner, rows)
            return replace(self, inner=inner, mean=mean, scale=scale)
        default = Identity()._fit(rows)
        # Part by part, so that a million rows of one-hot labels are never laid out only to be left unscaled.
        learnt = [_as_it_is(part) if part.discrete else _mean_and_scale(part, rows) for part in default.parts]
        mean, scale = (tuple(value for part in side for value in part) for side in zip(*learnt, strict=True))
        return replace(self, default=default, mean=mean, scale=scale)

    def with_moments(self, moments_of: Callable[[FeatureMap], Moments]) -> "Standardize":
        """With the mean and the scale of all rows in place of a sample's."""
        if self.inner is not None:
            inner = self.inner.with_moments(moments_of)
            mean, scale = _centred_and_scaled(moments_of(inner))
            return replace(self, inner=inner, mean=mean, scale=scale)
        assert isinstance(self.default, Identity)
        parts = self.default.parts
        learnt = [_as_it_is(part) if part.discrete else _centred_and_scaled(moments_of(part)) for part in parts]
        mean, scale = (tuple(value for part in side for value in part) for side in zip(*learnt, strict=True))
        return replace(self, mean=mean, scale=scale)

    def _apply(self, rows: Demonstrations) -> Features:
        features: Features = self._unscaled._apply(rows) - np.asarray(self.mean)
        features /= np.asarray(self.scale)  # in place: the matrix may be large
        return features

    def _columns(self) -> tuple[Column, ...]:
        return self._unscaled._columns()


def _as_it_is(part: FeatureMap) -> tuple[tuple[float, ...], tuple[float, ...]]:
    return (0.0,) * len(part.names), (1.0,) * len(part.names)


def _mean_and_scale(part: FeatureMap, rows: Demonstrations) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and population standard deviation of each feature, 1 where it is constant."""
    features = refuse_not_finite(part._apply(rows), part.names, "The feature map inside Standardize")
    low, high = features.min(axis=0), features.max(axis=0)
    half_range, constant = high / 2 - low / 2, _is_constant(low, high)
    # From the middle and in units of the half range, so that squares of huge or tiny values stay in range.
    middle, unit = low / 2 + high / 2, np.where(constant, 1.0, half_range)
    units = (features - middle) / unit
    mean = np.where(constant, low, middle + unit * units.mean(axis=0))
    scale = np.where(constant, 1.0, unit * units.std(axis=0))
    return tuple(mean.tolist()), tuple(scale.tolist())


def _is_constant(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """0.1 + 0.2 and 0.3 are one value: scaling up what rounding left would make noise the largest feature."""
    smallest = np.maximum(ROUNDING * np.maximum(np.abs(low), np.abs(high)), np.finfo(np.float64).tiny)
    return np.asarray(high / 2 - low / 2 <= smallest)


def _centred_and_scaled(moments: Moments) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """As `_mean_and_scale`, from moments."""
    constant = _is_constant(moments.low, moments.high)
    mean = np.where(constant, moments.low, moments.mean)
    scale = np.where(constant, 1.0, np.sqrt(moments.squares / moments.count))
    return tuple(mean.tolist()), tuple(scale.tolist())
