"""Every amber and red of the report card appears for a reason that is really there, and goes away with it."""

import json
import re
from functools import cache
from typing import Any

import numpy as np
import pytest

import kdbirl as kb
from kdbirl._jax import float64
from kdbirl.methods.diagnosed import log_priors
from kdbirl.posterior.convergence import assess
from kdbirl.posterior.target import NoLikelihood, Target
from kdbirl.report.terminal import card_text
from kdbirl.trust.calibration import FEWEST_POINTS, Calibration, calibrate, calibrate_weighted
from kdbirl.trust.card import HOW_TO, InUse, card
from kdbirl.trust.identifiability import identify, principal_contractions
from kdbirl.trust.sensitivity import Change, sensitivity
from kdbirl.trust.support import assess_support

from .conjugate import normal_posteriors
from .models import bank_of, expert_at, model_of, normal_draws, scattered

# tasks that say nothing about a parameter are what some tests are about; the warning has its own test
pytestmark = pytest.mark.filterwarnings("ignore::kdbirl.errors.IdentifiabilityWarning")

PARTS = ("convergence", "identifiability", "support", "calibration", "sensitivity")


def test_what_nobody_looked_at_is_not_assessed_and_says_how_to():
    found = card()
    assert tuple(found) == PARTS
    for name in PARTS:
        assert found[name] == ("not assessed", HOW_TO[name])
    assert "--calibrate" in found["calibration"][1]
    assert "sensitivity" in found["sensitivity"][1]


# convergence --------------------------------------------------------------------------------------


def convergence_card(draws: np.ndarray) -> tuple[str, str]:
    return card(convergence=assess(draws, ("a",), "NUTS"))["convergence"]


def walk(draws: int, correlation: float) -> np.ndarray:
    """Four chains of an autoregression with mean 0 and spread 1."""
    rng, found = np.random.default_rng(0), np.zeros((4, draws, 1))
    found[:, 0] = rng.normal(size=(4, 1))
    for t in range(1, draws):
        noise = rng.normal(size=(4, 1)) * np.sqrt(1 - correlation**2)
        found[:, t] = correlation * found[:, t - 1] + noise
    return found


def test_convergence_amber_comes_and_goes():
    assert convergence_card(walk(400, 0.8))[0] == "amber"  # some 180 effective draws where 400 are wanted
    assert convergence_card(walk(4000, 0.5))[0] == "green"


def test_convergence_red_comes_and_goes():
    chains = np.random.default_rng(0).normal(size=(4, 1000, 1))
    colour, sentence = convergence_card(chains + np.arange(4)[:, None, None])
    assert colour == "red"
    assert "raise warmup" in sentence
    assert convergence_card(chains)[0] == "green"


# identifiability ----------------------------------------------------------------------------------


def identified(rewards: np.ndarray) -> tuple[kb.KDBIRL, object]:
    fitted = model_of(bank_of(rewards), bandwidth=(0.4, 0.4))
    return fitted, identify(fitted.fitted.ckde, fitted.fitted.prior, fitted.fitted.reward_names, 0.4)


def test_identifiability_red_comes_and_goes():
    colour, sentence = card(identifiability=identified(np.zeros((3, 2)))[1])["identifiability"]
    assert colour == "red"
    assert "add training tasks" in sentence
    assert card(identifiability=identified(scattered(5))[1])["identifiability"][0] == "green"


def test_identifiability_amber_comes_and_goes():
    line = np.stack([np.linspace(-1, 1, 5), np.zeros(5)], axis=1)
    fitted, found = identified(line)
    colour, sentence = card(identifiability=found)["identifiability"]
    assert colour == "amber"
    assert fitted.fitted.reward_names[1] in sentence
    assert "repeats the prior" in sentence
    assert "task" in sentence.split("nothing new")[1]
    assert card(identifiability=identified(np.concatenate([line, [[0.0, 1.0]]]))[1])["identifiability"][0] == "green"


