"""Convergence: the numbers are ArviZ's, the sentence names the parameter and what to do, good draws are not blamed."""

import numpy as np
import pytest

from kdbirl.posterior.convergence import _disagreeing, _inefficient, assess, ess_limit, is_independent, r_hat_limit

NAMES = ("w1", "w2", "w3")


def independent(chains: int = 4, draws: int = 1000, q: int = 3, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(chains, draws, q))


def random_walk(chains: int, draws: int, persistence: float, seed: int = 0) -> np.ndarray:
    """An AR(1) series: (1 + persistence) / (1 - persistence) draws are worth one."""
    noise = np.random.default_rng(seed).normal(size=(chains, draws, 1))
    walk = np.zeros_like(noise)
    for t in range(1, draws):
        walk[:, t] = persistence * walk[:, t - 1] + np.sqrt(1 - persistence**2) * noise[:, t]
    return walk


def test_numbers_are_those_of_arviz() -> None:
    import arviz_base
    import arviz_stats

    draws = independent(draws=250)
    found = assess(draws, NAMES, "NUTS", {"energy": independent(draws=250)[:, :, 0]})
    tree = arviz_base.from_dict({"posterior": {"reward": draws}})
    np.testing.assert_allclose(found.r_hat, arviz_stats.rhat(tree)["reward"])
    np.testing.assert_allclose(found.ess_bulk, arviz_stats.ess(tree, method="bulk")["reward"])
    np.testing.assert_allclose(found.ess_tail, arviz_stats.ess(tree, method="tail", prob=(0.05, 0.95))["reward"])
    energy = independent(draws=250)[:, :, 0]
    by_hand = (np.diff(energy) ** 2).mean(axis=1) / energy.var(axis=1, ddof=1)
    np.testing.assert_allclose(found.e_bfmi, by_hand)


def test_good_chains_are_praised() -> None:
    stats = {"diverging": np.zeros((4, 1000), bool), "energy": independent()[:, :, 0]}
    found = assess(independent(), NAMES, "NUTS", stats)
    assert found.ok
    assert found.colour == "green"
    assert found.divergences == 0
    assert found.sentence.startswith("4 chains of 1000 draws agree: R-hat is at most 1.00")


def test_one_good_chain_is_praised_with_a_reserve() -> None:
    found = assess(independent(chains=1, draws=2000), NAMES, "NUTS")
    assert found.ok
    assert "One chain of 2000 draws is steady (several chains would be a stronger check)" in found.sentence


def test_chains_in_different_places_are_named() -> None:
    draws = independent()
    draws[0, :, 1] += 3
    found = assess(draws, NAMES, "NUTS")
    assert not found.ok
    assert found.colour == "red"
    assert found.r_hat[1] > 1.1
    assert "R-hat of 'w2' is 1." in found.sentence
    assert "the chains disagree; raise warmup and draws" in found.sentence
    assert "SMC" in found.sentence
    assert "'w1'" not in found.sentence


@pytest.mark.parametrize(
    ("sampler", "raised", "instead"),
    [
        ("NUTS", "raise warmup and draws,", "use the sampler SMC."),
        ("Metropolis", "raise warmup and draws,", "use the sampler SMC."),
        ("PolicyWalk", "raise warmup and draws,", "use the sampler SMC."),
        ("Independence", "raise draws,", "use the sampler SMC."),
        ("SMC", "raise particles (--draws),", "look at each run's draws."),
    ],
)
def test_advice_names_what_the_sampler_has_and_never_the_sampler_itself(
    sampler: str, raised: str, instead: str
) -> None:
    draws = independent()
    draws[0, :, 1] += 3
    sentence = assess(draws, NAMES, sampler).sentence
    assert f"the chains disagree; {raised}" in sentence
    assert instead in sentence
    assert f"use the sampler {sampler}" not in sentence


def test_drift_within_one_chain_is_seen() -> None:
    draws = independent(chains=1)
    draws[0, :, 0] += np.linspace(0, 3, 1000)
    found = assess(draws, NAMES, "NUTS")
    assert "R-hat of 'w1'" in found.sentence
    assert "the beginning and the end of the chain disagree" in found.sentence


