"""What the VAE and PCA share: which inputs they compress, and how the action stands among them.

By default the inputs are the standardised state columns and the action (SEPSIS: 46 covariates + 1 action = 47). A raw
action code 0..24 would have 50 times the variance of a standardised covariate, and one latent would be the action and
nothing else; so the code is standardised too, or one-hot (whose columns have a variance below 1 in all).
"""

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeVar

import numpy as np
from jaxtyping import Float64

from kdbirl.demos.data import Demonstrations, TaskBank
from kdbirl.errors import InputError
from kdbirl.features.base import SILENT, Column, Concatenated, FeatureMap, Features, refuse_not_finite
from kdbirl.features.columns import Columns
from kdbirl.features.one_hot import OneHotActions, OneHotStates, refuse_new_actions
from kdbirl.features.standardize import Standardize
from kdbirl.limits import COLUMNS
from kdbirl.progress import Progress

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
