"""Numba, in one place: loops that neither NumPy nor JAX do fast, compiled when they are first called.

Compiled functions leave the interpreter's lock to other threads, and are kept on disk for the next process, beside
their source or in the user's cache, as Numba does it (docs/decisions/0014-compiled-loops.md). Importing Numba takes a
third of a second: files of loops are imported where they are needed.
"""

from collections.abc import Callable
from contextlib import suppress
from inspect import unwrap
from typing import Any

from numba import njit


def compiled(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Decorate a loop; divisions by zero give infinities, as in NumPy."""

    def decorate(loop: Callable[..., Any]) -> Any:
        loop = unwrap(loop)  # of what a checker of types put around it
        given = {"nogil": True, "error_model": "numpy", **options}
        try:
            made = njit(cache=True, **given)(loop)
        except RuntimeError:  # there is no place where it could be kept
            return njit(**given)(loop)
        if hasattr(made, "_cache"):  # a plain function has none: NUMBA_DISABLE_JIT=1
            made._cache = _Forgiving(made._cache)
        return made

    return decorate


class _Forgiving:
    """Numba's cache of a function; where it is damaged, or its disk is full, the function is compiled again."""

    def __init__(self, cache: Any) -> None:
        self._cache = cache

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cache, name)

    def load_overload(self, *given: Any) -> Any:
        try:
            return self._cache.load_overload(*given)
        except Exception:  # whatever unpickling a damaged file raises
            with suppress(OSError):
                self._cache.flush()
            return None

    def save_overload(self, *given: Any) -> None:
        with suppress(OSError):
            self._cache.save_overload(*given)