def test_slow_chains_are_told_how_many_draws_they_need() -> None:
    found = assess(random_walk(4, 1000, 0.9), ("w1",), "NUTS")
    assert found.ess_bulk[0] < 400
    assert not found.ok
    assert "'w1' has as few as" in found.sentence
    assert "over 400 are wanted" in found.sentence
    assert "raise draws, about" in found.sentence


def test_many_bad_parameters_are_counted_not_listed() -> None:
    draws = independent(q=100)
    draws[0] += 3
    found = assess(draws, [f"w{j}" for j in range(100)], "NUTS")
    assert "and 99 more parameters" in found.sentence
    assert len(found.sentence) < 600


def test_divergences_are_counted() -> None:
    diverging = np.zeros((4, 1000), bool)
    diverging[2, :7] = True
    found = assess(independent(), NAMES, "NUTS", {"diverging": diverging})
    assert found.divergences == 7
    assert not found.ok
    assert "7 of 4000 draws diverged" in found.sentence
    assert "raise target_acceptance" in found.sentence
    assert found.colour == "amber"


@pytest.mark.parametrize(("divergences", "colour"), [(40, "amber"), (41, "red")])
def test_more_than_one_divergence_in_a_hundred_is_severe(divergences: int, colour: str) -> None:
    diverging = np.arange(4000).reshape(4, 1000) < divergences
    found = assess(independent(), NAMES, "NUTS", {"diverging": diverging})
    assert found.colour == colour
    assert found.sentence.startswith("Do not use these draws yet." if colour == "red" else "Use these draws with care.")


def test_one_severe_finding_among_others_makes_the_card_red() -> None:
    draws = independent()
    draws[0, :, 1] += 3
    found = assess(draws, NAMES, "NUTS", {"diverging": np.arange(4000).reshape(4, 1000) < 7})
    assert "7 of 4000 draws diverged" in found.sentence
    assert found.colour == "red"
    assert found.sentence.startswith("Do not use these draws yet.")


@pytest.mark.parametrize(("shift", "colour"), [(0.5, "amber"), (1.5, "red")])
def test_chains_that_disagree_a_little_are_to_be_used_with_care(shift: float, colour: str) -> None:
    draws = independent(draws=4000)
    draws[0, :, 1] += shift
    found = assess(draws, NAMES, "NUTS")
    assert found.colour == colour
    assert (found.r_hat[1] < 1.05) == (colour == "amber")


def test_an_r_hat_at_its_limit_is_not_below_it() -> None:
    """What the sentence asks for is "below 1.01"."""
    assert _disagreeing(np.array([np.nextafter(1.01, 1.0)]), ("w1",), 1.01, 4) == []
    (found,) = _disagreeing(np.array([1.01]), ("w1",), 1.01, 4)
    assert "R-hat of 'w1' is 1.010 (below 1.01 is wanted)" in found.sentence


def test_effective_draws_at_their_limit_are_not_over_it() -> None:
    enough, limit = np.array([900.0]), np.array([400.0])
    assert _inefficient(np.nextafter(limit, 999), enough, ("w1",), 400.0, (4, 1000, 1)) == []
    (found,) = _inefficient(enough, limit, ("w1",), 400.0, (4, 1000, 1))
    assert "as few as 400 effective draws in the tails of 4000 (over 400 are wanted)" in found.sentence


@pytest.mark.parametrize(("worst", "severe"), [(39.9, True), (40.1, False)])
def test_fewer_than_a_tenth_of_the_effective_draws_wanted_is_severe(worst: float, severe: bool) -> None:
    (found,) = _inefficient(np.array([900.0, worst]), np.array([900.0, 90.0]), ("w1", "w2"), 400.0, (4, 1000, 2))
    assert found.sentence.startswith("'w2' has as few as 40 effective draws in the bulk")
    assert found.severe == severe


def test_the_worst_of_two_bad_parameters_comes_first() -> None:
    draws = independent()
    draws[0, :, 0] += 1
    draws[0, :, 2] += 3
    found = assess(draws, NAMES, "NUTS")
    assert f"R-hat of 'w3' and 'w1' is up to {found.r_hat[2]:.3f} (below 1.01 is wanted)" in found.sentence


