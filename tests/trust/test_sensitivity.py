"""Sensitivity: shifts and ratios of a toy whose posteriors are known, real refits, and priors made wider."""

import json
from functools import partial

import numpy as np
import pytest

import kdbirl as kb
from kdbirl._jax import float64
from kdbirl.errors import InputError
from kdbirl.methods.diagnosed import log_priors
from kdbirl.posterior.priors import Beta, Laplace, Normal, Prior, TruncatedNormal, Uniform
from kdbirl.posterior.target import NoLikelihood, Target
from kdbirl.report.trust_plots import plot_sensitivity
from kdbirl.trust.card import card
from kdbirl.trust.sensitivity import Change, one_at_a_time, sensitivity

from .models import bank_of, expert_at, model_of, normal_draws

# tasks that say nothing about a parameter are what some tests are about; the warning has its own test
pytestmark = pytest.mark.filterwarnings("ignore::kdbirl.errors.IdentifiabilityWarning")

OBSERVED, ROWS = np.array([0.8, 0.1]), 4.0


def conjugate(change: Change):
    """Prior N(0, prior^2), rows N(R, 1) to a power: known for every power and width. h moves nothing here."""
    if change.h_reward > 1:
        raise InputError("h' cannot grow here")
    precision = 1 / change.prior**2 + change.power * ROWS
    return normal_draws(change.power * ROWS * OBSERVED / precision, [precision**-0.5] * 2)


def test_shifts_and_ratios_of_a_known_answer():
    found = sensitivity(conjugate)
    assert found.changes == (
        *("h x 0.5", "h x 2", "h' x 0.5", "power x 0.5", "power x 2"),
        *("prior width x 0.5", "prior width x 2"),
    )
    assert found.skipped == (("h' x 2", "h' cannot grow here"),)
    sd = 5**-0.5
    wide = found.changes.index("prior width x 0.5")
    assert found.shift[wide] == pytest.approx((ROWS * OBSERVED / 8 - ROWS * OBSERVED / 5) / sd, abs=0.01)
    assert found.ratio[wide] == pytest.approx((5 / 8) ** 0.5, abs=0.01)
    assert found.shift[0] == pytest.approx(0, abs=1e-12)
    assert found.largest == ("prior width x 0.5", "w0", pytest.approx(found.shift[wide, 0]))
    assert found.largest_ratio[0] == "power x 2"
    assert found.largest_ratio[2] == pytest.approx((5 / 9) ** 0.5, abs=0.01)
    assert "cannot grow" in found.sentence


def test_a_shift_of_a_whole_sd_is_decisive():
    found = sensitivity(
        lambda change: normal_draws([change.h, 0.0], [1.0, 1.0]), changes=[Change(h=2.5), Change(h=1.5)]
    )
    assert found.decisive.tolist() == [[True, False], [False, False]]


def test_a_parameter_that_never_moved_is_compared_all_the_same():
    found = sensitivity(lambda change: normal_draws([0.0], [change.h - 1]), changes=[Change(h=2.0)])
    assert np.isfinite(found.shift).all()
    assert found.ratio[0, 0] > 1e6


def test_real_refits():
    """A prior over a direction that nothing informs is followed; an informed one hardly moves."""
    rewards = np.stack([np.linspace(-1, 1, 9), np.zeros(9)], axis=1)
    bank, expert = bank_of(rewards, rows=60), expert_at(np.array([0.3, 0.0]), rows=60)
    fitted = model_of(bank, bandwidth=(0.3, 0.2), prior=kb.Normal(0, 0.6))

    def build(change: Change):
        choices = {"bandwidth": (0.3 * change.h, 0.2 * change.h_reward), "power": change.power}
        return model_of(bank, prior=fitted.prior.widened(change.prior), **choices).posterior(expert)

    found = sensitivity(build, fitted=fitted.posterior(expert), changes=[Change(prior=2), Change(h_reward=1.1)])
    assert found.ratio[0, 1] == pytest.approx(2, rel=0.1)
    assert found.ratio[0, 0] < 1.5
    assert found.ratio[1, 1] == pytest.approx(1, rel=0.1)
    assert abs(found.shift[:, 0]).max() < 0.6
    assert found.largest_ratio[:2] == ("prior width x 2", bank.reward_names[1])


def exponential(rng: np.random.Generator, n: int) -> np.ndarray:
    return rng.exponential(0.3, (n, 2))


@pytest.mark.parametrize(
    "prior",
    [
        Uniform(0.0, [1.0, 3.0]),
        Normal(0.3, 0.5),
        Laplace(-1.0, 0.2),
        TruncatedNormal(0.2, [0.05, 5], -1.0, 1.0),
        TruncatedNormal(0.2, 1.0, 0.0, np.inf),
        Beta(2.0, 10.0, -1.0, 2.0),
        kb.Product([Normal(0, 1), Uniform(-1, 1)]),
        kb.Product.by_name({"a": Normal(0, 1)}, otherwise=Laplace(0, 1)),
    ],
)
@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_a_widened_prior_is_the_density_stretched_about_its_median(prior: Prior, factor: float):
    """All that samplers ask of it: draws, density, support, box, quantiles, and whether it is normal."""
    before, after = prior.for_parameters(2, ("a", "b")), prior.widened(factor).for_parameters(2, ("a", "b"))
    centre, levels = before.quantiles(np.full((1, 2), 0.5))[0], np.random.default_rng(1).uniform(size=(5, 2))
    for then, now in [
        (before.sample(np.random.default_rng(0), 50), after.sample(np.random.default_rng(0), 50)),
        (before.quantiles(levels), after.quantiles(levels)),
        (before.support, after.support),
        (before.box, after.box),
    ]:
        np.testing.assert_allclose(now, stretched(then, centre, factor), rtol=1e-7, atol=1e-9)
    at = before.quantiles(levels)
    densities = densities_of(before, at) - 2 * np.log(factor), densities_of(after, stretched(at, centre, factor))
    np.testing.assert_allclose(densities[1], densities[0], atol=1e-7)
    assert (before.normal is None) == (after.normal is None)


