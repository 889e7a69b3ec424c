"""Rewards of learnt features in the sepsis simulators: phi inside a step is the map's own phi of that row."""

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import kdbirl as kb
from kdbirl.errors import InputError
from kdbirl.worlds.sepsis.covariates import COVARIATES

from .cartpole import CartPole
from .test_gym_sepsis import directory  # noqa: F401 (a fixture: random weights in the original's layout)

SIM = kb.SepsisSim(memory=False, ending="never")
N = 7


@pytest.fixture(scope="module")
def phi():
    """Principal components of made-up rows: no training, and the same reading of states and actions as the VAE's."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(300, 46)) @ rng.normal(size=(46, 46)), rng.integers(24, size=300)
    return kb.PCA(3).fit(kb.Demonstrations(*rows, state_names=COVARIATES, n_actions=24))


def check(simulator, phi):
    with jax.enable_x64(True):
        state, seen = simulator.reset(jax.random.key(0), N)
        action = jnp.arange(N) * 3
        found = simulator.step(state, action, jax.random.key(1)).features
    rows = kb.Demonstrations(np.asarray(seen), np.asarray(action), state_names=COVARIATES, n_actions=24)
    np.testing.assert_allclose(found[:, :3], phi(rows), rtol=1e-9, atol=1e-9)
    assert simulator.feature_names[:3] == phi.names


def test_in_the_simulator(phi):
    compiled = kb.in_jax(phi, 24)
    check(SIM.with_features(compiled, names=phi.names), phi)
    ends = kb.SepsisSim(memory=False, outcome=True).with_features(compiled, names=phi.names)
    assert ends.feature_names == (*phi.names, "survived", "died")
    check(ends, phi)


def test_in_gym_sepsis(phi, directory):  # noqa: F811
    before = kb.GymSepsis(directory)
    after = before.with_features(kb.in_jax(phi, 24), names=phi.names)
    check(after, phi)
    assert before.feature_names == ("SOFA", "lactate", "MAP")
    assert after.networks is before.networks


def test_names_that_do_not_fit(phi):
    with pytest.raises(InputError, match="2 names for 3 features"):
        SIM.with_features(kb.in_jax(phi, 24), names=("a", "b"))


def test_one_patient_in_gymnasium():
    env = kb.as_gymnasium(SIM, [-1.0, 0.0, 0.0])
    assert isinstance(env.observation_space, gymnasium.spaces.Box)
    env.reset(seed=0)
    assert env.step(3)[1] <= 0
    with pytest.raises(InputError, match="not CartPole"):
        kb.as_gymnasium(CartPole(discount=0.9), "terminal")