def test_few_effective_draws_are_said_to_be_in_the_bulk_or_in_the_tails() -> None:
    walk = assess(random_walk(4, 1000, 0.95), ("w1",), "NUTS")
    assert walk.ess_bulk[0] < walk.ess_tail[0]
    assert f"as few as {walk.ess_bulk[0]:.0f} effective draws in the bulk of 4000" in walk.sentence
    assert f"about {int(np.ceil(400 / walk.ess_bulk[0] * 1.2))} times as many" in walk.sentence
    energetic = independent(q=1)
    energetic *= np.exp(random_walk(4, 1000, 0.99, seed=1))  # volatility: the middle mixes, the tails come in clusters
    found = assess(energetic, ("w1",), "NUTS")
    assert found.ess_tail[0] < 400 < found.ess_bulk[0]
    assert "effective draws in the tails of 4000" in found.sentence
    (equal,) = _inefficient(np.array([90.0]), np.array([90.0]), ("w1",), 400.0, (4, 1000, 1))
    assert "as few as 90 effective draws in the bulk of 4000" in equal.sentence  # the tails are no worse


@pytest.mark.parametrize("persistence", [0.9, 0.999])
def test_hardly_any_effective_draws_are_severe(persistence: float) -> None:
    found = assess(random_walk(4, 4000, persistence) + independent(4, 4000, 1) * 1e-3, ("w1",), "NUTS")
    least = min(found.ess_bulk[0], found.ess_tail[0])
    assert found.ok if least > 400 else (found.colour == "red") == (least < 40 or found.r_hat[0] >= 1.05)


def test_slow_energy_is_named_by_chain() -> None:
    energy = np.random.default_rng(0).normal(size=(4, 1000))
    energy[2] = np.cumsum(energy[2])
    found = assess(independent(), NAMES, "NUTS", {"energy": energy})
    assert found.e_bfmi[2] < 0.3 < min(found.e_bfmi[[0, 1, 3]])
    assert "in chain 3 (above 0.3 is wanted)" in found.sentence


def test_a_parameter_that_never_moves_is_named_without_a_warning() -> None:
    draws = independent()
    draws[:, :, 1] = 0.5
    found = assess(draws, NAMES, "NUTS", {"energy": np.ones((4, 1000))})
    assert not found.ok
    assert np.isnan([found.r_hat[1], found.ess_bulk[1], found.ess_tail[1]]).all()
    assert np.isfinite(found.r_hat[[0, 2]]).all()
    assert np.isnan(found.e_bfmi).all()
    assert "'w2' never moved (always 0.5)" in found.sentence
    assert found.colour == "red"


@pytest.mark.parametrize("count", [4, 5])
def test_at_most_four_chains_of_slow_energy_are_listed(count: int) -> None:
    energy = np.cumsum(np.random.default_rng(0).normal(size=(count, 1000)), axis=1)
    sentence = assess(independent(chains=count), NAMES, "NUTS", {"energy": energy}).sentence
    assert f"in chain 1, 2, 3, 4{', ...' if count == 5 else ''} (above" in sentence


def test_energies_that_are_not_numbers_are_left_out() -> None:
    energy = independent()[:, :, 0]
    energy[0, 3], energy[1] = np.nan, 2.0
    found = assess(independent(), NAMES, "NUTS", {"energy": energy})
    np.testing.assert_array_equal(np.isnan(found.e_bfmi), [True, True, False, False])
    assert found.ok


def test_two_equal_draws_have_not_moved_and_one_could_not() -> None:
    assert "never moved" in assess(np.ones((1, 2, 1)), ("w1",), "NUTS").sentence
    single = assess(np.ones((1, 1, 1)), ("w1",), "NUTS").sentence
    assert (
        single == "Do not use these draws yet. There is only one chain of 1 draw, too few to judge: ask for more draws."
    )
    assert "There is only 2 chains of 3 draws" in assess(independent(2, 3), NAMES, "NUTS").sentence


def test_a_point_estimate_has_nothing_to_judge() -> None:
    found = assess(np.ones((1, 1, 2)), NAMES[:2], "Point estimate")
    assert found.ok
    assert (found.divergences, found.colour) == (0, "not assessed")
    assert np.isnan([*found.r_hat, *found.ess_bulk, *found.ess_tail, *found.e_bfmi]).all()


def test_all_parameters_constant() -> None:
    found = assess(np.ones((4, 100, 3)), NAMES, "Grid")
    assert not found.ok
    assert "'w1' and 2 more parameters never moved" in found.sentence