def test_a_users_density_is_widened_too():
    prior = kb.CustomPrior(lambda reward: -reward.sum() / 0.3, low=0, high=np.inf, sampler=exponential).for_parameters(
        2
    )
    after, at = prior.widened(2.0), np.array([[0.1, 0.5], [0.2, 3.0]])
    centre = np.median(exponential(np.random.default_rng(0), 4000), axis=0)  # of the draws that `widened` takes
    np.testing.assert_allclose(centre, 0.3 * np.log(2), atol=0.03)
    np.testing.assert_allclose(after.support, stretched(prior.support, centre, 2.0))
    draws = [p.sample(np.random.default_rng(5), 50) for p in (prior, after)]
    np.testing.assert_allclose(draws[1], stretched(draws[0], centre, 2.0))
    np.testing.assert_allclose(densities_of(after, stretched(at, centre, 2.0)), densities_of(prior, at), atol=1e-12)
    assert np.isneginf(densities_of(after, after.support[0][None] - 0.01)).all()


@float64
def densities_of(prior: Prior, rewards: np.ndarray) -> np.ndarray:
    return log_priors(Target.build(prior, NoLikelihood()), rewards)


def stretched(values: np.ndarray, centre: np.ndarray, factor: float) -> np.ndarray:
    return centre + factor * (np.asarray(values) - centre)


def bell(reward):
    return -(((reward - 0.5) / 0.3) ** 2).sum() / 2


EQUAL = {
    "flat": {
        "uniform": Uniform(0, 1),
        "beta": Beta(1, 1),
        "truncated": TruncatedNormal(0.5, 50, 0, 1),
        "product": kb.Product([Uniform(0, 1), Beta(1, 1)]),
        "custom": kb.CustomPrior(lambda reward: 0.0 * reward.sum(), 0, 1, lambda rng, n: rng.uniform(size=(n, 2))),
    },
    "bell": {
        "normal": Normal(0.5, 0.3),
        "product": kb.Product([Normal(0.5, 0.3)] * 2),
        "truncated": kb.Product([Normal(0.5, 0.3), TruncatedNormal(0.5, 0.3, -np.inf, np.inf)]),
        "custom": kb.CustomPrior(bell, -np.inf, np.inf, lambda rng, n: rng.normal(0.5, 0.3, (n, 2))),
    },
}


def changed(model: kb.KDBIRL, posterior: kb.Posterior, expert: kb.Demonstrations, change: Change) -> kb.Posterior:
    return model._changed(posterior, change).posterior(expert)


@pytest.mark.parametrize("density", EQUAL)
def test_equal_priors_get_equal_verdicts(density: str):
    """Of 4,000 exact draws a mean is known to 1/63 sd, a ratio of sds to 1/63: 0.13 is over five standard errors of the
    difference of two shifts; a custom prior's median adds 0.03."""
    rewards = np.stack([np.linspace(0.1, 0.9, 9), np.full(9, 0.5)], axis=1)  # the second parameter keeps its prior
    bank, expert = bank_of(rewards, rows=60), expert_at(np.array([0.3, 0.5]), rows=60)
    changes, found = [Change(prior=0.5), Change(prior=2)], {}
    for name, prior in EQUAL[density].items():
        model = model_of(bank, bandwidth=(0.3, 0.2), prior=prior, sampler=kb.Grid(draws=1000))
        posterior = model.posterior(expert)
        build = partial(changed, model, posterior, expert)
        found[name] = sensitivity(build, posterior, changes)
    first = next(iter(found.values()))
    assert first.ratio[:, 1] == pytest.approx([0.5, 2], rel=0.1)
    for name, each in found.items():
        assert not each.skipped, name
        assert each.shift == pytest.approx(first.shift, abs=0.15), name
        assert each.ratio == pytest.approx(first.ratio, rel=0.15), name
        assert card(sensitivity=each)["sensitivity"][0] == card(sensitivity=first)["sensitivity"][0] == "amber", name


def test_changes_are_positive_factors():
    with pytest.raises(InputError, match="positive factor"):
        Change(h=0.0)
    assert len(one_at_a_time(3.0)) == 8
    assert Change().label == "as fitted"
    assert Change(h=2, prior=0.5).label == "h x 2, prior width x 0.5"


def test_nothing_that_could_be_changed_is_an_error():
    def build(change: Change):
        if change != Change():
            raise InputError("never")
        return normal_draws([0.0], [1.0])

    with pytest.raises(InputError, match="none of 8 changes"):
        sensitivity(build)


def test_table_record_and_figure():
    found = sensitivity(conjugate)
    assert max(map(len, found.describe())) <= 80
    record = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert np.shape(record["shift"]) == (7, 2)
    figure = plot_sensitivity(found)
    assert [axis.get_title(loc="left") for axis in figure.axes] == ["w0", "w1"]
    labels = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert labels == ["as fitted", *found.changes]


def test_many_parameters_show_those_that_move():
    q = 20
    found = sensitivity(lambda change: normal_draws((change.h - 1) * np.arange(q), np.ones(q)), changes=[Change(h=2.0)])
    figure = plot_sensitivity(found)
    assert [axis.get_title(loc="left") for axis in figure.axes] == [f"w{j}" for j in range(12, 20)]
