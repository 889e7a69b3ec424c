"""Which states can be reached, and whether every policy ends: what decides if a discount of 1 has a meaning."""

import numpy as np
from jaxtyping import Bool, Float


def reachable_states(
    transitions: Float[np.ndarray, "S A S"], start: Float[np.ndarray, " S"], terminal: Bool[np.ndarray, " S"]
) -> Bool[np.ndarray, " S"]:
    """States that some policy visits from the start distribution; nothing is reached through a terminal state."""
    leads_to = transitions.max(axis=1) > 0
    reached = start > 0
    frontier = reached & ~terminal
    while frontier.any():
        found = leads_to[frontier].any(axis=0) & ~reached
        reached = reached | found
        frontier = found & ~terminal
    return reached


def lingering_states(
    transitions: Float[np.ndarray, "S A S"], terminal: Bool[np.ndarray, " S"], among: Bool[np.ndarray, " S"]
) -> Bool[np.ndarray, " S"]:
    """States of `among` in which some policy can stay for ever without meeting a terminal state.

    The largest set in each of whose states an action exists that never leaves the set. If it is empty, every policy is
    absorbed with probability one, in a finite expected time.
    """
    staying = among & ~terminal
    while staying.any():
        leaves = transitions[staying][:, :, ~staying].sum(axis=2)
        kept = staying.copy()
        kept[staying] = (leaves <= 0).any(axis=1)
        if np.array_equal(kept, staying):
            return staying
        staying = kept
    return staying