def test_chains_stuck_each_in_its_own_place() -> None:
    draws = np.broadcast_to(np.arange(4.0)[:, None, None], (4, 100, 1)).copy()
    found = assess(draws, ("w1",), "NUTS")
    assert found.r_hat[0] > 1e3
    assert "R-hat of 'w1' is over 100" in found.sentence
    assert assess(draws[:, :64], ("w1",), "NUTS").r_hat[0] == np.inf  # where rounding leaves no variance within


@pytest.mark.parametrize("draws", [8, 9, 101])
def test_a_chain_that_moves_once_in_the_middle(draws: int) -> None:
    values = np.zeros((1, draws, 1))
    values[0, draws // 2] = 1
    assert not assess(values, ("w1",), "NUTS").ok


def test_chains_that_leave_their_place_only_for_the_draw_in_the_middle_do_not_pass() -> None:
    """Halves of an odd number of draws leave the middle out: R-hat is 0 / 0, and the ESS that of independent draws."""
    values = np.zeros((4, 1001, 1))
    values[:, 500] = 1
    found = assess(values, ("w1",), "NUTS")
    assert found.ess_bulk[0] > 400
    assert found.r_hat[0] == np.inf
    assert not found.ok


def test_two_judgements_can_be_compared_and_kept_in_a_set() -> None:
    """As wholes: field by field, their arrays would make of == an error."""
    first, second = (assess(independent(draws=10), NAMES, "NUTS") for _ in range(2))
    assert first != second
    assert len({first, second, first}) == 2


@pytest.mark.parametrize("shape", [(1, 1, 1), (1, 2, 3), (4, 1, 2), (4, 7, 100), (1, 7, 1), (8, 3, 2)])
@pytest.mark.parametrize("sampler", ["NUTS", "Grid"])
def test_too_few_draws_are_said_to_be_too_few(shape: tuple[int, int, int], sampler: str) -> None:
    found = assess(np.random.default_rng(0).normal(size=shape), [f"w{j}" for j in range(shape[2])], sampler)
    assert not found.ok
    assert "too few to judge: ask for more draws" in found.sentence
    assert np.isnan(found.r_hat).all()
    assert "never moved" not in found.sentence


@pytest.mark.parametrize("draws", [8, 9, 11, 50, 99])
@pytest.mark.parametrize("chains", [1, 2, 5])
def test_short_chains_give_numbers_and_a_sentence(chains: int, draws: int) -> None:
    found = assess(independent(chains, draws), NAMES, "NUTS")
    assert np.isfinite([*found.r_hat, *found.ess_bulk, *found.ess_tail]).all()
    assert not found.ok  # 100 effective draws per chain are not there to be had
    assert "too few to judge" not in found.sentence


def test_two_valued_draws() -> None:
    draws = np.random.default_rng(0).integers(0, 2, size=(4, 1000, 1)).astype(float)
    assert assess(draws, ("w1",), "Metropolis").ok


def test_huge_and_tiny_scales() -> None:
    draws = independent()
    draws[:, :, 0] *= 1e300
    draws[:, :, 1] *= 1e-300
    found = assess(draws, NAMES, "NUTS")
    assert found.ok


@pytest.mark.parametrize(
    ("chains", "draws", "q"), [(1, 100, 1), (1, 100, 100), (1, 400, 3), (1, 1000, 25), (4, 250, 10)]
)
def test_independent_draws_are_almost_never_blamed(chains: int, draws: int, q: int) -> None:
    """FALSE_ALARM is 1e-3 for R-hat; 60 posteriors then give two or more blames with probability below 2e-3.

    With the plain limit of 1.01 a third of the (1, 100, 1) posteriors would be blamed.
    """
    names = [f"w{j}" for j in range(q)]
    repeats = 60 if q < 25 else 10
    blamed = [not assess(independent(chains, draws, q, seed), names, "Grid").ok for seed in range(repeats)]
    assert sum(blamed) <= 1


def test_independent_draws_with_a_real_fault_are_blamed() -> None:
    draws = independent(chains=1, draws=1000)
    draws[0, :, 2] = np.sort(draws[0, :, 2])
    found = assess(draws, NAMES, "Grid")
    assert "'w3'" in found.sentence
    assert not found.ok


def test_few_independent_draws_are_too_few_whatever_their_diagnostics() -> None:
    found = assess(independent(1, 50), NAMES, "Grid")
    assert found.sentence == "Use these draws with care. There are only 50 draws: ask for at least 100, better 1000."
    assert found.colour == "amber"


def test_sentence_of_exact_draws() -> None:
    found = assess(independent(1, 1000), NAMES, "Grid")
    assert found.sentence == "1000 independent draws (Grid): there is no chain that has to converge."


def test_variational_draws_are_judged_by_their_k_hat() -> None:
    assert "approximation" in assess(independent(1), NAMES, "VI", pareto_k=0.3).sentence
    found = assess(independent(1), NAMES, "VI", pareto_k=0.93)
    assert not found.ok
    assert "Pareto k-hat is 0.93 (below 0.7 is wanted)" in found.sentence
    assert found.colour == "red"


def test_limits() -> None:
    assert r_hat_limit((4, 100, 3), independent=False) == 1.01
    assert r_hat_limit((1, 100000, 3), independent=True) == 1.01
    assert r_hat_limit((1, 100, 3), independent=True) > r_hat_limit((1, 400, 3), independent=True) > 1.01
    assert r_hat_limit((4, 7, 3), independent=True) == 1.01  # too few to judge anyway
    assert ess_limit((4, 1000, 3), independent=False) == 400
    assert ess_limit((1, 10000, 3), independent=True) == 100
    assert ess_limit((1, 100, 3), independent=True) == 5
    assert ess_limit((4, 100, 3), independent=True) == 20


@pytest.mark.parametrize("chains", [1, 4])
def test_the_limit_of_r_hat_is_the_quantile_of_its_distribution(chains: int) -> None:
    """Of 20,000 sets of independent draws 10 pass it: half of FALSE_ALARM, the other half is the folded R-hat's."""
    pieces = np.random.default_rng(0).normal(size=(20_000, 2 * max(chains, 2), 100 // (2 if chains > 1 else 4)))
    length = pieces.shape[2]
    between = length * pieces.mean(axis=2).var(axis=1, ddof=1)
    within = pieces.var(axis=2, ddof=1).mean(axis=1)
    r_hat = np.sqrt(((length - 1) * within + between) / length / within)
    limit = r_hat_limit((chains, 100, 1), independent=True)
    assert 1 < np.count_nonzero(r_hat >= limit) < 24  # a Poisson count of mean 10 is outside once in 2,000


@pytest.mark.parametrize(
    ("sampler", "expected"),
    [("Grid", True), ("grid (exact)", True), ("VI", True), ("NUTS", False), ("SMC", False), ("", False)],
)
def test_which_samplers_are_independent(sampler: str, expected: bool) -> None:
    assert is_independent(sampler) is expected


@pytest.mark.parametrize(("step", "colour"), [(0.05, "green"), (0.25, "green"), (0.45, "amber"), (1.0, "red")])
def test_draws_on_a_lattice_are_judged_by_the_sd_in_steps(step: float, colour: str) -> None:
    """Exactly the masses of exp(-x / 0.3) at midpoints: that sd is found, and three quarters of it asked for."""
    decay = np.exp(-step / 0.3)
    draws = step * (np.random.default_rng(0).geometric(1 - decay, (4, 1000, 1)) - 0.5)
    np.testing.assert_allclose(draws.std() / step, 1 / (2 * np.sinh(step / 0.6)), rtol=0.15)
    found = assess(draws, ("w1",), "PolicyWalk", lattice_step=[step])
    assert found.colour == colour
    if colour != "green":
        assert 0.19 <= float(found.sentence.split("take step=")[1].split()[0]) <= 0.25  # 0.225, +- 9 %, rounded down
    assert assess(draws, ("w1",), "NUTS").colour == "green"  # it is the lattice that says so


def test_a_posterior_of_few_cells_is_told_so() -> None:
    assert assess(independent(), NAMES, "Grid (table of Q*)", effective_cells=40.0).colour == "green"
    found = assess(independent(), NAMES, "Grid (table of Q*)", effective_cells=3.2)
    assert found.colour == "amber"
    assert "3.2 cells" in found.sentence
