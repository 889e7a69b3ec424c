"""An array of numbers inside a feature map: frozen, comparable, and exact in a JSON text (base64 of its bytes)."""

import base64
import binascii
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np

from kdbirl.errors import InputError

Precision = Literal["float32", "float64"]


@dataclass(frozen=True)
class StoredArray:
    """`shape` and `precision` of the values, which are kept as the base64 text of their little-endian bytes.

    A third of the size of decimal numbers in JSON, quicker to read, and equal to the last bit.
    """

    kind: ClassVar[str] = "array"
    shape: tuple[int, ...]
    precision: Precision
    base64: str = field(repr=False)

    @classmethod
    def of(cls, values: Any, precision: Precision = "float64") -> "StoredArray":
        """Keep a copy of an array."""
        array = np.asarray(values)
        stored = np.ascontiguousarray(array, dtype=_little_endian(precision))
        return cls(array.shape, precision, base64.b64encode(stored.tobytes()).decode("ascii"))

    @cached_property
    def values(self) -> np.ndarray:
        """The array in double precision, read-only."""
        try:
            content = base64.b64decode(self.base64, validate=True)
            array = np.frombuffer(content, dtype=_little_endian(self.precision)).reshape(self.shape)
        except (binascii.Error, ValueError, TypeError) as problem:
            raise InputError(
                f"The description of an array of shape {self.shape} in a feature map is damaged: save the map again."
            ) from problem
        wide = array.astype(np.float64)
        wide.setflags(write=False)
        return wide


def _little_endian(precision: Precision) -> np.dtype[Any]:
    return np.dtype({"float32": "<f4", "float64": "<f8"}[precision])
