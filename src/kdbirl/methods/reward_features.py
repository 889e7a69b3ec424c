"""Which features the reward parameters weigh, R(s, a) = phi(s, a) . w, where the user's tables say it plainly."""

from typing import Any

from kdbirl.demos.data import TaskBank
from kdbirl.features import Columns, FeatureMap, OneHotStates, as_feature_map


def default_reward_features(chosen: Any, bank: TaskBank) -> FeatureMap | None:
    """The user's choice; else columns named like the parameters; else one parameter per discrete state; else none."""
    rows = bank.demonstrations
    if chosen is not None:
        return as_feature_map(chosen).fit(rows)
    columns = set(rows.state_names if not rows.discrete_states else ())
    if rows.actions is not None and not rows.discrete_actions:
        columns |= set(rows.action_names)
    names = [name.removeprefix("w_").removeprefix("w.") for name in bank.reward_names]
    if all(name in columns for name in names):
        return Columns(names).fit(rows)
    if rows.discrete_states and (rows.n_states or int(rows.states.max()) + 1) == bank.n_parameters:
        return OneHotStates(n_states=bank.n_parameters).fit(rows)
    return None
