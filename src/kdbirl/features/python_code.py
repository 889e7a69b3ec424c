"""Feature maps that hold a user's Python code: a function, or anything with scikit-learn's `fit` and `transform`.

Their code is not ours, so what it returns is checked: the number of rows, numbers, no NaN, one width for all rows, and
the same answer for a row whatever rows stand beside it.
"""

import copy
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from jaxtyping import Float64

from kdbirl.data.demonstrations import Demonstrations
from kdbirl.errors import InputError
from kdbirl.features.base import SILENT, Column, FeatureMap, Features, refuse_not_finite
from kdbirl.features.block import Block, Values, learn_block
from kdbirl.features.maps import Identity, Standardize
from kdbirl.progress import Progress

# Calling a user's code: with which arguments, what becomes of its errors, and what it may return.


def as_features(result: Any, rows: int, title: str, names: tuple[str, ...] = ()) -> Features:
    """What user's code returned, as a (rows, d) float64 matrix of finite numbers."""
    array = np.asarray(result.toarray() if hasattr(result, "toarray") else result)
    if array.dtype.kind not in "fiub":
        array = _numbers_in(array, title)
    array = array[:, None] if array.ndim == 1 else array
    if array.ndim != 2 or len(array) != rows or array.shape[1] == 0:
        raise InputError(f"{title} must return one line of features per row, ({rows}, d); it returned {array.shape}.")
    known = names if len(names) == array.shape[1] else tuple(str(index) for index in range(array.shape[1]))
    return refuse_not_finite(array.astype(np.float64), known, title)


def _numbers_in(array: np.ndarray, title: str) -> np.ndarray:
    """Frames of mixed number types come as objects; text, complex numbers and dates are refused."""
    try:
        if array.dtype.kind != "O":
            raise ValueError
        return array.astype(np.float64)
    except (TypeError, ValueError):
        raise InputError(
            f"{title} must return numbers; it returned {array.dtype} values of shape {array.shape}."
        ) from None


def guarded(call: Callable[[], Any], problem: str) -> Any:
    """Run user's code; what it raises becomes one sentence, with the original as its cause."""
    try:
        return call()
    except Exception as error:
        first_line = (str(error).splitlines() or [""])[0]
        raise InputError(f"{problem}: {type(error).__name__}: {first_line}") from error


def takes_actions(function: Callable[..., Any], name: str) -> bool:
    """f(states, actions), unless one argument is enough: a second one with a default may be anything (`out=`)."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return True
    one, two = (_can_be_called(signature, count) for count in (1, 2))
    if not one and not two:
        raise InputError(
            f"The feature function {name!r} takes {signature}: it must take (states, actions), or (states) alone."
        )
    anything = any(parameter.kind is parameter.VAR_POSITIONAL for parameter in signature.parameters.values())
    return two and (not one or anything or "actions" in signature.parameters)


def _can_be_called(signature: inspect.Signature, arguments: int) -> bool:
    try:
        signature.bind(*[None] * arguments)
    except TypeError:
        return False
    return True


Group = Literal["state", "action", "mixed"]


@dataclass(frozen=True)
class FittedFunction:
    """What the training rows looked like, and what the function made of them."""

    kind: ClassVar[str] = "fitted_function"
    state: Block
    action: Block | None
    column_names: tuple[str, ...]
    source: Group

    def read(self, rows: Demonstrations) -> tuple[Values, Values | None]:
        """States and actions in the training rows' coding; no actions where either side has none."""
        actions = None if rows.actions is None or self.action is None else self.action.read(rows)
        return self.state.read(rows), actions