@pytest.mark.parametrize(
    ("prior", "at", "words"),
    [
        (kb.Uniform(0, 1), 1.0, "fell by"),  # the sum is near 2: only the corner is left of the box
        (kb.Uniform(0, 1), 0.5, "rose by"),  # the sum is near 1, where the box is widest
        (kb.Laplace(0, 0.4), 1.0, "grew to"),
        (kb.Normal(0, [1, 0.5]), 0.6, "fell by"),
    ],
)
def test_what_the_priors_shape_alone_moves_is_told_with_its_size(prior: kb.Uniform, at: float, words: str):
    """Tasks on r0 = r1 inform the sum. The difference moves all the same, as far as a sum over a fine grid says."""
    line = np.repeat(np.linspace(0.0, 1.0, 7)[:, None], 2, axis=1)
    fitted = model_of(bank_of(line, rows=40), prior=prior, bandwidth=(0.3, 0.15))
    posterior = fitted.posterior(expert_at(np.full(2, at), rows=60))
    colour, sentence = posterior.cards["identifiability"]
    assert colour == "amber"
    assert "repeats the prior" not in sentence
    assert "tells nothing new" not in sentence
    told = re.search(rf"shape alone, the variance of r0 - r1 \(their difference\) {words} ([0-9.]+)", sentence)
    assert told is not None, sentence

    low, high = fitted.prior.for_parameters(2).box
    points = np.stack(np.meshgrid(*np.linspace(low, high, 402)[1:-1].T), axis=-1).reshape(-1, 2)
    logs = float64(log_priors)(Target.build(fitted.prior.for_parameters(2), NoLikelihood()), points)
    spreads = []
    for power in (0.0, posterior.power):
        values = logs + power * fitted.log_likelihood(expert_at(np.full(2, at), rows=60), points)
        weights = np.exp(values - values.max())
        spreads.append(np.cov(points[:, 0] - points[:, 1], aweights=weights).item())
    ratio = spreads[1] / spreads[0]
    seen = {"fell by": 1 - float(told[1]) / 100, "rose by": 1 + float(told[1]) / 100, "grew to": float(told[1])}[words]
    assert seen == pytest.approx(ratio, rel=0.12)  # variances of 4,000 draws each; 5 standard errors, 8 % for Laplace


def test_an_uninformed_direction_that_the_prior_does_not_tie_is_said_to_repeat_it():
    line = np.repeat(np.linspace(0.0, 1.0, 7)[:, None], 2, axis=1)
    fitted = model_of(bank_of(line, rows=40), prior=kb.Normal(0, 1), bandwidth=(0.3, 0.15))
    sentence = fitted.posterior(expert_at(np.ones(2), rows=60)).cards["identifiability"][1]
    assert "repeats the prior" in sentence
    assert "shape alone" not in sentence


def test_a_direction_that_the_demonstrations_do_not_narrow_is_amber():
    """Tasks that differ in the second parameter but behave alike: informed in principle, learnt by nobody."""
    rewards = np.array([(x, y) for x in np.linspace(-1, 1, 5) for y in np.linspace(-1, 1, 4)])

    def graded(behaviour: np.ndarray) -> tuple[str, str]:
        fitted = model_of(bank_of(rewards, rows=60, behaviour=behaviour), bandwidth=(0.4, 0.3))
        posterior = fitted.posterior(expert_at(np.array([0.3, 0.0]), rows=40))
        found = identify(fitted.fitted.ckde, fitted.fitted.prior, posterior.names, 0.3)
        values, _ = principal_contractions(posterior.flat, posterior.prior_draws, found.informed)
        return card(identifiability=found, contractions=values)["identifiability"]

    alike = np.stack([rewards[:, 0], np.zeros(20)], axis=1)
    colour, sentence = graded(alike)
    assert colour == "amber"
    assert "still the prior" in sentence
    assert graded(rewards)[0] == "green"


# support ------------------------------------------------------------------------------------------


def supported(expert: np.ndarray, rows=60, **choices) -> tuple[str, str]:
    fitted = model_of(bank_of(scattered(8), rows=rows), bandwidth=(0.4, 0.4), **choices)
    names = fitted.fitted.features.names, fitted.fitted.task_names
    found = assess_support(fitted.fitted.ckde, expert, np.array([0.4]), *names)
    return card(support=found)["support"]


def rows_outside(count: int) -> np.ndarray:
    """Forty rows amid the training rows, of which some are moved far away."""
    rows = np.random.default_rng(0).normal(0, 0.4, (40, 2))
    rows[:count] += 30.0
    return rows


def test_support_red_comes_and_goes():
    colour, sentence = supported(rows_outside(20))
    assert colour == "red"
    assert "add training tasks that go where the expert goes" in sentence
    assert supported(rows_outside(0))[0] == "green"


def test_support_amber_comes_and_goes():
    colour, sentence = supported(rows_outside(4))
    assert colour == "amber"
    assert "4 of 40" in sentence
    assert supported(rows_outside(1))[0] == "green"


def test_small_tasks_are_amber():
    few = np.array([4, *[60] * 7])
    colour, sentence = supported(rows_outside(0), rows=few, task_weights="equal")
    assert colour == "amber"
    assert "too few to tell a task by" in sentence
    assert supported(rows_outside(0), rows=np.full(8, 60), task_weights="equal")[0] == "green"


def test_unequal_tasks_are_amber_unless_they_weigh_equally():
    unequal = np.array([400, *[20] * 7])
    colour, sentence = supported(rows_outside(0), rows=unequal)
    assert colour == "amber"
    assert 'task_weights="equal"' in sentence
    assert supported(rows_outside(0), rows=unequal, task_weights="equal")[0] == "green"


