"""`judge`: the same numbers as its parts, planned once, with progress; and its text where nothing can be bounded."""

import numpy as np
import pytest

import kdbirl as kb
from kdbirl.evaluation import planned_draws
from kdbirl.evaluation.judgement import judge
from kdbirl.report.terminal import evaluation_text

WORLD = kb.Gridworld(4, features="xy")
TRUTH = [1.0, -0.5]


def posterior(draws, prior=200):
    rng = np.random.default_rng(0)
    return kb.Posterior(
        draws=rng.normal(TRUTH, 0.4, (2, draws, 2)),
        names=("x", "y"),
        method="test",
        sampler="NUTS",
        seed=0,
        prior_draws=rng.uniform(-1, 1, (prior, 2)),
        sample_stats={"lp": rng.normal(size=(2, draws))},
    )


class Recorder:
    """Remembers what was reported."""

    def __init__(self):
        self.updates = []

    def update(self, name, done, total, note=""):
        self.updates.append((name, done, total))

    def close(self):
        return None


def test_it_is_its_parts():
    post = posterior(100)
    found, policy = judge(post, WORLD, TRUTH), kb.plan(WORLD, post.mean())
    parts = {
        "posterior": kb.evd(post, WORLD, TRUTH),
        "prior": kb.evd(post.prior_draws, WORLD, TRUTH),
        "risk": kb.value_at_risk(post, WORLD, policy),
        "relative_risk": kb.value_at_risk(post, WORLD, policy, normalised=True),
    }
    for name, part in parts.items():
        np.testing.assert_allclose(getattr(found, name).per_draw, part.per_draw, atol=1e-12)
    assert found.posterior.standard_error == pytest.approx(parts["posterior"].standard_error)
    assert found.posterior.of_map == pytest.approx(parts["posterior"].of_map)
    assert found.risk.bound == pytest.approx(parts["risk"].bound)
    assert found.relative_risk.bound == pytest.approx(parts["relative_risk"].bound)


def test_every_draw_is_planned_once(monkeypatch):
    planned, original = [], planned_draws.optimal_feature_expectations

    def counted(mdp, rewards, *more):
        planned.append(len(rewards))
        return original(mdp, rewards, *more)

    monkeypatch.setattr(planned_draws, "optimal_feature_expectations", counted)
    progress = Recorder()
    judge(posterior(100), WORLD, TRUTH, progress)
    assert planned == [203, 202]  # draws, mean, most probable and truth; the prior's draws, mean and truth
    assert [name for name, done, total in progress.updates if done == total] == [
        "planning for the draws",
        "planning for the prior",
    ]


def test_too_few_draws_are_said_to_be_too_few():
    found = judge(posterior(20), WORLD, TRUTH)
    text = " ".join(evaluation_text(found, "a grid", 0.95).split())
    assert "Value at risk cannot be bounded" in text
    assert f"needs at least 59 independent draws, and these count as {found.risk.effective_size:.0f}." in text
    plain = found.to_dict()["value_at_risk"]
    assert plain["bound"] is None
    assert plain["draws_needed_for_a_bound"] == 59
    assert judge(posterior(200), WORLD, TRUTH).to_dict()["value_at_risk"]["bound"] > 0
