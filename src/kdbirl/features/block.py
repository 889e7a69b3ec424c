"""The state block or the action block of a table of rows, as a feature map met it when it was fitted.

A fitted map is later called on other rows: the expert's, or new rows in another process. The block remembers what the
training rows looked like, so that other rows are read in the same sense (the same width, the same order of columns,
equal labels = equal codes) or are refused with a sentence, and never silently misread.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from jaxtyping import Float64, Int64

from kdbirl.data.demonstrations import Demonstrations
from kdbirl.errors import InputError

_LARGEST_CODE = 2**62
Source = Literal["state", "action"]
Values = Float64[np.ndarray, "rows width"] | Int64[np.ndarray, " rows"]


def values_of(rows: Demonstrations, source: Source) -> Values | None:
    """The states, or the actions (None where there are none)."""
    return rows.states if source == "state" else rows.actions


@dataclass(frozen=True)
class Block:
    """Columns `names` of a source; discrete = one column of codes, with `labels` and a `declared` count where known."""

    kind: ClassVar[str] = "block"
    source: Source
    names: tuple[str, ...]
    discrete: bool
    labels: tuple[str, ...] | None = None
    declared: int | None = None

    def read(self, rows: Demonstrations) -> Values:
        """The block's values in `rows`: (rows,) codes as in training, or (rows, width) numbers."""
        values = values_of(rows, self.source)
        if values is None:
            raise InputError(
                f"The feature map needs actions ({', '.join(self.names)}), and these rows have none: give them, or "
                "take a feature map of the states alone."
            )
        found = _describe(rows, self.source)
        if self.discrete != found.discrete:
            return self._reread(values, found)
        return self._recode(values, found) if self.discrete else self._same_columns(values, found)

    def _reread(self, values: Values, found: "Block") -> Values:
        """One numeric training column, and rows whose numbers all happened to be whole: the same thing, as numbers."""
        if not self.discrete and len(self.names) == 1 and found.labels is None:
            return values.astype(np.float64)[:, None]
        raise InputError(
            f"The feature map was fitted on {self.summary()}; these rows have {found.summary()}. Give both in one "
            f"form: declare n_{self.source}s for codes, or give a column of numbers for measurements."
        )

    def _same_columns(self, values: Values, found: "Block") -> Values:
        """By name where the names are the training rows', by position where they are all others (or defaults)."""
        if len(self.names) != len(found.names):
            raise InputError(
                f"The feature map was fitted on {self.summary()}; these rows have {found.summary()}: choose the same "
                "columns."
            )
        if self.names == found.names or not set(self.names) & set(found.names):
            return values
        if set(self.names) == set(found.names):
            return values[:, [found.names.index(name) for name in self.names]]
        raise InputError(
            f"The feature map was fitted on {self.summary()}; these rows have {found.summary()}, of which only some "
            "are the same: choose the same columns."
        )

    def _recode(self, values: Values, found: "Block") -> Values:
        """Codes in the training rows' sense: equal labels, equal codes; labels never seen come after all others."""
        if found.labels == self.labels:
            return values
        self._require_comparable(found)
        used, inverse = np.unique(values, return_inverse=True)
        labels = [str(code) if found.labels is None else found.labels[code] for code in used]
        codes = self._codes_of(labels)
        return np.asarray(codes, dtype=np.int64)[inverse.reshape(-1)]

    def _codes_of(self, labels: list[str]) -> list[int]:
        if self.labels is None:
            return [min(int(label), _LARGEST_CODE) for label in labels]
        known = {label: code for code, label in enumerate(self.labels)}
        unseen = max(len(self.labels), self.declared or 0)
        return [known.get(label, unseen + position) for position, label in enumerate(labels)]

    def _require_comparable(self, found: "Block") -> None:
        """Plain codes are their own labels, 0 is "0"; beside other labels they have no meaning."""
        labels = found.labels if self.labels is None else self.labels
        if None in (self.labels, found.labels) and not all(
            label.removeprefix("-").isdecimal() for label in labels or ()
        ):
            trained, here = ("plain codes", "labels") if self.labels is None else ("labels", "plain codes")
            raise InputError(
                f"The feature map was fitted on {self.source}s that are {trained}, and these rows have {here} (labels: "
                f"{_shortened(labels or ())}): use the same for both."
            )

    def summary(self) -> str:
        """For messages: `2 state columns (x, y)`."""
        if self.discrete:
            return f"discrete {self.source}s (one column of codes, {self.names[0]})"
        return f"{len(self.names)} {self.source} column{'s' * (len(self.names) != 1)} ({_shortened(self.names)})"


def learn_block(rows: Demonstrations, source: Source) -> Block:
    """What the training rows' states or actions look like."""
    if values_of(rows, source) is None:
        raise InputError(
            "The feature map needs actions, and the training rows have none: take one of the states alone."
        )
    return _describe(rows, source)


def _describe(rows: Demonstrations, source: Source) -> Block:
    if source == "state":
        return Block("state", rows.state_names, rows.discrete_states, rows.state_labels, rows.n_states)
    return Block("action", rows.action_names, rows.discrete_actions, rows.action_labels, rows.n_actions)


def _shortened(names: tuple[str, ...]) -> str:
    return ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")


def whole_numbers(values: Values, block: Block, what: str) -> Int64[np.ndarray, "rows width"]:
    """Codes, or columns of whole numbers, as an integer matrix; the first value that is none is named."""
    if block.discrete:
        return values.astype(np.int64)[:, None]
    whole = (values == np.floor(values)) & (np.abs(values) < _LARGEST_CODE)
    if not whole.all():
        row, column = np.argwhere(~whole)[0]
        raise InputError(
            f"{what} needs labels or whole numbers, and row {row + 1} has {values[row, column]:g} in the "
            f"{block.source} column {block.names[column]!r}: use Standardize() for measurements."
        )
    return values.astype(np.int64)
