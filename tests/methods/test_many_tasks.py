"""Many test tasks at once give what they give one by one, and every task can be had whole."""

import json

import jax.numpy as jnp
import numpy as np
import pytest
from arviz_stats.base.array import array_stats

import kdbirl as kb
from kdbirl._jax import float64
from kdbirl.errors import FileProblem, InputError
from kdbirl.likelihood.ckde import likelihood_of_each
from kdbirl.methods import many as many_tasks
from kdbirl.methods.posteriors import StoredPosteriors
from kdbirl.posterior.independence import accepted_places

from .banks import continuous

Z_LIMIT = 4.5  # 2 x 3 x 2 comparisons of means and sds: a right sampler is blamed once in 10,000 runs with fresh seeds


@pytest.fixture(scope="module")
def model():
    bank, _ = continuous(tasks=10, rows=30, q=2)
    return kb.KDBIRL(prior=kb.Uniform(-1, 1), features=kb.Identity(), bandwidth=(0.3, 0.4), power=0.5).fit(bank)


@pytest.fixture(scope="module")
def experts():
    rng = np.random.default_rng(5)
    centres = rng.uniform(-0.6, 0.6, (3, 2))
    return {
        f"task {i}": kb.Demonstrations(states=np.round(centre + rng.normal(0, 0.5, (n, 2)), 1))
        for i, (centre, n) in enumerate(zip(centres, (20, 20, 31), strict=True))
    }


@pytest.fixture(scope="module")
def found(model, experts):
    return model.posteriors(experts, seed=3)


def z_of(ours, theirs):
    """Differences of means and of sds in Monte-Carlo errors, for draws (chain, draw, q)."""
    scores = []
    for j in range(ours.shape[-1]):
        a, b = ours[..., j], theirs[..., j]
        for method, value in (("mean", np.mean), ("sd", np.std)):
            errors = [float(array_stats.mcse(x, method=method)) for x in (a, b)]
            scores.append(float(value(a) - value(b)) / np.hypot(*errors))
    return np.array(scores)


def test_the_posteriors_are_those_of_one_by_one(model, experts, found):
    for name, expert in experts.items():
        alone, together = model.posterior(expert, seed=0), found[name]
        assert alone.sampler == "Grid"
        assert together.sampler == "Independence"
        assert np.abs(z_of(together.draws, alone.draws)).max() < Z_LIMIT
        assert together.convergence.ok, together.convergence.sentence
        assert (together.h, together.h_reward, together.power) == (alone.h, alone.h_reward, alone.power)
        np.testing.assert_array_equal(together.expert_features, alone.expert_features)
        np.testing.assert_array_equal(together.expert_index, alone.expert_index)
        assert together.settings["expert"] == alone.settings["expert"]
        assert together.cards["support"] == alone.cards["support"]
        assert together.cards["calibration"] == alone.cards["calibration"]


def test_a_shifted_posterior_would_be_noticed(found):
    draws = found.of("task 0").draws
    assert np.abs(z_of(draws + 0.05, draws)).max() > Z_LIMIT


def test_the_pointwise_likelihoods_are_those_of_the_model(model, experts, found):
    whole = found["task 2"]
    counts = np.bincount(whole.expert_index)
    totals = (whole.log_likelihood @ counts).ravel()
    np.testing.assert_allclose(totals[:50], model.log_likelihood(experts["task 2"], whole.flat[:50]), rtol=1e-10)
    np.testing.assert_allclose(whole.sample_stats["lp"].ravel()[:50], 0.5 * totals[:50] - np.log(4), rtol=1e-8)


@float64
def test_likelihoods_by_one_table_are_the_same(model, experts):
    fitted = model.fitted
    rows = {name: fitted.features(expert) for name, expert in experts.items()}
    of = likelihood_of_each(fitted.ckde, rows, np.array([0.3]), 0.4, fitted.prior.box)
    for name, own in rows.items():
        alone = fitted.ckde.likelihood(own, np.array([0.3]), 0.4, fitted.prior.box)
        for reward in ([0.1, 0.2], [-0.9, 0.9]):
            np.testing.assert_allclose(of(name)(jnp.array(reward)), alone(jnp.array(reward)), rtol=1e-12)


