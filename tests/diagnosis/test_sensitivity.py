"""Sensitivity: shifts and ratios of a toy whose posteriors are known, real refits, and priors made wider."""

import json

import numpy as np
import pytest

import kdbirl as kb
from kdbirl.diagnosis.sensitivity import Change, one_at_a_time, sensitivity, widened
from kdbirl.errors import InputError
from kdbirl.posterior.priors import Beta, Laplace, Normal, Prior, TruncatedNormal, Uniform
from kdbirl.report.calibration_plots import plot_sensitivity

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
        return model_of(bank, prior=widened(fitted.prior, change.prior), **choices).posterior(expert)

    found = sensitivity(build, fitted=fitted.posterior(expert), changes=[Change(prior=2), Change(h_reward=1.1)])
    assert found.ratio[0, 1] == pytest.approx(2, rel=0.1)
    assert found.ratio[0, 0] < 1.5
    assert found.ratio[1, 1] == pytest.approx(1, rel=0.1)
    assert abs(found.shift[:, 0]).max() < 0.6
    assert found.largest_ratio[:2] == ("prior width x 2", bank.reward_names[1])


@pytest.mark.parametrize(
    ("prior", "bounded"),
    [
        (Uniform(0.0, 1.0), False),
        (Normal(0.3, 0.5), False),
        (Laplace(-1.0, 0.2), False),
        (TruncatedNormal(0.2, 0.05, -1.0, 1.0), True),
        (Beta(20.0, 10.0), True),
        (kb.Product([Normal(0, 1), Uniform(-1, 1)]), False),
    ],
)
@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_a_widened_prior_keeps_its_centre(prior: Prior, bounded: bool, factor: float):
    before, after = (
        p.for_parameters(2, ("a", "b")).sample(np.random.default_rng(0), 40000) for p in (prior, widened(prior, factor))
    )
    assert after.std(axis=0) == pytest.approx(factor * before.std(axis=0), rel=0.03)
    assert after.mean(axis=0) == pytest.approx(before.mean(axis=0), abs=0.05 * before.std())
    if bounded:
        assert widened(prior, factor).for_parameters(1).support == prior.for_parameters(1).support


def test_a_prior_without_a_width_says_so():
    custom = kb.CustomPrior(lambda reward: -(reward**2).sum(), low=-1, high=1)
    with pytest.raises(InputError, match="no width"):
        widened(custom, 2.0)


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
