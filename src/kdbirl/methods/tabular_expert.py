"""Demonstrations as pairs of a tabular world's own states and actions, checked row by row."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from kdbirl.demos.data import Demonstrations
from kdbirl.envs.base import TabularMDP
from kdbirl.errors import InputError, did_you_mean
from kdbirl.planners.dynamics import dynamics_of


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
