"""Equality and fingerprint of frozen dataclasses that hold arrays."""

import hashlib
from dataclasses import fields
from functools import cached_property

import numpy as np


class Content:
    """Equality and fingerprint by content (arrays, names, labels), for frozen dataclasses."""

    @cached_property
    def _digest(self) -> str:
        digest = hashlib.sha256(type(self).__name__.encode())
        for item in fields(self):  # type: ignore[arg-type]
            value = getattr(self, item.name)
            digest.update(f"\0{item.name}\0".encode())
            if isinstance(value, np.ndarray):
                digest.update(f"{value.dtype.str}{value.shape}".encode())
                digest.update(value.tobytes())
            else:
                digest.update((value.fingerprint() if isinstance(value, Content) else repr(value)).encode())
        return digest.hexdigest()

    def fingerprint(self) -> str:
        """SHA-256 of the content, in hex: equal content, equal fingerprint, in any process."""
        return self._digest

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self._digest == other._digest

    def __hash__(self) -> int:
        return hash(self._digest)
