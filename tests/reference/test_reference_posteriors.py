"""The posteriors of ten problems are what they were on the day that they were worked out by hand."""

import json

import numpy as np
import pytest

import kdbirl as kb

from .problems import CASES, FILE, LEVELS, Case, exact

STORED = json.loads(FILE.read_text())
DRAWS = 4000  # independent ones
FALSE = 4.5  # standard errors: ten problems, two parameters, six numbers each fail by chance once in a thousand runs


def model_of(case: Case) -> kb.KDBIRL:
    name, a, b = case.prior
    return kb.KDBIRL(
        prior=kb.Uniform(a, b) if name == "uniform" else kb.Normal(a, b),
        features=kb.Identity(),
        bandwidth=(case.h, case.h_reward),
        kernel=case.kernel,
        power=case.power,
        task_weights=case.weights,
        sampler=kb.Grid(draws=DRAWS // 4, chains=4),
    )


@pytest.mark.parametrize("name", CASES)
def test_posterior(name: str) -> None:
    case, known = CASES[name], STORED[name]
    training, tasks, rewards, rows = case.arrays()
    bank = kb.TaskBank.from_arrays(states=training, actions=None, tasks=tasks, rewards=rewards)
    expert = kb.Demonstrations(states=rows, actions=None)
    model = model_of(case).fit(bank)
    value = model.log_likelihood(expert, np.array(known["mean"]))
    assert value == pytest.approx(known["log_likelihood_at_mean"], rel=1e-10, abs=1e-9)
    draws = model.posterior(expert, seed=0).flat
    mean, sd = np.array(known["mean"]), np.array(known["sd"])
    assert (np.abs(draws.mean(axis=0) - mean) < FALSE * sd / np.sqrt(DRAWS)).all()
    kurtosis = np.mean((draws - mean) ** 4, axis=0) / sd**4
    error = sd * np.sqrt((kurtosis - 1) / (4 * DRAWS))
    assert (np.abs(draws.std(axis=0) - sd) < FALSE * error).all()
    for j, quantiles in enumerate(known["quantiles"]):
        below = np.mean(draws[:, j][:, None] <= np.array(quantiles)[None], axis=0)
        levels = np.array(LEVELS)
        # the grid's own width moves a level by at most a thousandth
        assert (np.abs(below - levels) < 1e-3 + FALSE * np.sqrt(levels * (1 - levels) / DRAWS)).all()


def test_the_file_is_what_its_program_writes() -> None:
    """One of them is worked out again on every run, the cheapest."""
    found = exact(CASES["two tasks"])
    np.testing.assert_allclose(found["mean"], STORED["two tasks"]["mean"], rtol=1e-9)
    np.testing.assert_allclose(found["quantiles"], STORED["two tasks"]["quantiles"], rtol=1e-9)