# calibration --------------------------------------------------------------------------------------


def calibrated(factor: float, tasks: int, shift: float = 0.0) -> tuple[str, str]:
    truths, draws, means, _ = normal_posteriors(tasks, 199)
    return card(calibration=calibrate(truths, means[:, None] + factor * (draws - means[:, None]) + shift))[
        "calibration"
    ]


def test_calibration_red_comes_and_goes():
    colour, sentence = calibrated(0.5, tasks=100)
    assert colour == "red"
    assert "Do not rely on the intervals" in sentence
    assert "loto" in sentence
    assert calibrated(1.0, tasks=100)[0] == "green"


@pytest.mark.parametrize(
    ("factor", "tasks", "shift", "words"),
    [
        (0.8, 400, 0.0, "over-confident"),  # 81 % instead of 90 %: too narrow, but not by half
        (2.0, 400, 0.0, "on the safe side"),
        (1.0, 12, 0.0, "too few tasks"),
        (1.1, 400, 0.25, "shifted"),
    ],
)
def test_calibration_amber_comes_and_goes(factor: float, tasks: int, shift: float, words: str):
    colour, sentence = calibrated(factor, tasks, shift)
    assert colour == "amber"
    assert words in sentence
    assert calibrated(1.0, 400)[0] == "green"


def on_points(size: int, power: float, noise: float = 0.1, with_truths: bool = True) -> Calibration:
    """N(0, 1) rewards, a normal likelihood to a power (1 is exact), and points from the prior, for 400 tasks."""
    truths, _, means, sd = normal_posteriors(400, 2, q=1, seed=3, noise=noise)
    observed = means * noise**2 / sd**2
    points = np.random.default_rng(7).normal(size=(size, 1))
    logs, own = (-power * (at - observed) ** 2 / (2 * noise**2) for at in (points.T, truths))
    return calibrate_weighted(truths, points, logs, log_weights_of_truths=own[:, 0] if with_truths else None)


@pytest.mark.parametrize("noise", [0.7, 0.1, 0.02])
def test_too_few_points_do_not_hide_over_confidence(noise: float):
    """Posteriors four times too narrow have few points because they are too narrow."""
    found = on_points(200, power=16, noise=noise)
    assert found.effective_draws < FEWEST_POINTS
    colour, sentence = card(calibration=found)["calibration"]
    assert colour == "red"
    assert f"held the truth in {100 * found.headline[1]:.0f} % of cases" in sentence


@pytest.mark.parametrize("size", [200, 2000])  # all tasks share the points: fewer would be a thing of their own
@pytest.mark.parametrize("noise", [0.7, 0.1, 0.02])
def test_too_few_points_are_no_false_alarm(size: int, noise: float):
    """Where the truth is one of the points ranks are uniform, however few points the posterior rests on."""
    found = on_points(size, power=1, noise=noise)
    assert found.pooled == pytest.approx(found.levels, abs=0.1)  # four standard errors of 400 tasks at 50 %
    colour, sentence = card(calibration=found)["calibration"]
    if found.effective_draws >= FEWEST_POINTS:
        assert colour == "green"
    else:
        assert colour == "amber"
        assert "few points" in sentence
        assert f"held the truth in {100 * found.headline[1]:.0f} % of cases" in sentence


@pytest.mark.parametrize("rule", ["silverman", "scott", "cv", (0.02, 0.01)])
def test_bandwidths_that_are_far_too_narrow_are_red_with_many_rows(rule):
    """n = 200: with 1600 points for the prior the posteriors of most left-out tasks rest on fewer than five of them."""
    model = model_of(bank_of(scattered(30), rows=300), bandwidth=rule)
    found = model.calibration(200)
    colour, sentence = card(calibration=found)["calibration"]
    assert colour == "red"
    assert "over-confident" in sentence
    assert "--bandwidth loto" in sentence
    assert found.headline[1] < 0.75


RULES = ("loto", "paper", "silverman", "scott", "median", "cv", "given")


@cache
def verdicts() -> dict[str, dict[str, Any]]:
    """What a card can be made of, so that every sentence with advice about a bandwidth or the power occurs."""
    truths, draws, means, _ = normal_posteriors(400, 99)
    narrowed = {
        factor: calibrate(truths, means[:, None] + factor * (draws - means[:, None])) for factor in (0.5, 0.8, 2.0)
    }
    one = [Change(h=3.0)]
    return {
        "red": {"calibration": narrowed[0.5]},
        "amber": {"calibration": narrowed[0.8]},
        "wide": {"calibration": narrowed[2.0]},
        "few points": {"calibration": on_points(200, 1.0)},
        "bandwidth decides": {"sensitivity": sensitivity(lambda c: normal_draws([c.h], [1.0]), changes=one)},
    }


