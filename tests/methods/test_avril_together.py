"""Many trainings of AVRIL side by side give what each gives alone."""

import equinox as eqx
import jax
import numpy as np
import pytest

import kdbirl as kb
from kdbirl.errors import InputError
from kdbirl.methods.avril import AVRIL
from kdbirl.progress import BLOCK

# Sums in another order differ by some units in the last place of single precision (6e-8 of numbers of order 1), and a
# few hundred steps of Adam make up to a hundred times that of it; measured here: at most 4e-6.
SAME = {"rtol": 1e-4, "atol": 1e-4}
SEEDS = (0, 1, 2)
SMALL = {"hidden": (16,), "steps": BLOCK + 50, "batch": 16, "draws": 300}


def expert(seed):
    """Experts of different lengths: 40, 48 and 56 rows."""
    world = kb.Gridworld(size=2)
    return kb.rollout(world, kb.plan(world, np.array([0.0, 0.0, 0.0, 1.0])), episodes=5 + seed, horizon=8, seed=seed)


def models(**changes):
    """Each with a prior of its own."""
    return [AVRIL(discount=1.0, prior=kb.Normal(0.1 * seed, 1 + seed), **{**SMALL, **changes}) for seed in SEEDS]


@pytest.fixture(scope="module")
def experts():
    return [expert(seed) for seed in SEEDS]


@pytest.fixture(scope="module")
def together(experts):
    made = models()
    AVRIL.train_together(made, experts, SEEDS)
    return made


def test_each_learns_what_it_learns_alone(together, experts):
    for model, alone, rows, seed in zip(together, models(), experts, SEEDS, strict=True):
        ours, theirs = model.trained.agent, alone.policy(rows, seed=seed)
        for a, b in zip(jax.tree.leaves(ours.network), jax.tree.leaves(theirs.network), strict=True):
            np.testing.assert_allclose(a, b, **SAME)
        np.testing.assert_allclose(ours.course.loss, theirs.course.loss, **SAME)
        assert (ours.course.steps, ours.course.kept_step, ours.course.outcome) == (BLOCK + 50, BLOCK + 50, "finished")


def test_posterior_and_policy_find_the_training_done(together, experts):
    model, rows = together[1], experts[1]
    trained = model.trained
    assert model.policy(rows, seed=1) is trained.agent
    posterior = model.posterior(rows, seed=1)
    assert model.trained is trained
    np.testing.assert_allclose(posterior.draws, models()[1].posterior(rows, seed=1).draws, rtol=1e-3, atol=1e-3)
    assert model.policy(rows, seed=2) is not trained.agent  # another seed is another training


def test_neighbours_and_places_do_not_matter(together, experts):
    """Bit for bit: an interrupted run that goes on with other neighbours has the same results."""
    made = models()
    AVRIL.train_together(made[2:], experts[2:], SEEDS[2:], lanes=3)
    assert eqx.tree_equal(made[2].trained.agent.network, together[2].trained.agent.network)


def test_a_training_that_diverges_leaves_its_neighbours(experts):
    wild = [AVRIL(discount=1.0, beta=beta, **SMALL) for beta in (1.0, 1e38)]
    AVRIL.train_together(wild, experts[:2], SEEDS[:2])
    fine, lost = (model.trained.agent.course for model in wild)
    assert fine.outcome == "finished"
    alone = AVRIL(discount=1.0, beta=1e38, **SMALL).policy(experts[1], seed=1).course
    assert (lost.outcome, lost.steps, lost.kept_step) == (alone.outcome, alone.steps, alone.kept_step)
    assert (lost.outcome, lost.kept_step) == ("diverged", 0)


def test_one_that_stops_early_leaves_its_neighbours():
    """Random actions cannot be predicted: the first stops early; the second has no episode to hold out."""
    rng = np.random.default_rng(0)
    rows = [
        kb.Demonstrations(rng.normal(size=(n, 2)), rng.integers(0, 2, n), episodes=np.arange(n) // 20) for n in (60, 20)
    ]
    options = {"hidden": (16,), "batch": 16, "steps": 20 * BLOCK, "learning_rate": 1e-2, "held_out": 0.3, "patience": 1}
    made = [AVRIL(**options) for _ in rows]
    AVRIL.train_together(made, rows, (0, 1))
    stopped, whole = (model.trained.agent.course for model in made)
    alone = AVRIL(**options).policy(rows[0], seed=0).course
    assert stopped.outcome == "stopped early"
    assert stopped.steps == stopped.kept_step + BLOCK < 20 * BLOCK
    assert (stopped.steps, stopped.kept_step, stopped.held_out_rows) == (alone.steps, alone.kept_step, 20)
    assert (whole.outcome, whole.steps, whole.held_out) == ("finished", 20 * BLOCK, ())


def test_what_cannot_be_run_side_by_side_is_refused(experts):
    with pytest.raises(InputError, match="cannot be run side by side"):
        AVRIL.train_together([*models()[:2], *models(steps=100)[2:]], experts, SEEDS)
