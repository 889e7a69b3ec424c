"""The informative prior against the formula of Section 5.1, row by row."""

import numpy as np
import pytest

import kdbirl as kb
from kdbirl.errors import InputError
from kdbirl.methods.avril_draws import RewardPrior, as_reward_prior, informative_prior

from .banks import continuous, corners


def by_hand(bank, phi):
    """mu_0 and sigma_0^2 as printed."""
    earned = [float(phi[j] @ bank.rewards[bank.tasks[j]]) for j in range(bank.n_rows)]
    mean = sum(earned) / len(earned)
    return mean, sum((reward - mean) ** 2 for reward in earned) / len(earned)


def test_one_reward_per_state():
    bank, _ = corners(3)
    prior = informative_prior(bank)
    mean, variance = by_hand(bank, np.eye(4)[:, :4][bank.demonstrations.states][:, : bank.n_parameters])
    assert (prior.mean, prior.sd**2) == (pytest.approx(mean, rel=1e-12), pytest.approx(variance, rel=1e-12))
    assert prior.rows == bank.n_rows


@pytest.mark.parametrize("features", [kb.Columns(["s1", "s0"]), kb.Function(lambda states: states[:, ::-1])])
def test_weighed_features(features):
    bank, _ = continuous()
    prior = informative_prior(bank, features=features)
    mean, variance = by_hand(bank, bank.demonstrations.states[:, ::-1])
    assert prior.mean == pytest.approx(mean, rel=1e-12)
    assert prior.sd**2 == pytest.approx(variance, rel=1e-12)


@pytest.mark.parametrize("n_states", [3, 30])
def test_features_of_states_and_actions_repeat_with_their_rows(n_states):
    """Discrete rows are collapsed first; the answer is that of every row by itself. Of 60 pairs none may repeat."""
    rng = np.random.default_rng(0)
    states, actions = np.divmod(rng.permutation(60) % (2 * n_states), 2)
    tasks = np.repeat([0, 1, 2], 20)
    phi, rewards = rng.normal(size=(n_states, 2, 4)), rng.normal(size=(3, 4))
    bank = kb.TaskBank.from_arrays(states, actions, tasks, rewards, n_states=n_states, n_actions=2)
    features = kb.Function(
        lambda s, a: phi[np.asarray(s).reshape(-1).astype(int), np.asarray(a).reshape(-1).astype(int)]
    )
    prior = informative_prior(bank, features=features)
    mean, variance = by_hand(bank, phi[states, actions])
    assert (prior.mean, prior.sd**2) == (pytest.approx(mean, rel=1e-12), pytest.approx(variance, rel=1e-12))


def test_what_cannot_be_a_prior_is_refused():
    bank, expert = continuous()
    with pytest.raises(InputError, match=r"needs a TaskBank"):
        informative_prior(expert)
    with pytest.raises(InputError, match=r"which features .* r0, r1"):
        informative_prior(bank)
    with pytest.raises(InputError, match="1 columns, but the bank's rewards have 2"):
        informative_prior(bank, features=kb.Columns(["s0"]))
    with pytest.raises(InputError, match="sigma_0 is 0"):
        informative_prior(bank, features=kb.Function(lambda states: np.zeros((len(states), 2))))
    with pytest.raises(InputError, match="positive sd"):
        RewardPrior(0.0, 0.0)


def test_other_priors():
    assert as_reward_prior(None) == RewardPrior(0.0, 1.0)
    assert as_reward_prior(kb.Normal(2, 0.5)) == RewardPrior(2.0, 0.5)
    for wrong in (kb.Uniform(0, 1), kb.Normal([0, 1], 1), "normal", 3):
        with pytest.raises(InputError, match="one normal distribution of every"):
            as_reward_prior(wrong)