@dataclass(frozen=True, init=False)
class Function(FeatureMap):
    """phi(s, a) = function(states, actions), for all rows at once; `function(states)` if one argument is enough.

    `states` is (rows, d_s) float64 or (rows,) int codes, `actions` likewise or None. It returns (rows, d) or (rows,)
    finite numbers, and maps each row by itself: a mean over the rows it is given would differ between bank and expert,
    and is refused. `names` names its columns; `name` is what it is called in files (default: its `__name__`); `group`
    says what its columns speak of ("state", "action", "mixed") where that is not plain from its arguments.
    """

    kind: ClassVar[str] = "function"
    code_field: ClassVar[str | None] = "function"
    function: Callable[..., Any]
    given_names: tuple[str, ...] | None
    name: str
    group: Group | None
    fitted: FittedFunction | None

    def __init__(
        self,
        function: Any,
        names: Sequence[str] | None = None,
        *,
        name: str | None = None,
        group: Group | None = None,
        fitted: FittedFunction | None = None,
    ) -> None:
        if not callable(function):
            raise InputError(f"Function takes a Python function of (states, actions), not {function!r}.")
        set_field = object.__setattr__
        set_field(self, "function", function)
        set_field(self, "given_names", None if names is None else (names,) if isinstance(names, str) else tuple(names))
        set_field(self, "name", name or getattr(function, "__name__", type(function).__name__))
        set_field(self, "group", group)
        set_field(self, "fitted", fitted)
        takes_actions(function, self.name)

    @property
    def is_fitted(self) -> bool:
        """Whether the function was tried on training rows."""
        return self.fitted is not None

    def _fit(self, rows: Demonstrations, progress: Progress = SILENT) -> "Function":
        state, action = learn_block(rows, "state"), None if rows.actions is None else learn_block(rows, "action")
        both = action is not None and takes_actions(self.function, self.name)
        untried = FittedFunction(state, action, (), self.group or ("mixed" if both else "state"))
        features = self._evaluate(untried, rows)
        self._refuse_dependence(untried, rows, features)
        names = self._names(features.shape[1])
        fitted = FittedFunction(state, action, names, untried.source)
        return Function(self.function, self.given_names, name=self.name, group=self.group, fitted=fitted)

    def _apply(self, rows: Demonstrations) -> Features:
        assert self.fitted is not None
        features = self._evaluate(self.fitted, rows)
        if features.shape[1] != len(self.fitted.column_names):
            raise InputError(
                f"{self._title} gave {len(self.fitted.column_names)} columns on the training rows and "
                f"{features.shape[1]} on these: its width may not depend on the rows (fix the number of levels in it)."
            )
        return features

    def _columns(self) -> tuple[Column, ...]:
        assert self.fitted is not None
        return tuple(Column(name, self.fitted.source) for name in self.fitted.column_names)

    @property
    def _title(self) -> str:
        return f"The feature function {self.name!r}"

    def _evaluate(self, fitted: FittedFunction, rows: Demonstrations) -> Features:
        states, actions = fitted.read(rows)
        arguments = (states, actions) if takes_actions(self.function, self.name) else (states,)
        hint = " (these rows have no actions)" if actions is None else ""
        result = guarded(lambda: self.function(*arguments), f"{self._title} failed on {rows.n_rows} rows{hint}")
        return as_features(result, rows.n_rows, self._title, fitted.column_names)

    def _names(self, width: int) -> tuple[str, ...]:
        if self.given_names is None:
            return tuple(f"{self.name}{index}" for index in range(width)) if width > 1 else (self.name,)
        if len(self.given_names) != width:
            raise InputError(
                f"{self._title} gives {width} columns, but has {len(self.given_names)} names "
                f"({', '.join(self.given_names)}): give one per column."
            )
        return self.given_names

    def _refuse_dependence(self, fitted: FittedFunction, rows: Demonstrations, features: Features) -> None:
        """Try two rows alone: `(s - s.mean(0)) / s.std(0)` and `np.eye(a.max() + 1)[a]` are easy mistakes to make."""
        if rows.n_rows < 3:
            return
        few = np.array([0, rows.n_rows // 2])
        try:
            with np.errstate(all="ignore"):
                alone = self._evaluate(fitted, rows.take(few))
        except InputError:  # it could do all rows, but not two of them
            alone = np.full((2, features.shape[1]), np.inf)
        # Matrix products may round differently for few rows; a mean over other rows differs by far more.
        tolerance = 1e-6 * np.abs(features).max(axis=0)
        if alone.shape[1] != features.shape[1] or not (np.abs(alone - features[few]) <= tolerance).all():
            raise InputError(
                f"{self._title} gives a row other values when other rows stand beside it: it must map each row by "
                "itself, and always alike. Compute means, maxima and the like beforehand, or use "
                "Standardize(Function(f))."
            )


@dataclass(frozen=True, init=False)
class Transformer(FeatureMap):
    """phi = transformer.transform(inner(s, a)): any object with scikit-learn's `fit(X)` and `transform(X)`.

    A *copy* of it is fitted on the training rows' `inner` features (default `Identity()`); the given object stays as
    it is.
    """

    kind: ClassVar[str] = "transformer"
    code_field: ClassVar[str | None] = "transformer"
    transformer: Any
    inner: FeatureMap
    name: str
    column_names: tuple[str, ...]

    def __init__(
        self,
        transformer: Any,
        inner: Any = None,
        *,
        name: str | None = None,
        column_names: tuple[str, ...] = (),
    ) -> None:
        if isinstance(transformer, type) or not _is_transformer(transformer):
            raise InputError(
                f"Transformer takes an object with fit and transform, such as PCA(3), not {transformer!r}."
            )
        if inner is not None and not isinstance(inner, FeatureMap):
            raise InputError(f"Transformer(..., inner=...) takes a feature map, such as Columns(['x']), not {inner!r}.")
        set_field = object.__setattr__
        set_field(self, "transformer", transformer)
        set_field(self, "inner", Identity() if inner is None else inner)
        set_field(self, "name", name or type(transformer).__name__)
        set_field(self, "column_names", column_names)

    @property
    def is_fitted(self) -> bool:
        """Whether a copy was fitted."""
        return bool(self.column_names)

    def _fit(self, rows: Demonstrations, progress: Progress = SILENT) -> "Transformer":
        inner = self.inner._fit(rows, progress)
        before = refuse_not_finite(inner._apply(rows), inner.names, f"The feature map inside {self._title}")
        fitted = copy.deepcopy(self.transformer)
        guarded(lambda: fitted.fit(before), f"{self._title} could not be fitted on {before.shape} features")
        untried = Transformer(fitted, inner, name=self.name)
        names = _names_out(fitted, inner.names, untried._transform(before).shape[1], self.name)
        return Transformer(fitted, inner, name=self.name, column_names=names)

    def _apply(self, rows: Demonstrations) -> Features:
        features = self._transform(self.inner._apply(rows))
        if features.shape[1] != len(self.column_names):
            raise InputError(
                f"{self._title} gave {len(self.column_names)} columns on the training rows and {features.shape[1]} on "
                "these: is it the same transformer?"
            )
        return features

    def _columns(self) -> tuple[Column, ...]:
        sources = {column.source for column in self.inner._columns()}
        source = sources.pop() if len(sources) == 1 else "mixed"
        return tuple(Column(name, source) for name in self.column_names)

    @property
    def _title(self) -> str:
        return f"The transformer {self.name!r}"

    def _transform(self, before: Float64[np.ndarray, "rows d_inner"]) -> Features:
        problem = f"{self._title} failed on {before.shape} features (at loading, give it as it was after fitting)"
        result = guarded(lambda: self.transformer.transform(before), problem)
        return as_features(result, len(before), self._title, self.column_names)


def as_feature_map(features: Any) -> FeatureMap:
    """A feature map from what a user may give: a map, a function, a transformer, or None for the default."""
    if features is None:
        return Standardize()
    if isinstance(features, FeatureMap):
        return features
    if isinstance(features, type):
        raise InputError(f"features={features.__name__} is a class: give an object of it, {features.__name__}(...).")
    if _is_transformer(features):
        return Transformer(features)
    if callable(features):
        return Function(features)
    raise InputError(
        "features takes a feature map such as OneHot(), a function of (states, actions), an object with fit and "
        f"transform, or None for the default, not {features!r}."
    )


def _is_transformer(candidate: Any) -> bool:
    return callable(getattr(candidate, "fit", None)) and callable(getattr(candidate, "transform", None))


def _names_out(transformer: Any, names_in: tuple[str, ...], width: int, name: str) -> tuple[str, ...]:
    """The transformer's own column names where it has them, else its name and a number."""
    try:
        names = tuple(str(column) for column in transformer.get_feature_names_out(np.asarray(names_in, dtype=object)))
    except Exception:  # an optional courtesy of the transformer: however it fails, the numbers stand
        names = ()
    return names if len(names) == width else tuple(f"{name.lower()}{index}" for index in range(width))
