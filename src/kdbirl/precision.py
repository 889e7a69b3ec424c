"""Double precision inside our own computations, and nowhere else.

JAX computes in single precision unless told otherwise, and the switch is global. A library may not flip it for its
user, so every public function that touches JAX runs inside `float64`, which is local to the call and the thread.
"""

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def float64(function: Callable[P, T]) -> Callable[P, T]:
    """Run `function` with JAX's 64-bit types switched on for this call only."""

    @wraps(function)
    def in_float64(*args: P.args, **kwargs: P.kwargs) -> T:
        import jax  # here, so that importing the package does not import JAX

        with jax.enable_x64(True):
            return function(*args, **kwargs)

    return in_float64
