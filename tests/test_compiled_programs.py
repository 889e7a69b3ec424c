"""A long process forgets compiled programs before it has used up its memory maps."""

import jax
import jax.numpy as jnp
import pytest

from kdbirl import _jax as compiled_programs
from kdbirl._jax import float64, forget_if_many, memory_maps, most_memory_maps


def traced(runs: int = 1) -> int:
    """How often a program of the test's own is traced when it is called so many times."""
    counts.clear()
    for _ in range(runs):
        program(jnp.ones(3))
    return len(counts)


counts: list[int] = []


@jax.jit
def program(x: jax.Array) -> jax.Array:
    counts.append(1)
    return x + 1


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that may have hardly more maps than it has."""
    monkeypatch.setattr(compiled_programs, "most_memory_maps", lambda: memory_maps() + 1)
    monkeypatch.setattr(compiled_programs, "_looked", -1e9)


def test_this_system_tells_how_many_maps_there_are_and_may_be() -> None:
    assert 50 < memory_maps() < most_memory_maps()


def test_nothing_is_forgotten_while_there_is_room() -> None:
    traced()
    assert not forget_if_many(least_seconds=0.0)
    assert traced() == 0


@pytest.mark.usefixtures("full")
def test_a_full_process_forgets_and_compiles_again() -> None:
    traced()
    assert forget_if_many()
    assert traced(2) == 1


@pytest.mark.usefixtures("full")
def test_it_looks_only_now_and_then() -> None:
    assert forget_if_many()
    assert not forget_if_many()
    assert forget_if_many(least_seconds=0.0)


@pytest.mark.usefixtures("full")
def test_our_computations_look_before_they_begin_and_not_inside() -> None:
    @float64
    def inner() -> int:
        compiled_programs._looked = -1e9
        traced()
        nothing()
        return traced()

    @float64
    def nothing() -> None:
        return None

    assert inner() == 0, "a nested call forgot the programs of the call around it"
    compiled_programs._looked = -1e9
    nothing()
    assert traced() == 1
