"""The informative prior of the paper's Section 5.1: what rewards the training tasks paid, as a prior for AVRIL.

    mu_0 = 1/m sum_j R_j(s_j, a_j),      sigma_0^2 = 1/m sum_j (R_j(s_j, a_j) - mu_0)^2

over the m training rows, where R_j(s, a) = phi(s, a) . w_j is the known reward of row j's task.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from kdbirl.demos.data import TaskBank
from kdbirl.errors import InputError
from kdbirl.methods.reward_features import default_reward_features
from kdbirl.posterior.priors import Normal


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
