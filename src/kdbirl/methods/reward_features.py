"""Which features the reward parameters weigh, R(s, a) = phi(s, a) . w, where the user's tables say it plainly."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from kdbirl.demos.data import Demonstrations
from kdbirl.envs.base import TabularMDP
from kdbirl.features import Columns, FeatureMap, Function, OneHotStates, as_feature_map


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
