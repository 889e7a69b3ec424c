"""Arguments that every method takes, checked alike."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from kdbirl.demos.data import Demonstrations, TaskBank
from kdbirl.demos.rollouts import whole_number
from kdbirl.envs.base import TabularMDP
from kdbirl.errors import InputError, did_you_mean
from kdbirl.precision import is_traced, refuse_traced


def reward_rows(rewards: Any, names: Sequence[str]) -> Float[np.ndarray, "r q"]:
    """Rewards (r, q) or (q,) as a table of finite numbers; the columns of a frame are found by name."""
    if hasattr(rewards, "columns"):
        missing = [name for name in names if name not in list(rewards.columns)]
        if missing:
            raise InputError(
                f"rewards has no column {missing[0]!r}.{did_you_mean(missing[0], map(str, rewards.columns))}"
            )
        rewards = rewards[list(names)].to_numpy()
    refuse_traced(rewards, "rewards")
    try:
        table = np.atleast_2d(np.asarray(rewards, dtype=float))
    except (TypeError, ValueError):
        raise InputError(f"rewards={rewards!r} are not numbers: give an array with one row per reward.") from None
    _check_shape(np.shape(rewards), table.shape, names)
    if not np.isfinite(table).all():
        row, column = (int(i) for i in np.argwhere(~np.isfinite(table))[0])
        raise InputError(f"rewards: row {row + 1}, {names[column]!r} is {table[row, column]}; it must be finite.")
    return table


def traced_rewards(rewards: Any, names: Sequence[str]) -> Any:
    """Rewards (r, q) or (q,) that JAX is tracing, in double precision.

    In single precision JAX would cut the sums of our tables to it: a log likelihood of a thousand rows would be off by
    1e-3, and its differences, which make the posterior, by as much.
    """
    import jax
    import jax.numpy as jnp

    kinds = {str(leaf.dtype) for leaf in jax.tree.leaves(rewards) if is_traced(leaf)}
    if kinds != {"float64"}:
        raise InputError(
            f"rewards are traced by JAX in {', '.join(sorted(kinds))}, in which a log likelihood keeps too few digits; "
            "trace in double precision: `with jax.enable_x64(True):` around your jit, grad or vmap and its arguments."
        )
    table = jnp.asarray(rewards)
    _check_shape(table.shape, table.shape if table.ndim > 1 else (1, *table.shape), names)
    return table


def _check_shape(given: tuple[int, ...], shape: tuple[int, ...], names: Sequence[str]) -> None:
    if len(shape) != 2 or shape[1] != len(names):
        raise InputError(
            f"rewards has shape {given}; expected one row per reward and one column for each of {', '.join(names)}."
        )


def is_number(value: Any) -> bool:
    """A number, not text that looks like one."""
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)


def row_count(n: object) -> int:
    if isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 1:
        raise InputError(f"n={n!r} should be the expert's number of rows, a whole number of at least 1.")
    return int(n)


def whole_seed(seed: object) -> int:
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or not 0 <= int(seed) < 2**32:
        raise InputError(f"seed={seed!r} should be a whole number from 0 to 4294967295.")
    return int(seed)


def layer_sizes(hidden: Any) -> tuple[int, ...]:
    sizes = hidden if isinstance(hidden, tuple | list) and hidden else (0,)
    return tuple(whole_number(size, "hidden: the size of a layer", 1) for size in sizes)


def require_positive(value: Any, name: str) -> None:
    if not (is_number(value) and 0 < value < np.inf):
        raise InputError(f"{name}={value!r} should be a positive number.")


def as_bank(bank: object) -> TaskBank:
    if not isinstance(bank, TaskBank):
        raise InputError(
            f"fit needs a TaskBank, not {type(bank).__name__}: see kb.read_task_bank and kb.TaskBank.from_arrays."
        )
    return bank


def as_expert(expert: object) -> Demonstrations:
    if not isinstance(expert, Demonstrations):
        raise InputError(f"The expert must be Demonstrations, not {type(expert).__name__}: see kb.read_demonstrations.")
    return expert


def require_bank_of(mdp: TabularMDP, bank: object) -> None:
    """For methods that learn nothing from training tasks: refuse what is no bank, or one of another world's rewards."""
    bank = as_bank(bank)
    if bank.n_parameters != mdp.n_parameters:
        raise InputError(
            f"The bank's rewards have {bank.n_parameters} parameters, but the world's have {mdp.n_parameters} "
            f"({', '.join(mdp.feature_names[:6])}{', ...' if mdp.n_parameters > 6 else ''})."
        )