def test_a_task_does_not_depend_on_the_others(model, experts, found):
    alone = model.posteriors({"another name": experts["task 1"]}, seed=3)
    np.testing.assert_array_equal(alone.of("another name").draws, found.of("task 1").draws)
    other = model.posteriors({"task 1": experts["task 1"]}, seed=4)
    assert not np.isin(other.of("task 1").draws, found.of("task 1").draws).all()


@float64
def test_a_companion_far_away_does_not_change_the_form_of_the_sums(experts):
    """Only the far one's sums span more than a double's range."""
    bank, _ = continuous(tasks=10, rows=30, q=2)
    model = kb.KDBIRL(prior=kb.Normal(0, 1), features=kb.Identity(), bandwidth=(0.3, 0.06)).fit(bank)
    far = kb.Demonstrations(states=experts["task 1"].states + 60.0)
    alone = model.posteriors({"a": experts["task 0"]}, seed=1)
    both = model.posteriors({"far": far, "a": experts["task 0"]}, seed=1)
    np.testing.assert_array_equal(both.of("a").draws, alone.of("a").draws)
    rows = {"far": far.states, "a": experts["task 0"].states}
    of = likelihood_of_each(model.fitted.ckde, rows, np.array([0.3]), 0.06, model.fitted.prior.box)
    assert (of("a").numerator.matrix_form, of("far").numerator.matrix_form) == (True, False)


def test_a_lone_row_is_as_in_company_where_actions_are_conditioned_on_states():
    """Its one denominator is its own, not everybody's."""
    rng = np.random.default_rng(3)
    rewards, tasks = rng.uniform(0, 1, (12, 2)), np.repeat(np.arange(12), 15)
    states, actions = rng.normal(size=(180, 2)) + 2 * rewards[tasks], rng.integers(0, 2, 180)
    bank = kb.TaskBank.from_arrays(states, actions, tasks, rewards)
    model = kb.KDBIRL(prior=kb.Uniform(0, 1), bandwidth=(0.7, 0.3), conditional="action").fit(bank)
    one, five = (kb.Demonstrations(rng.normal(size=(n, 2)) + 1, np.arange(n) % 2) for n in (1, 5))
    alone, both = model.posteriors({"one": one}, seed=0), model.posteriors({"one": one, "five": five}, seed=0)
    np.testing.assert_array_equal(both.of("one").draws, alone.of("one").draws)


def test_task_names_are_the_labels_of_tables():
    rows = kb.Demonstrations(states=np.zeros((3, 2)))
    assert list(many_tasks.named_experts(rows, np.array([2.0, 1.0, 2.0]))) == ["2", "1"]
    assert list(many_tasks.named_experts(rows, ["01", "1", "01"])) == ["01", "1"]
    for missing in (["a", None, "a"], [None, None, 1], np.array([1.0, np.nan, 1.0])):
        with pytest.raises(InputError, match=r"tasks: row \d is missing \((None|nan)\)"):
            many_tasks.named_experts(rows, missing)


def test_rows_with_task_names_and_lists_are_accepted_too(model, experts, found):
    parts = list(experts.values())
    rows = kb.Demonstrations(states=np.concatenate([part.states for part in parts]))
    names = np.repeat(list(experts), [part.n_rows for part in parts])
    order = np.random.default_rng(0).permutation(len(names))
    mixed = named = many_tasks.named_experts(rows.take(order), names[order])
    assert {name: expert.n_rows for name, expert in named.items()} == {n: e.n_rows for n, e in experts.items()}
    assert sorted(map(tuple, mixed["task 2"].states)) == sorted(map(tuple, experts["task 2"].states))
    assert list(many_tasks.named_experts(parts)) == ["0", "1", "2"]


