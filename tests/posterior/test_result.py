"""Posterior: checked at construction, frozen, and what one asks of it agrees with plain NumPy."""

import tracemalloc
from dataclasses import FrozenInstanceError, replace
from typing import Any

import numpy as np
import polars
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdbirl.data.demonstrations import Demonstrations
from kdbirl.errors import InputError
from kdbirl.features import Function, Identity, OneHotStates
from kdbirl.posterior import result
from kdbirl.posterior.result import Posterior

CHAINS, DRAWS = 2, 200


def make(q: int = 3, **changes: Any) -> Posterior:
    rng = np.random.default_rng(0)
    fields: dict[str, Any] = {
        "draws": rng.normal(size=(CHAINS, DRAWS, q)),
        "names": tuple(f"w{j}" for j in range(q)),
        "method": "KDBIRL",
        "sampler": "NUTS",
        "seed": 0,
        "sample_stats": {"lp": rng.normal(size=(CHAINS, DRAWS)), "diverging": np.zeros((CHAINS, DRAWS), bool)},
        "prior_draws": rng.normal(size=(50, q)),
        "log_likelihood": rng.normal(size=(CHAINS, DRAWS, 2)),
        "expert_index": np.array([1, 0, 1]),
        "expert_features": np.array([[0.0, 1.0], [1.0, 0.0], [0.0, 1.0]]),
        "feature_names": ("x", "y"),
        "task_rewards": rng.normal(size=(4, q)),
        "task_names": ("a", "b", "c", "d"),
        "task_rows": np.array([5, 6, 7, 8]),
        "h": 0.3,
        "h_reward": 0.2,
        "bandwidth_rule": "median",
        "settings": {"prior": "uniform", "h_candidates": (0.1, np.float64(0.2)), "grid": np.arange(3)},
        "cards": {"identifiability": ("amber", "Two directions keep their prior.")},
    }
    return Posterior(**(fields | changes))


def test_flat_mean_and_summary_agree_with_numpy() -> None:
    posterior = make()
    flat = posterior.draws.reshape(-1, 3)
    np.testing.assert_array_equal(posterior.flat, flat)
    np.testing.assert_array_equal(posterior.mean(), flat.mean(axis=0))
    table = posterior.summary()
    assert isinstance(table, polars.DataFrame)
    assert table.columns == ["parameter", "mean", "sd", "q05", "median", "q95", "r_hat", "ess_bulk", "ess_tail"]
    assert table["parameter"].to_list() == ["w0", "w1", "w2"]
    np.testing.assert_allclose(table["sd"], flat.std(axis=0))
    np.testing.assert_allclose(table["q05"], np.quantile(flat, 0.05, axis=0))
    np.testing.assert_allclose(table["median"], np.median(flat, axis=0))
    np.testing.assert_array_equal(table["r_hat"], posterior.convergence.r_hat)


@pytest.mark.parametrize("q", [1, 2, 100])
@pytest.mark.parametrize("shape", [(1, 1), (1, 30), (3, 2)])
def test_summary_of_any_shape(q: int, shape: tuple[int, int]) -> None:
    draws = np.random.default_rng(1).normal(size=(*shape, q))
    posterior = Posterior(draws, tuple(f"w{j}" for j in range(q)), "KDBIRL", "Grid", 0)
    assert posterior.summary().height == q
    assert posterior.convergence.sentence


def test_map_is_the_draw_of_highest_density() -> None:
    posterior = make()
    chain, draw = np.unravel_index(np.argmax(posterior.sample_stats["lp"]), (CHAINS, DRAWS))
    np.testing.assert_array_equal(posterior.map(), posterior.draws[chain, draw])


def test_map_passes_over_nan_and_needs_a_density() -> None:
    density = np.full((CHAINS, DRAWS), np.nan)
    density[1, 5] = -3.0
    np.testing.assert_array_equal(make(sample_stats={"lp": density}).map(), make().draws[1, 5])
    with pytest.raises(InputError, match=r"no log density 'lp'; use mean\(\)"):
        make(sample_stats={}).map()


@pytest.mark.parametrize(
    ("text", "function"),
    [
        ("w0 > w1", lambda r: r["w0"] > r["w1"]),
        ("w0<w1", lambda r: r["w0"] < r["w1"]),
        (" w0 >= 0.25 ", lambda r: r["w0"] >= 0.25),
        ("-1e-1 <= w2", lambda r: r["w2"] >= -0.1),
        ("'w0' > \"w1\"", lambda r: r[:, 0] > r[:, 1]),
        ("w0 < inf", lambda r: np.isfinite(np.asarray(r)[:, 0])),
    ],
)
def test_probability_of_text_and_of_a_function(text: str, function: Any) -> None:
    posterior = make()
    flat = dict(zip(posterior.names, posterior.flat.T, strict=True))
    assert posterior.probability(text) == posterior.probability(function)
    assert 0 <= posterior.probability(text) <= 1
    assert posterior.probability("w0 > w1") == np.mean(flat["w0"] > flat["w1"])


