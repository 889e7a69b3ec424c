"""A fitted model survives saving and loading in another process, with equal numbers."""

import subprocess
import sys

import jax.numpy as jnp
import numpy as np
import pytest

import kdbirl as kb
from kdbirl.errors import FileProblem, InputError

from .banks import continuous, corners

IN_ANOTHER_PROCESS = """
import sys, numpy as np, kdbirl as kb
model = kb.load_model(sys.argv[1] + "/model.npz")
expert = kb.read_demonstrations(sys.argv[1] + "/expert.parquet", state=["s0", "s1"])
rewards = np.load(sys.argv[1] + "/rewards.npy")
np.save(sys.argv[1] + "/values.npy", model.log_likelihood(expert, rewards))
model.posterior(expert, seed=7).save(sys.argv[1] + "/other.nc")
"""


def test_equal_numbers_in_another_process(tmp_path):
    bank, expert = continuous()
    model = kb.KDBIRL(prior=kb.TruncatedNormal(0, 1, -2, 2), bandwidth="silverman", power=0.7).fit(bank)
    model.save(tmp_path / "model.npz")
    kb.write_demonstrations(expert, tmp_path / "expert.parquet")
    rewards = np.random.default_rng(0).uniform(-1, 1, (5, 2))
    np.save(tmp_path / "rewards.npy", rewards)
    subprocess.run([sys.executable, "-c", IN_ANOTHER_PROCESS, str(tmp_path)], check=True)
    assert np.array_equal(np.load(tmp_path / "values.npy"), model.log_likelihood(expert, rewards))
    other = kb.load_posterior(tmp_path / "other.nc")
    assert np.array_equal(other.draws, model.posterior(expert, seed=7).draws)


def test_every_kind_of_setting_comes_back(tmp_path):
    bank, expert = corners(4)
    model = kb.KDBIRL(
        prior=kb.Product([kb.Uniform(0, 1), kb.Beta(2, 2), kb.Normal(0.5, 1), kb.Laplace(0, 1)]),
        features=kb.OneHot(),
        kernel=kb.ProductKernel(state="laplace", action=kb.Categorical(0.2)),
        reward_kernel="epanechnikov",
        reward_distance="manhattan",
        bandwidth=(0.8, 3.0),
        sampler=kb.SMC(),
        task_weights="equal",
    ).fit(bank)
    model.save(tmp_path / "m.npz")
    again = kb.load_model(tmp_path / "m.npz")
    rewards = np.random.default_rng(0).uniform(0, 1, (6, 4))
    assert np.array_equal(model.log_likelihood(expert, rewards), again.log_likelihood(expert, rewards))
    assert again.sampler == kb.SMC()
    assert again.fitted.prior.describe() == model.fitted.prior.describe()


def bump(u):
    return jnp.exp(-(u**4))


def test_user_functions_are_asked_for(tmp_path):
    bank, expert = continuous()
    model = kb.KDBIRL(prior=kb.Uniform(-2, 2), kernel=bump, bandwidth=(0.6, 0.5)).fit(bank)
    model.save(tmp_path / "m.npz")
    with pytest.raises(InputError, match="functions="):
        kb.load_model(tmp_path / "m.npz")
    again = kb.load_model(tmp_path / "m.npz", functions={"bump": bump})
    assert np.array_equal(model.log_likelihood(expert, bank.rewards), again.log_likelihood(expert, bank.rewards))


@pytest.mark.parametrize("damage", ["cut", "foreign", "missing"])
def test_damaged_files_are_refused(tmp_path, damage):
    path = tmp_path / "m.npz"
    kb.KDBIRL(prior=kb.Uniform(-2, 2)).fit(continuous()[0]).save(path)
    if damage == "cut":
        path.write_bytes(path.read_bytes()[:-200])
    elif damage == "foreign":
        path.write_bytes(b"\x89PNG\r\n" + bytes(100))
    else:
        path.unlink()
    with pytest.raises(FileProblem, match=r"m\.npz"):
        kb.load_model(path)


def test_unfitted_and_unwritable(tmp_path):
    with pytest.raises(InputError, match="has not been fitted"):
        kb.KDBIRL(prior=kb.Uniform(0, 1)).save(tmp_path / "m.npz")
    with pytest.raises(FileProblem, match="cannot be written"):
        kb.KDBIRL(prior=kb.Uniform(-2, 2)).fit(continuous()[0]).save(tmp_path / "no such folder" / "m.npz")
