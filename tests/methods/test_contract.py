"""What every method promises, whatever it does inside: same inputs, result and refusals, same seed same draws."""

from functools import cache

import numpy as np
import pytest

import kdbirl as kb
from kdbirl.errors import InputError
from kdbirl.methods.birl_table import BIRLTable
from kdbirl.methods.cloning import BehaviourCloning
from kdbirl.methods.max_entropy import MaxCausalEntropy
from kdbirl.methods.neural_posterior import NeuralPosterior

TRUTH = np.array([0.0, 0.2, 0.1, 1.0])
PRIOR = kb.Uniform(0, 1)
SMALL = kb.Metropolis(chains=2, warmup=100, draws=100)  # compiles in a moment


@cache
def world():
    return kb.Gridworld(2, discount=0.7)


@cache
def bank():
    rewards = np.random.default_rng(0).uniform(0, 1, (8, 4))
    return kb.make_bank(world(), rewards, episodes=6, horizon=5, seed=0)


@cache
def expert():
    return kb.rollout(world(), kb.plan(world(), TRUTH), episodes=4, horizon=5, seed=1)


METHODS = {
    "KDBIRL": lambda: kb.KDBIRL(PRIOR, bandwidth="median", sampler=SMALL),
    "BIRL": lambda: kb.BIRL(world(), PRIOR, alpha=2.0, sampler=SMALL),
    "BIRL, table": lambda: BIRLTable(world(), PRIOR, alpha=2.0, per_axis=8, draws=200),
    "AVRIL": lambda: kb.AVRIL(discount=0.7, steps=50, draws=200),
    "AVRIL, informative": lambda: kb.AVRIL(discount=0.7, prior="informative", steps=50, draws=200),
    "neural posterior": lambda: NeuralPosterior(PRIOR, steps=50, draws=200, hidden=(16,)),
    "maximum entropy": lambda: MaxCausalEntropy(world()),
}
POINTS = ("maximum entropy",)
all_methods = pytest.mark.parametrize("name", METHODS)
every_fit = pytest.mark.parametrize(
    "make", [*METHODS.values(), lambda: BehaviourCloning(world())], ids=[*METHODS, "BehaviourCloning"]
)


@cache
def fitted(name):
    model = METHODS[name]()
    assert model.fit(bank()) is model
    return model


@cache
def answer(name, seed=3):
    return fitted(name).posterior(expert(), seed=seed)


@all_methods
def test_it_gives_a_posterior_of_the_banks_parameters(name):
    post = answer(name)
    assert isinstance(post, kb.Posterior)
    assert post.names == bank().reward_names
    assert post.draws.ndim == 3
    assert np.isfinite(post.draws).all()
    assert (post.flat.shape[0] == 1) == (name in POINTS)
    assert (post.seed, len(post.expert_features)) == (3, expert().n_rows)
    assert post.method
    assert post.sampler
    assert {"prior", "notes", "expert", "versions"} <= set(post.settings)
    assert "lp" in post.sample_stats


@all_methods
def test_the_same_seed_gives_the_same_draws_also_from_a_new_object(name):
    """And another seed others, unless nothing is random."""
    again = METHODS[name]().fit(bank()).posterior(expert(), seed=3)
    assert np.array_equal(again.draws, answer(name).draws)
    other = fitted(name).posterior(expert(), seed=4)
    assert np.array_equal(other.draws, answer(name).draws) == (name in POINTS)


@all_methods
def test_what_was_asked_before_changes_nothing(name):
    model = METHODS[name]().fit(bank())
    model.posterior(expert().take(slice(0, 10)), seed=9)
    assert np.array_equal(model.posterior(expert(), seed=3).draws, answer(name).draws)


@all_methods
def test_its_posterior_is_saved_and_judged_like_any_other(name, tmp_path):
    answer(name).save(tmp_path / "posterior.nc")
    assert np.array_equal(kb.load_posterior(tmp_path / "posterior.nc").draws, answer(name).draws)
    found = kb.evd(answer(name), world(), TRUTH)
    assert np.isfinite(found.mean)
    assert found.mean > -1e-9


@every_fit
@pytest.mark.parametrize("what", [None, 3, "bank.csv", expert])
def test_fitting_needs_a_bank(make, what):
    with pytest.raises(InputError, match="TaskBank"):
        make().fit(what)


@all_methods
@pytest.mark.parametrize("what", [None, np.zeros((3, 2)), "expert.csv", bank])
def test_an_expert_is_demonstrations(name, what):
    with pytest.raises(InputError, match="Demonstrations"):
        fitted(name).posterior(what() if callable(what) else what, seed=0)


@all_methods
@pytest.mark.parametrize("seed", [-1, 1.5, True, "0", None])
def test_a_seed_is_a_whole_number(name, seed):
    with pytest.raises(InputError, match="seed="):
        fitted(name).posterior(expert(), seed=seed)


@all_methods
def test_an_expert_without_actions_is_refused(name):
    with pytest.raises(InputError, match="action"):
        fitted(name).posterior(kb.Demonstrations(states=[0, 1, 3], n_states=4), seed=0)


@all_methods
def test_an_expert_of_another_world_is_refused(name):
    """State 7 of a world with four."""
    names = world().action_names
    stranger = kb.Demonstrations(states=[0, 7], actions=[0, 1], n_states=8, action_labels=names, n_actions=5)
    with pytest.raises(InputError, match="state"):
        fitted(name).posterior(stranger, seed=0)


@pytest.mark.parametrize("name", [name for name in METHODS if "BIRL," in name or name in ("BIRL", "maximum entropy")])
def test_methods_with_a_world_refuse_a_bank_of_another(name):
    other = kb.make_bank(kb.Gridworld(3), np.eye(9)[:3], episodes=2, horizon=3, seed=0)
    with pytest.raises(InputError, match="9 parameters"):
        METHODS[name]().fit(other)


@pytest.mark.parametrize("name", ["KDBIRL", "AVRIL, informative", "neural posterior"])
def test_methods_that_learn_from_tasks_say_that_they_have_not(name):
    with pytest.raises(InputError, match=r"fit\(bank\) first"):
        METHODS[name]().posterior(expert(), seed=0)


def test_behaviour_cloning_has_a_policy_and_says_that_it_has_no_reward():
    model = BehaviourCloning(world()).fit(bank())
    assert isinstance(model.policy(expert(), seed=0), kb.Policy)
    with pytest.raises(InputError, match="policy"):
        model.posterior(expert(), seed=0)
    with pytest.raises(InputError, match="Demonstrations"):
        model.policy(None, seed=0)
    with pytest.raises(InputError, match="seed="):
        model.policy(expert(), seed=-1)
