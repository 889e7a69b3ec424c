"""PSIS-LOO by episode: equal to the exact answer of a conjugate toy, and silent where densities cannot be compared."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import stats

import kdbirl as kb
from kdbirl.errors import InputError
from kdbirl.posterior.result import Posterior
from kdbirl.trust.leave_one_out import compare_leave_one_out, leave_one_out

from .models import bank_of, expert_at, model_of, scattered

EPISODES = np.repeat(np.arange(8), [1, 2, 3, 1, 2, 3, 1, 2])


def conjugate(power: float, draws: int = 40000, seed: int = 0) -> tuple[Posterior, np.ndarray]:
    """Prior N(0, 1), rows N(R, 1), likelihood to a power: R | rows is normal with precision 1 + power n."""
    rng = np.random.default_rng(seed)
    rows = np.round(0.5 + rng.normal(size=len(EPISODES)), 1)  # rounded: some rows repeat, and share a column
    rows[1] = rows[0]
    precision = 1 + power * len(rows)
    sample = rng.normal(power * rows.sum() / precision, precision**-0.5, (2, draws // 2, 1))
    distinct, index = np.unique(rows, return_inverse=True)
    pointwise = stats.norm.logpdf(distinct, sample)
    settings = {"kernel_log_constant": 0.0, "kernel": "toy", "conditional": "state-action"}
    fields: dict[str, Any] = {"expert_features": rows[:, None], "expert_index": index, "log_likelihood": pointwise}
    return Posterior(sample, ("r",), "toy", "exact", 0, power=power, settings=settings, h=1.0, **fields), rows


def exact_elpd(rows: np.ndarray, power: float) -> np.ndarray:
    """log of the density of each episode under the posterior of all others, by quadrature."""
    at = np.linspace(-8, 8, 20001)
    found = []
    for episode in range(8):
        inside = episode == EPISODES
        precision = 1 + power * (~inside).sum()
        weight = stats.norm.pdf(at, power * rows[~inside].sum() / precision, precision**-0.5)
        density = np.exp(stats.norm.logpdf(rows[inside][:, None], at).sum(axis=0))
        found.append(np.log(np.trapezoid(weight * density, at)))
    return np.array(found)


@pytest.mark.parametrize("power", [1.0, 0.3])
def test_it_is_the_exact_leave_one_out_density(power: float):
    posterior, rows = conjugate(power)
    found = leave_one_out(posterior, EPISODES)
    assert found.elpd == pytest.approx(exact_elpd(rows, power), abs=0.02)  # importance noise of 40000 draws
    assert not found.unreliable.any()
    assert found.rows.tolist() == [1, 2, 3, 1, 2, 3, 1, 2]
    assert found.total == pytest.approx(found.elpd.sum())
    assert "episodes" not in found.sentence or "refit" not in found.sentence


def test_the_constant_of_the_kernel_counts_once_per_row():
    posterior, _ = conjugate(1.0)
    plain = leave_one_out(posterior, EPISODES)
    other = leave_one_out(replace(posterior, settings={**posterior.settings, "kernel_log_constant": 0.7}), EPISODES)
    assert plain.elpd - other.elpd == pytest.approx(0.7 * plain.rows)
    unknown = leave_one_out(replace(posterior, settings={}), EPISODES)
    assert not unknown.normalised
    assert unknown.elpd == pytest.approx(plain.elpd)


def test_an_episode_that_decides_everything_is_named_unreliable():
    posterior, _ = conjugate(1.0)
    table = np.array(posterior.log_likelihood)
    table[..., 0] = stats.norm.logpdf(posterior.flat[:, 0].reshape(2, -1), 3.0, 0.05)
    found = leave_one_out(replace(posterior, log_likelihood=table), EPISODES)
    assert found.unreliable.any()
    assert "refit without them" in found.sentence


@pytest.mark.parametrize(("draws", "smoothed"), [(2, False), (24, False), (26, True)])
def test_few_draws_give_an_estimate_without_smoothing_that_is_named_unreliable(draws: int, smoothed: bool):
    """Without smoothing it is -log of the mean of 1 / p(x_e | R)."""
    posterior, rows = conjugate(1.0, draws=draws)
    found = leave_one_out(posterior, EPISODES)
    by_row = stats.norm.logpdf(rows[:, None], posterior.flat[:, 0])
    by_episode = np.stack([by_row[episode == EPISODES].sum(axis=0) for episode in range(8)])
    raw = -np.log(np.exp(-by_episode).mean(axis=1))
    assert np.isfinite(found.pareto_k).all() == smoothed
    assert found.elpd == pytest.approx(raw, rel=0.05 if smoothed else 1e-10)
    assert found.unreliable.all() or smoothed


def test_one_episode_cannot_be_left_out():
    posterior, _ = conjugate(1.0, draws=200)
    with pytest.raises(InputError, match="one episode"):
        leave_one_out(posterior, np.zeros(15, int))
    with pytest.raises(InputError, match="one value for each of the 15 expert rows"):
        leave_one_out(posterior, np.zeros(3, int))
    with pytest.raises(InputError, match="this posterior has none"):
        leave_one_out(replace(posterior, log_likelihood=None), EPISODES)


@pytest.fixture(scope="module")
def bank() -> kb.TaskBank:
    return bank_of(scattered(12), rows=60)


EXPERT = expert_at(np.array([0.2, 0.3]), rows=60, episodes=12)


def posterior_of(bank: kb.TaskBank, **choices: Any) -> Posterior:
    return model_of(bank, **choices).posterior(EXPERT, seed=0)


def test_bandwidths_are_compared_by_normalised_densities(bank: kb.TaskBank):
    """A width far too small or far too large predicts left-out episodes worse, and it shows."""
    candidates = {f"h = {h}": posterior_of(bank, bandwidth=(h, 0.3)) for h in (0.03, 0.25, 5.0)}
    found = compare_leave_one_out(candidates, EXPERT.episodes)
    assert found.names[0] == "h = 0.25"
    assert found.differences[0] == 0
    assert (found.differences[1:] < -2 * found.standard_errors[1:]).all()
    assert "clearly" in found.sentence
    assert max(map(len, found.describe())) <= 80
    assert [m["name"] for m in json.loads(json.dumps(found.to_dict(), allow_nan=False))["models"]] == list(found.names)


def test_differences_are_paired_by_episode(bank: kb.TaskBank):
    one, other = (posterior_of(bank, bandwidth=(0.25, h_reward)) for h_reward in (0.3, 0.33))
    found = compare_leave_one_out({"one": one, "other": other}, EXPERT.episodes)
    gaps = found.results[1].elpd - found.results[0].elpd
    assert found.differences[1] == pytest.approx(gaps.sum())
    assert found.standard_errors[1] == pytest.approx(np.sqrt(12 * gaps.var(ddof=1)))
    assert found.standard_errors[1] < 0.2 * found.results[0].standard_error


def test_a_kernel_without_a_constant_is_not_compared_with_another(bank: kb.TaskBank):
    cosine, gaussian = (posterior_of(bank, bandwidth=(0.25, 0.3), distance=d) for d in ("cosine", "euclidean"))
    with pytest.raises(InputError, match="constant of its kernel"):
        compare_leave_one_out({"cosine": cosine, "gaussian": gaussian}, EXPERT.episodes)
    sharper = posterior_of(bank, bandwidth=(0.25, 0.4), distance="cosine")  # the same kernel and h: it cancels
    assert len(compare_leave_one_out({"a": cosine, "b": sharper}, EXPERT.episodes).names) == 2


def test_rows_that_repeat_are_not_compared_across_h():
    tasks, rng = np.repeat([0, 1], 40), np.random.default_rng(0)
    bank = kb.TaskBank.from_arrays(rng.integers(0, 3, 80), rng.integers(0, 2, 80), tasks, np.eye(2))
    expert = kb.Demonstrations(rng.integers(0, 3, 40), rng.integers(0, 2, 40), episodes=np.repeat(np.arange(8), 5))
    one, two = (
        kb.KDBIRL(prior=kb.Uniform(0, 1), bandwidth=(h, 0.5), sampler="grid").fit(bank).posterior(expert)
        for h in (0.5, 0.25)
    )
    with pytest.raises(InputError, match="repeat others"):
        compare_leave_one_out({"wide": one, "narrow": two}, expert.episodes)


def test_other_features_or_conditionals_are_not_compared(bank: kb.TaskBank):
    one = posterior_of(bank, bandwidth=(0.25, 0.3))
    other = posterior_of(bank, bandwidth=(0.25, 0.3), features=kb.Standardize(kb.Identity()))
    with pytest.raises(InputError, match="different units"):
        compare_leave_one_out({"one": one, "other": other}, EXPERT.episodes)
    action = replace(one, settings={**one.settings, "conditional": "action"})
    with pytest.raises(InputError, match="different conditionals"):
        compare_leave_one_out({"one": one, "action": action}, EXPERT.episodes)
    with pytest.raises(InputError, match="at least two"):
        compare_leave_one_out({"one": one}, EXPERT.episodes)


def test_few_episodes_are_noted(bank: kb.TaskBank):
    one, other = (posterior_of(bank, bandwidth=(0.25, h_reward)) for h_reward in (0.3, 0.5))
    found = compare_leave_one_out({"one": one, "other": other}, np.asarray(EXPERT.episodes) // 3)
    assert "guesses" in found.sentence