@pytest.mark.parametrize(
    ("experts", "tasks", "sentence"),
    [
        (kb.Demonstrations(states=np.zeros((3, 2))), None, "needs tasks="),
        (kb.Demonstrations(states=np.zeros((3, 2))), ["a"], "a name for each row"),
        ([kb.Demonstrations(states=np.zeros((3, 2)))], ["a"], "goes with one Demonstrations"),
        ({}, None, "at least one test task"),
        (7, None, "not int"),
    ],
)
def test_what_cannot_be_many_tasks_is_refused(experts, tasks, sentence):
    with pytest.raises(InputError, match=sentence):
        many_tasks.named_experts(experts, tasks)


def test_where_proposals_do_not_fit_the_models_own_sampler_takes_over(model, experts, monkeypatch):
    monkeypatch.setattr(many_tasks, "accepted_enough", lambda draws: False)
    found = model.posteriors({"a": experts["task 0"]}, seed=0)
    assert found.of("a").sampler == "Grid"
    np.testing.assert_array_equal(found.of("a").draws, model.posterior(experts["task 0"], seed=0).draws)


def test_a_row_out_of_reach_names_its_task(experts):
    bank, _ = continuous(tasks=10, rows=30, q=2)
    model = kb.KDBIRL(prior=kb.Uniform(-1, 1), features=kb.Identity(), bandwidth=(0.3, 0.4), kernel="uniform").fit(bank)
    far = {**experts, "far away": kb.Demonstrations(states=np.full((2, 2), 9.0))}
    with pytest.raises(InputError, match="Test task 'far away': No training row is within reach of expert row 1, 2"):
        model.posteriors(far)
    far["far away"] = kb.Demonstrations(states=np.array([[0.0, 0.0], [9.0, 9.0]]))  # one of its rows is enough
    with pytest.raises(InputError, match=r"Test task 'far away': .* of expert row 2 \(1 in all\)"):
        model.posteriors(far)


def test_blocks_and_batches_change_nothing(model, experts, found, monkeypatch):
    monkeypatch.setattr(many_tasks, "TABLE_ENTRIES", 1)
    apart = model.posteriors(experts, seed=3)
    for name in experts:
        np.testing.assert_array_equal(apart.of(name).draws, found.of(name).draws)


def test_tables(found):
    summary, table = found.summary(), found.table()
    assert summary.columns[:3] == ["task", "parameter", "mean"]
    assert len(summary) == 6
    assert table["task"].to_list() == list(found)
    assert table["rows"].to_list() == [20, 20, 31]
    assert set(table["convergence"]) == {"green"}
    np.testing.assert_allclose(found.mean(), found.draws.mean(axis=(1, 2)))


def test_a_file_gives_back_every_task(model, found, tmp_path):
    found.save(tmp_path / "posteriors.nc")
    again = kb.load_posteriors(tmp_path / "posteriors.nc", model)
    assert list(again) == list(found)
    for name in found:
        assert again.of(name) == found.of(name)
    assert again["task 2"] == found["task 2"]
    with pytest.raises(InputError, match=r"no test task 'task 9'\. Did you mean"):
        again["task 9"]


def test_a_changed_file_is_noticed(found, tmp_path):
    import h5py

    found.save(tmp_path / "posteriors.nc")
    with h5py.File(tmp_path / "posteriors.nc", "r+") as file:
        file["reward"][1, 0, 0, 0] += 0.1
    stored = StoredPosteriors(tmp_path / "posteriors.nc")
    assert stored["task 0"] == found.of("task 0")
    with pytest.raises(FileProblem, match="task 1"):
        stored["task 1"]
    (tmp_path / "other.nc").write_bytes(json.dumps({}).encode())
    with pytest.raises(FileProblem, match="cannot be read as netCDF: it is damaged"):
        StoredPosteriors(tmp_path / "other.nc")


def test_a_chain_of_proposals_by_hand():
    logs = np.log([[[1.0, 0.5, 4.0, 2.0, 0.0001]]])
    with np.errstate(divide="ignore"):
        levels = np.log([[[0.6, 0.99, 0.4, 0.5]]])
    # 0.5/1 < 0.6: stay; 4/1: move; 2/4 >= 0.4: move; tiny: stay
    np.testing.assert_array_equal(accepted_places(logs, levels), [[[0, 0, 2, 3, 3]]])
