"""Draws of the reward from AVRIL's posterior, by the paper's appendix on EVD: the mean and standard deviation of the
reward in each state (or row), and independent normal draws with these.

    R(x_j) ~ N(mu(x_j), sigma(x_j)^2)     for each of u distinct states (or state-action pairs) x_j

Where the reward has parameters, R(s, a) = phi(s, a) . w, each such draw of the u values becomes the w that is nearest
to it by least squares, w = Phi^+ R. With one parameter per state this changes nothing. With few weights and many rows
the independent errors average out, so w is narrower than any R(x_j): this follows from the method's assumption that
states are independent, and is no statement of certainty. The draws of w are normal too, and are drawn as such.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from kdbirl.data.demonstrations import Demonstrations, TaskBank
from kdbirl.errors import InputError
from kdbirl.features.base import FeatureMap
from kdbirl.methods.arguments import default_reward_features
from kdbirl.posterior.priors import Normal

MOST_ROWS = 1000  # parameters, at most, where every row of numbers is one


@dataclass(frozen=True, eq=False)
class Sites:
    """Where the reward is asked for: r rows, of which row j is the distinct site `index[j]`; `first` row of each site.

    names, phi: of the parameters, phi `(r, q)`; None where every site is a parameter.
    """

    rows: Demonstrations
    first: Int[np.ndarray, " u"]
    index: Int[np.ndarray, " r"]
    names: tuple[str, ...]
    phi: Float[np.ndarray, "r q"] | None

    @property
    def projection(self) -> Float[np.ndarray, "q u"] | None:
        """Phi^+ with equal sites added up; None where every site is a parameter."""
        if self.phi is None:
            return None
        inverse = np.linalg.pinv(self.phi)
        summed = np.zeros((len(inverse), len(self.first)))
        np.add.at(summed.T, self.index, inverse.T)
        return summed

    @property
    def rank(self) -> int:
        """How many directions of the parameters these rows can tell."""
        return len(self.names) if self.phi is None else int(np.linalg.matrix_rank(self.phi))

    @property
    def notes(self) -> list[str]:
        """What a reader must know about the parameters."""
        found = []
        if self.rank < len(self.names):
            found.append(
                f"The {self.rows.n_rows} rows tell {self.rank} of {len(self.names)} directions of the parameters; "
                "along the others the draws are 0."
            )
        if self.phi is not None and len(self.first) > len(self.names):
            found.append(
                f"Each draw of the reward at {len(self.first)} places was fitted by least squares on {len(self.names)} "
                "features; AVRIL takes places to be independent, so the weights look too certain."
            )
        return found


def every_state(expert: Demonstrations, n_states: int, n_actions: int, pairs: bool) -> Demonstrations:
    """A row for each discrete state, or for each state and action."""
    states = np.repeat(np.arange(n_states), n_actions if pairs else 1)
    return Demonstrations(
        states=states,
        actions=np.tile(np.arange(n_actions), n_states) if pairs else None,
        state_names=expert.state_names,
        action_names=expert.action_names if pairs else (),
        state_labels=expert.state_labels if expert.state_labels and len(expert.state_labels) == n_states else None,
        action_labels=expert.action_labels if pairs else None,
        n_states=n_states,
        n_actions=n_actions if pairs else None,
    )


def sites(rows: Demonstrations, state_only: bool, phi: FeatureMap | None, names: Sequence[str]) -> Sites:
    """Distinct states, or state-action pairs, of these rows, in order of appearance."""
    columns = np.asarray(rows.states, dtype=np.float64).reshape(rows.n_rows, -1)
    if not state_only:
        if not rows.discrete_actions:
            raise InputError("AVRIL's reward is one of state and action here: rows need discrete actions.")
        columns = np.column_stack([columns, np.asarray(rows.actions, dtype=np.float64)])
    _, first, index = np.unique(columns, axis=0, return_index=True, return_inverse=True)
    order = np.argsort(first)
    place = np.argsort(order)
    first, index = first[order], place[index.reshape(-1)]
    if phi is not None:
        table = np.asarray(phi(rows), dtype=np.float64)
        chosen = tuple(names) or tuple(phi.names)
        if table.shape[1] != len(chosen):
            raise InputError(
                f"reward_features gives {table.shape[1]} columns for the {len(chosen)} parameters {chosen}."
            )
        return Sites(rows, first, index, chosen, table)
    kept = np.arange(len(first))
    if not rows.discrete_states and len(first) > MOST_ROWS:
        kept = np.linspace(0, len(first) - 1, MOST_ROWS).round().astype(np.int64)
    chosen_rows = rows.take(first[kept])
    return Sites(
        chosen_rows, np.arange(len(kept)), np.arange(len(kept)), _site_names(rows, first[kept], state_only), None
    )


def _site_names(rows: Demonstrations, first: Int[np.ndarray, " u"], state_only: bool) -> tuple[str, ...]:
    if not rows.discrete_states:
        return tuple(f"row {row + 1}" for row in first)
    states = [f"state {_label(rows.state_labels, int(s))}" for s in rows.states[first]]
    if state_only:
        return tuple(states)
    assert rows.actions is not None
    actions = [f"action {_label(rows.action_labels, int(a))}" for a in rows.actions[first]]
    return tuple(f"{state}, {action}" for state, action in zip(states, actions, strict=True))


def _label(labels: tuple[str, ...] | None, code: int) -> str:
    return str(code) if labels is None or code >= len(labels) else labels[code]


@dataclass(frozen=True, eq=False)
class NormalDraws:
    """Draws `(n, q)` and the log density of each, up to a constant."""

    draws: Float[np.ndarray, "n q"]
    log_density: Float[np.ndarray, " n"]


def normal_draws(
    mean: Float[np.ndarray, " u"],
    sd: Float[np.ndarray, " u"],
    projection: Float[np.ndarray, "q u"] | None,
    n: int,
    rng: np.random.Generator,
) -> NormalDraws:
    """Independent normal draws at the sites, projected: w = P R ~ N(P mean, P diag(sd^2) P'), drawn as such."""
    if projection is None:
        z = rng.standard_normal((n, len(mean)))
        return NormalDraws(mean + sd * z, -0.5 * np.sum(z**2, axis=1))
    root = np.linalg.qr((projection * sd).T, mode="r")  # root' root = P diag(sd^2) P', of at most q rows
    z = rng.standard_normal((n, len(root)))
    return NormalDraws(projection @ mean + z @ root, -0.5 * np.sum(z**2, axis=1))


# The informative prior of the paper's Section 5.1: what rewards the training tasks paid, as a prior for AVRIL.
#
#     mu_0 = 1/m sum_j R_j(s_j, a_j),      sigma_0^2 = 1/m sum_j (R_j(s_j, a_j) - mu_0)^2
#
# over the m training rows, where R_j(s, a) = phi(s, a) . w_j is the known reward of row j's task.


@dataclass(frozen=True)
class RewardPrior:
    """N(mean, sd^2) of the reward of *every* state (and action). It speaks of R(s, a), and not of the parameters of R,
    as `kb.Normal` does for the other methods. rows: how many training rows it was made of, 0 if it was given."""

    mean: float = 0.0
    sd: float = 1.0
    rows: int = 0

    def __post_init__(self) -> None:
        if not (np.isfinite(self.mean) and np.isfinite(self.sd) and self.sd > 0):
            raise InputError(
                f"The prior N({self.mean}, {self.sd}^2) of a reward needs a finite mean and a positive sd."
            )

    def describe(self) -> str:
        """In words."""
        origin = f", from {self.rows} training rows" if self.rows else ""
        return f"every R(s, a) ~ normal:{self.mean:g},{self.sd:g}{origin}"


def informative_prior(bank: Any, features: Any = None) -> RewardPrior:
    """mu_0 and sigma_0 of the rewards that the bank's rows earned under their own tasks, for `kb.AVRIL(prior=...)`.

    features: phi of R(s, a) = phi(s, a) . w. Default: the columns that the reward parameters are named after, or one
    parameter per discrete state.
    """
    if not isinstance(bank, TaskBank):
        raise InputError(f"informative_prior needs a TaskBank, not {type(bank).__name__}: see kb.read_task_bank.")
    rewards = earned(bank, features)
    mean, sd = float(rewards.mean()), float(rewards.std())
    if not sd > 1e-12 * max(abs(mean), 1e-300):
        raise InputError(
            f"Every training row earned {mean:g}, so sigma_0 is 0 and the informative prior would allow nothing else; "
            "use tasks or features whose rewards vary, or a prior of your own, such as kb.Normal(0, 1)."
        )
    return RewardPrior(mean, sd, bank.n_rows)


def earned(bank: TaskBank, features: Any = None) -> Float[np.ndarray, " m"]:
    """R_j(s_j, a_j) of each training row."""
    phi = default_reward_features(features, bank.demonstrations, bank.reward_names)
    if phi is None:
        raise InputError(
            "The bank does not say which features its reward parameters weigh; give features=phi, a feature map or a "
            f"function with one column for each of {', '.join(bank.reward_names)}."
        )
    table, index = phi.distinct(bank.demonstrations)
    if table.shape[1] != bank.n_parameters:
        raise InputError(
            f"features gives {table.shape[1]} columns, but the bank's rewards have {bank.n_parameters} parameters."
        )
    if len(table) < bank.n_rows:  # discrete rows repeat: every reward once, and no matrix as long as the bank
        return np.asarray((table @ bank.rewards.T)[index, bank.tasks])
    return np.einsum("mq,mq->m", table, bank.rewards[bank.tasks])


def as_reward_prior(prior: Any) -> RewardPrior:
    """None is the standard normal; `kb.Normal` with one mean and one sd is taken as the prior of every reward."""
    if prior is None:
        return RewardPrior()
    if isinstance(prior, RewardPrior):
        return prior
    if isinstance(prior, Normal) and np.size(prior.mean) == 1 and np.size(prior.sd) == 1:
        return RewardPrior(float(np.reshape(prior.mean, ())), float(np.reshape(prior.sd, ())))
    raise InputError(
        f"prior={prior!r}: AVRIL's prior is one normal distribution of every R(s, a): None is N(0, 1), "
        'kb.Normal(mean, sd) another, kb.informative_prior(bank) or "informative" the training tasks\' own.'
    )
