"""What an environment recorded, as `Demonstrations`."""

from kdbirl.demos.data import Demonstrations
from kdbirl.envs.base import TabularMDP
from kdbirl.envs.steps import Steps


def demonstrations_of(steps: Steps, mdp: TabularMDP | None = None, columns: tuple[str, ...] = ()) -> Demonstrations:
    """Rows with declared counts; the action's names are its labels where the world has some."""
    numbered = tuple(str(a) for a in range(steps.n_actions))
    named = mdp is not None and mdp.action_names != numbered
    states = None if mdp is None or mdp.state_names is None else mdp.state_names[: mdp.recorded_states]
    return Demonstrations(
        states=steps.states,
        actions=steps.actions,
        episodes=steps.episodes,
        terminated=steps.terminated,
        truncated=steps.truncated,
        state_names=columns,
        state_labels=states,
        action_labels=mdp.action_names if named and mdp is not None else None,
        n_states=steps.n_states,
        n_actions=steps.n_actions,
    )
