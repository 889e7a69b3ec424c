"""Principal components as a feature map: the plain alternative to the VAE."""

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeVar

import numpy as np
from jaxtyping import Float64

from kdbirl.data.demonstrations import Demonstrations, TaskBank
from kdbirl.errors import COLUMNS, InputError
from kdbirl.features.base import (
    SILENT,
    Column,
    Concatenated,
    FeatureMap,
    Features,
    StoredArray,
    in_row_blocks,
    refuse_not_finite,
)
from kdbirl.features.maps import Columns, Standardize
from kdbirl.features.one_hot import OneHotActions, OneHotStates, refuse_new_actions
from kdbirl.progress import Progress

# What the VAE and PCA share: which inputs they compress, and how the action stands among them.
#
# By default the inputs are the standardised state columns and the action (SEPSIS: 46 covariates + 1 action = 47). A raw
# action code 0..24 would have 50 times the variance of a standardised covariate, and one latent would be the action and
# nothing else; so the code is standardised too, or one-hot (whose columns have a variance below 1 in all).

ACTIONS = ("standardize", "one-hot", "leave-out")
Inputs = Float64[np.ndarray, "rows inputs"]
AnyLatentMap = TypeVar("AnyLatentMap", bound="LatentMap")


@dataclass(frozen=True, kw_only=True)
class LatentMap(FeatureMap):
    """phi(s, a) = a few latent numbers z of inputs x(s, a), from which x can be reconstructed.

    actions: "standardize" (a code counts as a number, the paper's 47th input), "one-hot", or "leave-out" for phi(s);
        None: codes are standardised, and labels, which are no numbers, one-hot. Vectors of actions are standardised
        unless left out. action_weight multiplies the action's inputs: beside 46 covariates a latent
        seldom spends itself on an action that they do not predict, and a larger weight makes phi speak of it.
    inputs: another feature map to compress instead, such as `Standardize(Function(f)) + OneHotActions()`; it decides on
        the action itself, so `actions` has no say then.
    """

    prefix: ClassVar[str]
    inputs: Any = None
    actions: Any = None
    action_weight: Any = 1.0
    default: FeatureMap | None = None

    @property
    @abstractmethod
    def width(self) -> int:
        """How many latents."""

    @abstractmethod
    def _latents(self, inputs: Inputs) -> Features:
        """phi of weighted inputs."""

    @abstractmethod
    def _reconstructed(self, latents: Features) -> Inputs:
        """Weighted inputs from latents."""

    def _check_inputs(self) -> None:
        title = type(self).__name__
        if self.inputs is not None and not isinstance(self.inputs, FeatureMap):
            raise InputError(f"{title}(inputs=...) takes a feature map, such as kb.Standardize(), not {self.inputs!r}.")
        if self.actions not in (None, *ACTIONS):
            raise InputError(f'{title}(actions={self.actions!r}) should be "standardize", "one-hot" or "leave-out".')
        if not is_positive(self.action_weight):
            raise InputError(f"{title}(action_weight={self.action_weight!r}) should be a positive number.")

    @property
    def input_names(self) -> tuple[str, ...]:
        """The inputs' names."""
        self._require_fitted()
        return self._reader.names

    def inputs_of(self, demonstrations: Demonstrations | TaskBank) -> Inputs:
        """x(s, a): what is compressed, with the action's weight: (rows, inputs)."""
        self._require_fitted()
        return self._read(_rows(demonstrations))

    def reconstruct(self, demonstrations: Demonstrations | TaskBank) -> Inputs:
        """The inputs again, from phi alone."""
        return self._reconstructed(self(demonstrations))

    @property
    def _reader(self) -> FeatureMap:
        chosen = self.default if self.inputs is None else self.inputs
        assert isinstance(chosen, FeatureMap)
        return chosen

    def _read(self, rows: Demonstrations) -> Inputs:
        if self.inputs is None and self.actions != "leave-out":
            refuse_new_actions(self._reader, rows)
        inputs = self._reader._apply(rows)
        if self.action_weight != 1.0:
            inputs = inputs * column_weights(self._reader, self.action_weight)
        return refuse_not_finite(inputs, self._reader.names, f"The inputs of {type(self).__name__}")

    def _apply(self, rows: Demonstrations) -> Features:
        return self._latents(self._read(rows))

    def _columns(self) -> tuple[Column, ...]:
        sources = set(self._reader.groups)
        source = sources.pop() if len(sources) == 1 else "mixed"
        COLUMNS.check(self.width, f"{type(self).__name__} has too many components")  # from a file it may be any number
        return tuple(Column(f"{self.prefix}{i + 1}", source) for i in range(self.width))  # type: ignore[arg-type]


def with_fitted_inputs(phi: AnyLatentMap, rows: Demonstrations, progress: Progress = SILENT) -> AnyLatentMap:
    """A copy whose inputs are fitted."""
    if phi.inputs is not None:
        return replace(phi, inputs=phi.inputs._fit(rows, progress))
    return replace(phi, default=_default_inputs(rows, phi.actions)._fit(rows))


def column_weights(reader: FeatureMap, action_weight: float) -> Float64[np.ndarray, " inputs"]:
    """`action_weight` for inputs that come from the action, else 1."""
    weights = np.ones(len(reader.names))
    weights[list(reader.groups.get("action", ()))] = action_weight
    return weights


def is_positive(value: Any) -> bool:
    """A finite number above 0, and no bool."""
    number = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    return bool(number and 0 < value < np.inf)


def is_whole(value: Any, least: int) -> bool:
    """A whole number of at least `least`, and no bool."""
    return bool(isinstance(value, int | np.integer) and not isinstance(value, bool) and value >= least)


def _rows(demonstrations: Demonstrations | TaskBank) -> Demonstrations:
    return demonstrations.demonstrations if isinstance(demonstrations, TaskBank) else demonstrations


def _default_inputs(rows: Demonstrations, actions: str | None) -> FeatureMap:
    states = OneHotStates() if rows.discrete_states else Standardize(Columns(rows.state_names))
    if rows.actions is None or actions == "leave-out":
        return Concatenated((states,))
    if not rows.discrete_actions:
        return Concatenated((states, Standardize(Columns(rows.action_names))))
    if actions == "one-hot" or (actions is None and rows.action_labels is not None):
        return Concatenated((states, OneHotActions()))
    if rows.action_labels is not None:
        raise InputError(
            f"The actions are labels ({', '.join(rows.action_labels[:5])}), which have no scale to standardise: give "
            'actions="one-hot", or "leave-out".'
        )
    return Concatenated((states, Standardize(Columns(rows.action_names))))


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
