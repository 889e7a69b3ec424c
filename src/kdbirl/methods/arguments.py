"""Arguments that every method takes, checked alike."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from kdbirl._jax import is_traced, refuse_traced
from kdbirl.data.demonstrations import Demonstrations, TaskBank
from kdbirl.errors import InputError, did_you_mean
from kdbirl.features import Columns, FeatureMap, Function, OneHotStates, as_feature_map
from kdbirl.worlds.dynamics import dynamics_of
from kdbirl.worlds.rollouts import whole_number
from kdbirl.worlds.tabular import TabularMDP


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


# Which features the reward parameters weigh, R(s, a) = phi(s, a) . w, where the user's tables say it plainly.


def default_reward_features(chosen: Any, rows: Demonstrations, reward_names: Sequence[str]) -> FeatureMap | None:
    """The user's choice; else columns named like the parameters; else one parameter per discrete state; else none."""
    if chosen is not None:
        return as_feature_map(chosen).fit(rows)
    columns = set(rows.state_names if not rows.discrete_states else ())
    if rows.actions is not None and not rows.discrete_actions:
        columns |= set(rows.action_names)
    names = [name.removeprefix("w_").removeprefix("w.") for name in reward_names]
    if all(name in columns for name in names):
        return Columns(names).fit(rows)
    if rows.discrete_states and (rows.n_states or int(rows.states.max()) + 1) == len(reward_names):
        return OneHotStates(n_states=len(reward_names)).fit(rows)
    return None


def world_reward_features(mdp: TabularMDP, expert: Demonstrations) -> FeatureMap:
    """phi of R(s, a) = phi(s, a) . w, for `Posterior.reward`."""
    per_state = mdp.features is None or np.array_equal(mdp.features, np.eye(mdp.n_states))
    if per_state and expert.discrete_states and expert.state_labels is None:
        return OneHotStates(n_states=mdp.n_states).fit(expert)
    return Function(mdp.features_of, names=mdp.feature_names).fit(expert)


# Demonstrations as pairs of a tabular world's own states and actions, checked row by row.


def state_action_pairs(mdp: TabularMDP, expert: Any) -> tuple[Int[np.ndarray, " rows"], Int[np.ndarray, " rows"]]:
    """State and action numbers of each row; a row that the world does not have is an error that names it."""
    if not isinstance(expert, Demonstrations):
        raise InputError(f"The expert must be Demonstrations, not {type(expert).__name__}: see kb.read_demonstrations.")
    if expert.actions is None:
        raise InputError("The expert has no actions; this method explains which action was taken in each state.")
    states = _codes(expert.states, expert.state_labels, mdp.state_names, mdp.n_states, "state")
    actions = _codes(expert.actions, expert.action_labels, mdp.action_names, mdp.n_actions, "action")
    live = np.zeros(mdp.n_states, dtype=bool)
    live[dynamics_of(mdp).live] = True
    if not live[states].all():
        row = int(np.flatnonzero(~live[states])[0])
        why = "is terminal, so nobody acts there" if mdp.terminal[states[row]] else "cannot be reached"
        raise InputError(f"expert: row {row + 1} acts in {mdp.state_name(int(states[row]))}, which {why}.")
    return states, actions


def visit_counts(
    mdp: TabularMDP, states: Int[np.ndarray, " rows"], actions: Int[np.ndarray, " rows"]
) -> Float[np.ndarray, "n A"]:
    """How often each live state and action was shown."""
    counts = np.zeros((mdp.n_states, mdp.n_actions))
    np.add.at(counts, (states, actions), 1.0)
    return counts[dynamics_of(mdp).live]


def _codes(
    values: np.ndarray, labels: Sequence[str] | None, names: Sequence[str] | None, count: int, what: str
) -> Int[np.ndarray, " rows"]:
    """Numbers of states or actions. Text is looked up among the world's names: the codes of labels have any order."""
    if values.ndim == 2 and (values.shape[1] != 1 or not (values == np.round(values)).all()):
        raise InputError(
            f"expert: the {what}s are vectors; this method needs the numbers 0 to {count - 1} of the world's {what}s."
        )
    codes = values.reshape(-1).astype(np.int64)
    if labels is not None:
        codes = _by_name(codes, labels, names or [str(number) for number in range(count)], what)
    outside = (codes < 0) | (codes >= count)
    if outside.any():
        row = int(np.flatnonzero(outside)[0])
        raise InputError(
            f"expert: row {row + 1} has {what} {codes[row]}, but the world's {what}s are 0 to {count - 1}."
        )
    return codes


def _by_name(
    codes: Int[np.ndarray, " rows"], labels: Sequence[str], names: Sequence[str], what: str
) -> Int[np.ndarray, " rows"]:
    places = {name: number for number, name in enumerate(names)}
    number = np.array([places.get(str(label), -1) for label in labels], dtype=np.int64)[codes]
    if (number < 0).any():
        row = int(np.flatnonzero(number < 0)[0])
        label = str(labels[codes[row]])
        raise InputError(
            f"expert: row {row + 1} has {what} {label!r}, which the world lacks.{did_you_mean(label, names)}"
        )
    return number
