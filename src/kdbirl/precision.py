"""Double precision inside our own computations, and nowhere else.

JAX computes in single precision unless told otherwise, and the switch is global. A library may not flip it for its
user, so every public function that touches JAX runs inside `float64`, which is local to the call and the thread. Being
the door to all our computations, it is also where compiled programs are forgotten (`compiled_programs`), and where a
fork of a process that has computed is refused (`threads`).
"""

import sys
from collections.abc import Callable
from contextvars import ContextVar
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from kdbirl.compiled_programs import forget_if_many
from kdbirl.errors import InputError
from kdbirl.threads import refuse_fork

P = ParamSpec("P")
T = TypeVar("T")

_inside: ContextVar[bool] = ContextVar("inside one of our computations", default=False)


def float64(function: Callable[P, T]) -> Callable[P, T]:
    """Run `function` with JAX's 64-bit types switched on for this call only."""

    @wraps(function)
    def in_float64(*args: P.args, **kwargs: P.kwargs) -> T:
        import jax  # here, so that importing the package does not import JAX

        if _inside.get():
            with jax.enable_x64(True):
                return function(*args, **kwargs)
        refuse_fork("JAX")
        if not is_traced([*args, *kwargs.values()]):
            forget_if_many()  # between two computations, never while one is being traced
        token = _inside.set(True)
        try:
            with jax.enable_x64(True):
                return function(*args, **kwargs)
        finally:
            _inside.reset(token)

    return in_float64


def single_precision(function: Callable[P, T]) -> Callable[P, T]:
    """Run `function` with JAX's 32-bit types, also for a user who has switched the others on: the same seed gives the
    same numbers either way."""

    @wraps(function)
    def in_float32(*args: P.args, **kwargs: P.kwargs) -> T:
        import jax

        refuse_fork("JAX")
        with jax.enable_x64(False):
            return function(*args, **kwargs)

    return in_float32


def is_traced(values: Any) -> bool:
    """Whether these, or some of a list of them, have no numbers yet: a user's jit, grad or vmap is looking at them."""
    if "jax" not in sys.modules:
        return False
    tracer = sys.modules["jax"].core.Tracer
    return isinstance(values, tracer) or (isinstance(values, list | tuple) and any(map(is_traced, values)))


def refuse_traced(values: Any, what: str) -> None:
    """For what is computed from numbers, in NumPy: JAX's own sentence would not name it."""
    if is_traced(values):
        raise InputError(
            f"{what}: traced by JAX (jit, grad or vmap), without numbers yet, and this is not computed in JAX; call it "
            "outside of them, or by jax.pure_callback."
        )