def test_names_may_hold_operators_quotes_spaces_and_numbers() -> None:
    names = ("a < b", "it's > 'x'", " lead", "0")
    posterior = make(q=4, names=names, task_names=(), task_rewards=np.zeros((0, 4)), task_rows=np.zeros(0, int))
    columns = posterior.flat.T
    assert posterior.probability("a < b < it's > 'x'") == np.mean(columns[0] < columns[1])
    assert posterior.probability("a < b > 0") == np.mean(columns[0] > columns[3])  # a name comes before a number
    assert posterior.probability("' lead' <= 0.5") == np.mean(columns[2] <= 0.5)
    assert make(names=("", "b", "c")).probability("<0.5") == np.mean(make().flat[:, 0] < 0.5)


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ("w0 > v1", r"There is no reward parameter 'v1'. Did you mean 'w1'\?"),
        ("w0", r"cannot read 'w0'; expected NAME < NAME"),
        ("", "cannot read ''"),
        ("0 < w0 < 1", "cannot read '0 < w0 < 1'"),
        ("w0 == w1", "cannot read"),
        ("w0 > nan", "no reward parameter 'nan'"),
        ("__import__('os').getcwd() > 0", "cannot read"),
        (lambda r: 1.0, "must give one true or false for each of the 400 draws"),
        (lambda r: r["w0"], "it gave float64"),
        (lambda r: r["W0"] > 0, "There is no reward parameter 'W0'. Did you mean 'w0'"),
        ("1 < 2", "cannot read"),
    ],
)
def test_a_condition_that_cannot_be_read(condition: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make().probability(condition)


def test_an_ambiguous_condition_is_refused() -> None:
    posterior = make(names=("a", "a < a", "b"))
    with pytest.raises(InputError, match="can be read in several ways; give a function"):
        posterior.probability("a < a < a")


@given(st.text(max_size=30))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        probability = make().probability(text)
    except InputError as error:
        probability, message = 0.5, str(error)
        assert message.startswith("condition: ")
    assert 0 <= probability <= 1


def test_reward_of_rows_agrees_with_the_direct_product(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = Demonstrations(states=np.array([0, 2, 1, 1, 0]), n_states=3)
    posterior = make(reward_features=OneHotStates().fit(rows))
    phi = posterior.reward_features(rows)
    assert phi.shape == (5, 3)
    values = phi @ posterior.flat.T
    whole = posterior.reward(rows, level=0.5)
    np.testing.assert_allclose(whole.mean, values.mean(axis=1))
    np.testing.assert_allclose(whole.sd, values.std(axis=1))
    np.testing.assert_allclose([whole.low, whole.high], np.quantile(values, [0.25, 0.75], axis=1))
    monkeypatch.setattr(result, "CELLS_AT_ONCE", CHAINS * DRAWS)  # one row at a time
    blocked = posterior.reward(rows, level=0.5)
    np.testing.assert_allclose(blocked.mean, whole.mean, rtol=1e-12)  # BLAS may sum another block in another order
    np.testing.assert_allclose(blocked.high, whole.high, rtol=1e-12)


def test_the_reward_of_many_rows_takes_bounded_memory() -> None:
    """Blocks of 32 MB, with copies 70 MB at most (measured); the table of all rows and draws alone would be 134 MB."""
    rows = Demonstrations(states=np.zeros((2**24 // (CHAINS * DRAWS), 3)))
    posterior = make(reward_features=Identity().fit(rows))
    tracemalloc.start()
    try:
        posterior.reward(rows)
        assert tracemalloc.get_traced_memory()[1] < 100e6
    finally:
        tracemalloc.stop()


def test_reward_refuses_what_it_cannot_do() -> None:
    rows = Demonstrations(states=np.array([0, 1]), n_states=2)
    with pytest.raises(InputError, match="does not know which features its parameters weigh"):
        make().reward(rows)
    with pytest.raises(InputError, match="have 2 columns for 3 parameters"):
        make(reward_features=Function(lambda s, a: np.ones((len(s), 2))).fit(rows)).reward(rows)
    with pytest.raises(InputError, match=r"level: 1\.5 is not a probability"):
        make(reward_features=OneHotStates().fit(rows)).reward(rows, level=1.5)


def test_features_can_be_given_when_asking() -> None:
    rows = Demonstrations(states=np.array([0, 2]), n_states=3)
    phi = OneHotStates().fit(rows)
    np.testing.assert_array_equal(make().reward(rows, features=phi).mean, make(reward_features=phi).reward(rows).mean)


def test_report_card_has_convergence_and_the_cards_of_the_method() -> None:
    posterior = make()
    card = posterior.report_card()
    assert list(card) == ["convergence", "identifiability"]
    assert card["convergence"] == (posterior.convergence.colour, posterior.convergence.sentence)
    assert card["identifiability"][0] == "amber"


def test_content_decides_equality() -> None:
    assert make() == make()
    assert hash(make()) == hash(make())
    draws = make().draws.copy()
    draws[0, 0, 0] = np.nextafter(draws[0, 0, 0], 9)
    assert make(draws=draws) != make()
    changes = [
        {"seed": 1},
        {"settings": {}},
        {"sample_stats": {}},
        {"cards": {}},
        {"h": (0.3,)},
        {"log_likelihood": None},
    ]
    assert len({make(**change).fingerprint() for change in changes} | {make().fingerprint()}) == 7
    assert make() != "a posterior"
    assert make(settings={"a": 1, "b": 2}) == make(settings={"b": 2, "a": 1})


def test_it_is_frozen_and_keeps_its_own_arrays() -> None:
    draws = np.random.default_rng(0).normal(size=(CHAINS, DRAWS, 3))
    posterior = make(draws=draws)
    before = posterior.draws.copy()
    draws[:] = 0
    np.testing.assert_array_equal(posterior.draws, before)
    with pytest.raises(ValueError, match="read-only"):
        posterior.draws[0, 0, 0] = 1
    with pytest.raises(FrozenInstanceError):
        posterior.seed = 3  # type: ignore[misc]


def test_every_array_is_its_own_and_read_only() -> None:
    arrays = ("draws", "prior_draws", "log_likelihood", "expert_index", "expert_features", "task_rewards", "task_rows")
    first = make()
    given = {name: getattr(first, name).copy() for name in arrays}
    posterior = make(**given)
    for name, array in given.items():
        array[:] = 0
        np.testing.assert_array_equal(getattr(posterior, name), getattr(first, name))
        assert not getattr(posterior, name).flags.writeable, name
    assert posterior.task_rows.dtype == np.int64
    assert make(feature_names=()).feature_names == ("x0", "x1")


def test_settings_are_plain_json_from_the_start() -> None:
    assert make().settings == {"prior": "uniform", "h_candidates": [0.1, 0.2], "grid": [0, 1, 2]}


def test_k_hat_of_a_variational_posterior_reaches_convergence() -> None:
    posterior = make(sampler="VI", settings={"pareto_k": 1.2})
    assert "Pareto k-hat is 1.20" in posterior.convergence.sentence


def test_the_rest_may_be_left_out() -> None:
    posterior = Posterior(np.zeros((1, 10, 2)), ("a", "b"), "BIRL", "Metropolis", 1)
    assert posterior.prior_draws.shape == (0, 2)
    assert posterior.task_rewards.shape == (0, 2)
    assert posterior.expert_features.shape == (0, 0)
    assert posterior.feature_names == ()
    assert posterior.h is None
    assert replace(posterior, seed=2).seed == 2


def test_repr_is_short() -> None:
    assert repr(make()) == "Posterior(KDBIRL, NUTS, seed 0: 2 x 200 draws of 3 parameters: w0, w1, w2)"
    four, five = (repr(make(q)) for q in (4, 5))
    assert four.endswith("4 parameters: w0, w1, w2, w3)")
    assert five.endswith("5 parameters: w0, w1, w2, w3, ...)")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"draws": np.zeros((2, 3))}, r"draws: expected an array of shape \(any, any, any\), got \(2, 3\)"),
        ({"draws": np.zeros((2, 0, 3))}, "draws: there are none"),
        ({"draws": np.full((2, 200, 3), np.nan)}, "parameter 1 of draw 1 in chain 1 is nan"),
        ({"names": ("a", "b")}, "names: 2 names for 3 values"),
        ({"names": ("a", "b", "b")}, "names: the names are not distinct"),
        ({"sample_stats": {"lp": np.zeros(3)}}, r"sample_stats\['lp'\]: expected an array of shape \(2, 200\)"),
        ({"sample_stats": {"a/b": np.zeros((2, 200))}}, "'a/b' is not a name"),
        ({"sample_stats": {"lp": np.full((2, 200), "x")}}, "expected numbers"),
        ({"prior_draws": np.zeros((5, 2))}, r"prior_draws: expected an array of shape \(any, 3\)"),
        ({"log_likelihood": np.zeros((2, 200, 5))}, "5 distinct expert rows, so expert_index must name each of 0 to 4"),
        ({"expert_index": np.array([0, 1])}, r"expert_index: expected an array of shape \(3\)"),
        ({"task_rows": np.array([1])}, "task_rows: expected"),
        ({"task_names": ("a",)}, "task_names: 1 names for 4 values"),
        ({"settings": {"f": max}}, "settings: builtin_function_or_method cannot be written as JSON"),
        ({"cards": {"x": ("blue", "?")}}, "'x' has the colour 'blue'; expected one of green, amber"),
    ],
)
def test_wrong_fields_get_a_sentence(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make(**changes)
