"""Numbers at the edge: every result is finite or a clear error, and a chain that has not converged is said not to have.

Shapes are few and values many, so that little is compiled.
"""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import kdbirl as kb
from kdbirl.errors import KDBIRLError

TASKS, ROWS, EXPERT = 3, 4, 3
exponents = st.floats(-12.0, 12.0)


def bank_of(states: np.ndarray, rewards: np.ndarray, tasks: np.ndarray | None = None) -> kb.TaskBank:
    tasks = np.repeat(np.arange(len(rewards)), ROWS) if tasks is None else tasks
    return kb.TaskBank.from_arrays(states=states, actions=None, tasks=tasks, rewards=rewards)


def expert_of(states: np.ndarray) -> kb.Demonstrations:
    return kb.Demonstrations(states=states, actions=None)


def model_of(bandwidth: object = (1.0, 1.0), **choices: object) -> kb.KDBIRL:
    prior = choices.pop("prior", kb.Normal(0, 1))
    return kb.KDBIRL(prior=prior, features=kb.Identity(), bandwidth=bandwidth, **choices)


def shaped(kind: str, rng: np.random.Generator) -> np.ndarray:
    """Rows of two features: ordinary, repeated, constant or on a line."""
    rows = rng.normal(size=(TASKS * ROWS, 2))
    if kind == "duplicated":
        return rows[rng.integers(0, 2, len(rows))]
    if kind == "constant":
        return np.ones_like(rows)
    return np.outer(rows[:, 0], [1.0, 2.0]) if kind == "collinear" else rows


KINDS = ("ordinary", "duplicated", "constant", "collinear")


@given(st.sampled_from(KINDS), exponents, exponents, exponents, st.integers(0, 99))
@settings(max_examples=40)
def test_the_likelihood_is_finite_at_every_scale(kind: str, scale: float, width: float, reward_width: float, seed: int):
    rng = np.random.default_rng(seed)
    states, rewards = shaped(kind, rng) * 10.0**scale, rng.normal(size=(TASKS, 2))
    model = model_of((10.0 ** (scale + width / 3), 10.0 ** (reward_width / 3))).fit(bank_of(states, rewards))
    values = model.log_likelihood(expert_of(states[:EXPERT]), np.vstack([rewards, np.zeros(2)]))
    assert np.isfinite(values).all()


@given(st.sampled_from(("paper", "silverman", "scott", "median", "cv")), st.sampled_from(KINDS), exponents)
@settings(max_examples=25)
def test_every_rule_gives_positive_bandwidths_or_a_sentence(rule: str, kind: str, scale: float):
    rng = np.random.default_rng(0)
    states, rewards = shaped(kind, rng) * 10.0**scale, rng.normal(size=(TASKS, 2))
    try:
        model = model_of(rule).fit(bank_of(states, rewards))
    except KDBIRLError:  # a sentence
        return
    widths = model.fitted.choices.for_rows(EXPERT).bandwidths
    assert np.isfinite(widths.h).all()
    assert (widths.h > 0).all()
    assert 0 < widths.h_reward < np.inf


@given(st.floats(0.0, 150.0), st.integers(0, 9))
@settings(max_examples=15)
def test_rewards_far_apart(distance: float, seed: int):
    """Up to 10^150 times h': the nearest task decides, nothing overflows."""
    rng = np.random.default_rng(seed)
    states = rng.normal(size=(TASKS * ROWS, 2))
    rewards = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]) * 10.0**distance
    model = model_of(prior=kb.Normal(0, 10.0**distance)).fit(bank_of(states, rewards))
    assert np.isfinite(model.log_likelihood(expert_of(states[:EXPERT]), rewards)).all()


def test_tasks_of_one_row_and_an_imbalance_of_a_hundred_thousand():
    rng = np.random.default_rng(0)
    many = 100_000
    states = np.concatenate([rng.normal(size=(many, 2)).round(1), [[3.0, 3.0]], [[-3.0, 3.0]]])
    tasks = np.concatenate([np.zeros(many, dtype=int), [1, 2]])
    rewards = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    for weights in ("rows", "equal"):
        model = model_of((0.5, 0.3), task_weights=weights).fit(bank_of(states, rewards, tasks))
        values = model.log_likelihood(expert_of(np.array([[3.0, 3.0]] * EXPERT)), rewards)
        assert np.isfinite(values).all()
        assert values.argmax() == 1  # one row among 10^5 is heard by the expert who stands on it


def test_one_expert_row_and_a_million():
    rng = np.random.default_rng(1)
    states, rewards = rng.normal(size=(TASKS * ROWS, 2)), rng.normal(size=(TASKS, 2))
    model = model_of().fit(bank_of(states, rewards))
    one = model.log_likelihood(expert_of(states[:1]), rewards)
    million = model.log_likelihood(expert_of(np.repeat(states[:1], 1_000_000, axis=0)), rewards)
    np.testing.assert_allclose(million, 1e6 * one, rtol=1e-12)
    posterior = model_of(sampler=kb.Grid(draws=50)).fit(bank_of(states, rewards)).posterior(expert_of(states[:1]))
    assert np.isfinite(posterior.draws).all()


@given(st.floats(-6.0, 6.0), st.floats(-2.0, 6.0), st.integers(0, 99))
@settings(max_examples=10)
def test_draws_are_finite_and_inside_the_prior(scale: float, width: float, seed: int):
    rng = np.random.default_rng(seed)
    low, high = np.sort(rng.normal(size=2)) * 10.0**scale
    assume(high - low > 1e-3 * 10.0**scale)
    rewards = rng.uniform(low, high, (TASKS, 2))
    states = rng.normal(size=(TASKS * ROWS, 2))
    model = model_of((1.0, (high - low) * 10.0**width), prior=kb.Uniform(low, high), sampler=kb.Grid(draws=25))
    try:
        draws = model.fit(bank_of(states, rewards)).posterior(expert_of(states[:EXPERT]), seed=seed).flat
    except KDBIRLError:  # a sentence
        return
    assert np.isfinite(draws).all()
    assert ((draws >= low) & (draws <= high)).all()


def test_a_chain_that_has_not_converged_is_said_not_to_have_and_is_run_once(monkeypatch: pytest.MonkeyPatch):
    runs = []
    original = kb.Metropolis.sample
    monkeypatch.setattr(kb.Metropolis, "sample", lambda *given: (runs.append(1), original(*given))[1])
    rng = np.random.default_rng(2)
    rewards = np.array([[-4.0, 0.0], [4.0, 0.0], [0.0, 0.1]])
    states = rewards[np.repeat(np.arange(TASKS), ROWS)] + rng.normal(size=(TASKS * ROWS, 2))
    sampler = kb.Metropolis(chains=2, warmup=0, draws=20, thin=1)
    model = model_of((0.5, 0.2), prior=kb.Uniform(-5, 5), sampler=sampler).fit(bank_of(states, rewards))
    posterior = model.posterior(expert_of(states[:EXPERT]))
    assert len(runs) == 1
    assert not posterior.convergence.ok
    assert posterior.report_card()["convergence"][0] in ("red", "amber")
    assert "Do not use these draws yet" in posterior.convergence.sentence