@pytest.mark.parametrize("verdict", list(verdicts()))
@pytest.mark.parametrize("power", [1.0, 0.25])
@pytest.mark.parametrize("possible", [True, False])
@pytest.mark.parametrize("searched", [True, False])
@pytest.mark.parametrize("rule", RULES)
def test_no_advice_names_what_is_in_use(rule: str, searched: bool, possible: bool, power: float, verdict: str):
    used = InUse(rule, power, searched and rule == "loto", possible or rule == "loto")
    (part,) = verdicts()[verdict]
    sentence = card(**verdicts()[verdict], in_use=used)[part][1]
    assert rule not in re.findall(r"bandwidth='?(\w+)|--bandwidth (\w+)", sentence)
    powers = [float(found) for found in re.findall(r"power[= ](\d[\d.]*\d|\d)", sentence)]
    assert power not in powers
    if rule == "loto":
        assert "loto" not in sentence
    elif possible:
        assert "bandwidth='loto' (--bandwidth loto)" in sentence
    else:
        assert "loto" not in sentence  # held-out tasks cannot choose
    if used.searched:
        assert "leave power out" not in sentence
    # whatever is advised has its option of the API and of the command line
    assert len(re.findall(r"power=", sentence)) == len(re.findall(r"--power \d", sentence))


# sensitivity --------------------------------------------------------------------------------------


def moved(by: float, ratio: float = 1.0) -> tuple[str, str]:
    found = sensitivity(
        lambda change: normal_draws([(change.h - 1) * by, 0.0], [1.0, ratio if change.h > 1 else 1.0]),
        changes=[Change(h=2.0)],
    )
    return card(sensitivity=found)["sensitivity"]


def test_sensitivity_red_amber_and_green():
    assert moved(1.2)[0] == "red"
    assert "Report the range" in moved(1.2)[1]
    assert moved(0.7)[0] == "amber"
    assert "'w0' moves by 0.7 sd" in moved(0.7)[1]
    assert moved(0.1)[0] == "green"


def test_sensitivity_says_what_to_do_about_a_prior():
    found = sensitivity(lambda change: normal_draws([2 * change.prior], [1.0]), changes=[Change(prior=2.0)])
    colour, sentence = card(sensitivity=found)["sensitivity"]
    assert colour == "amber"  # behaviour does not reveal everything: a prior that matters is no fault of the data
    assert "say why it is so wide" in sentence
    assert "loto" in moved(1.2)[1]


@pytest.mark.parametrize("ratio", [2.0, 0.4])
def test_sensitivity_of_the_width_is_amber(ratio: float):
    colour, sentence = moved(0.1, ratio)
    assert colour == "amber"
    assert "the width does not" in sentence
    assert moved(0.1, 1.4)[0] == "green"


def test_real_posteriors_that_hang_on_a_bandwidth_are_red_and_others_are_not():
    bank, expert = bank_of(scattered(10), rows=60), expert_at(np.array([0.5, 0.2]), rows=40)

    def build_at(h_reward: float):
        return lambda change: model_of(bank, bandwidth=(0.3, h_reward * change.h_reward)).posterior(expert)

    def graded(factor: float) -> str:
        return card(sensitivity=sensitivity(build_at(0.3), changes=[Change(h_reward=factor)]))["sensitivity"][0]

    assert graded(4.0) in ("amber", "red")
    assert graded(1.05) == "green"


# the terminal -------------------------------------------------------------------------------------


def test_the_text_fits_eighty_columns_and_has_a_word_for_each_colour():
    found = card(
        sensitivity=sensitivity(lambda c: normal_draws([c.h], [1.0]), changes=[Change(h=3.0)]),
        convergence=assess(np.random.default_rng(0).normal(size=(4, 500, 1)), ("[red]",), "NUTS"),
    )
    text = card_text(found)
    assert max(map(len, text.splitlines())) <= 80
    assert "\x1b" not in text
    words = text.split()
    assert {"GREEN", "RED", "assessed"} <= set(words)
    for _, sentence in found.values():
        assert all(word in words for word in sentence.split())  # nothing is cut off
    assert "\x1b[" in card_text(found, colour=True)


def test_a_parameter_called_like_markup_is_shown():
    assert "[bold]x[/bold]" in card_text({"support": ("amber", "look at [bold]x[/bold]")})


def test_the_card_is_json_and_goes_on_a_posterior():
    found = card(sensitivity=sensitivity(lambda c: normal_draws([c.h], [1.0]), changes=[Change(h=3.0)]))
    assert json.loads(json.dumps(found))["sensitivity"][0] == "red"
    rest = {name: part for name, part in found.items() if name != "convergence"}
    posterior = normal_draws([0.0], [1.0], cards=rest)
    assert tuple(posterior.report_card()) == PARTS
