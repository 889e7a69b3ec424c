"""Leaving one task out: its likelihoods against models fitted without the task, its choice, its fallbacks."""

import numpy as np
import pytest
from scipy.special import logsumexp

import kdbirl as kb
from kdbirl.errors import CalibrationWarning, InputError
from kdbirl.posterior.priors import prior_points
from kdbirl.trust.held_out import HeldOutTasks, Plays, all_extrapolate, distance_to_hull, log_mean_and_effective
from kdbirl.trust.loto import bounded

QUICK = kb.LotoSettings(h_factors=(0.25, 1.0), h_reward_factors=(0.25, 0.5, 1.0), powers=(1.0, 0.3, 0.1, 0.03))


def shifted_normals(tasks=12, episodes=15, steps=10, repeat=1, seed=0, q=1):
    """Rows x ~ N(R, 1) for rewards in [-2, 2]^q; with `repeat`, an episode shows each of its rows so many times."""
    rng = np.random.default_rng(seed)
    rewards = rng.uniform(-2, 2, (tasks, q))
    rows = rewards[:, None, None] + rng.normal(size=(tasks, episodes, steps // repeat, q))
    rows = np.repeat(rows, repeat, axis=2)
    return kb.TaskBank.from_arrays(
        states=rows.reshape(-1, q),
        actions=None,
        tasks=np.repeat(np.arange(tasks), episodes * steps),
        rewards=rewards,
        episodes=np.tile(np.repeat(np.arange(episodes), steps), tasks),
    )


def model_of(**choices):
    return kb.KDBIRL(**{"prior": kb.Uniform(-2, 2), "features": kb.Identity(), "bandwidth": QUICK, **choices})


def labelled_bank(seed=1):
    rng = np.random.default_rng(seed)
    return kb.TaskBank.from_arrays(
        states=rng.normal(size=(240, 2)),
        actions=rng.integers(0, 3, 240),
        tasks=np.sort(rng.integers(0, 6, 240)),
        rewards=rng.uniform(-2, 2, (6, 2)),
        episodes=np.arange(240) // 8,
    )


@pytest.mark.parametrize(
    "choices",
    [
        {},
        {"h_reward": 0.01},  # leaving out the nearest task takes more off the largest weight than a double can hold
        {"kernel": "laplace", "distance": "manhattan"},
        {"reward_kernel": "epanechnikov"},
        {"conditional": "action"},
        {"task_weights": "equal"},
        {"kernel": kb.ProductKernel(state="gaussian", action=kb.Categorical(0.2))},
    ],
    ids=[
        "gaussian",
        "narrow rewards",
        "laplace",
        "epanechnikov rewards",
        "action given state",
        "equal tasks",
        "product",
    ],
)
def test_held_out_likelihoods_are_those_of_a_model_fitted_without_the_task(choices):
    bank, h_reward = labelled_bank(), choices.get("h_reward", 1.3)
    choices = {name: value for name, value in choices.items() if name != "h_reward"}
    features = kb.Identity().fit(bank.demonstrations)
    whole = kb.KDBIRL(prior=kb.Uniform(-2, 2), features=features, bandwidth=(0.6, h_reward), **choices).fit(bank)
    plays, h = Plays.from_bank(bank, features, 0), whole.fitted.choices.start.h
    points = prior_points(kb.Uniform(-2, 2).for_parameters(2), 16)
    held_out = HeldOutTasks.of(whole.fitted.ckde, plays, np.array([0, 4]), 9, 2, points)
    kernels = held_out.reward_kernels(np.array([0.7, h_reward]))
    at_points, at_truths = (part[1] for part in held_out.log_likelihoods(h, kernels))
    for place, task in enumerate(held_out.tasks):
        without = kb.KDBIRL(prior=kb.Uniform(-2, 2), features=features, bandwidth=(0.6, h_reward), **choices)
        without.fit(bank.without(int(task)))
        for number in range(2):
            expert = shown_rows(bank, plays, int(task), number)
            expected = without.log_likelihood(expert, np.vstack([points, bank.rewards[task]]))
            np.testing.assert_allclose(at_points[place, number], expected[:-1], rtol=1e-9, atol=1e-9)
            np.testing.assert_allclose(at_truths[place, number], expected[-1], rtol=1e-9, atol=1e-9)


def shown_rows(bank, plays, task, number):
    """The demonstrations behind a play, found by their features."""
    features = kb.Identity().fit(bank.demonstrations)
    rows = features(bank.demonstrations)
    wanted = plays.rows[plays.of_task(task, 9, 2)[number]]
    return bank.demonstrations.take(np.array([np.flatnonzero((rows == row).all(axis=1))[0] for row in wanted]))


def test_plays_are_whole_episodes_in_their_order_and_disjoint():
    bank = shifted_normals(tasks=3, episodes=4, steps=5)
    plays = Plays.from_bank(bank, kb.Identity().fit(bank.demonstrations), 3)
    first, second = plays.of_task(1, 10, 2)
    own = bank.task(1)
    whole = {own.states[own.episodes == e].tobytes() for e in range(4)}
    shown = [plays.rows[play].reshape(2, 5, 1) for play in (first, second)]
    assert {episode.tobytes() for play in shown for episode in play} == whole


def test_plays_of_too_few_rows_begin_evenly_apart_and_show_all_rows_equally_often():
    bank = shifted_normals(tasks=3, episodes=4, steps=5)
    plays = Plays.from_bank(bank, kb.Identity().fit(bank.demonstrations), 3)
    assert np.bincount(np.concatenate(plays.of_task(2, 10, 4)), minlength=60)[plays.index[40:]].tolist() == [2] * 20
    assert [len(play) for play in plays.of_task(2, 70, 3)] == [20] * 3


def test_a_task_of_one_episode_keeps_its_neighbours():
    bank = kb.TaskBank.from_arrays(np.arange(20.0)[:, None], None, np.repeat([0, 1], 10), [[0.0], [1.0]])
    plays = Plays.from_bank(bank, kb.Identity().fit(bank.demonstrations), 1)
    steps = np.diff(plays.rows[plays.of_task(1, 10, 1)[0]][:, 0])
    assert set(steps) <= {1.0, -9.0}


def test_evidence_and_effective_points_are_those_of_the_definition():
    logs = np.random.default_rng(0).normal(0, 30, (2, 3, 50))
    logs[1, 2] = -np.inf
    means, effectives = log_mean_and_effective(logs, np.array([1.0, 0.3]))
    for power, mean, effective in zip((1.0, 0.3), means, effectives, strict=True):
        np.testing.assert_allclose(mean[0], logsumexp(power * logs[0], axis=-1) - np.log(50), rtol=1e-12)
        weights = np.exp(power * (logs[0] - logs[0].max(axis=-1, keepdims=True)))
        np.testing.assert_allclose(effective[0], weights.sum(-1) ** 2 / (weights**2).sum(-1), rtol=1e-12)
        assert (mean[1, 2], effective[1, 2]) == (-np.inf, 0)


def test_the_bounded_score_is_that_of_a_posterior_mixed_with_the_prior():
    np.testing.assert_allclose(bounded(np.array([0.0, 2.0])), np.log(0.999 * np.exp([0.0, 2.0]) + 0.001), atol=1e-15)
    np.testing.assert_allclose(bounded(np.array([-1e6, -np.inf])), np.log(0.001))


def test_rows_that_repeat_lower_the_power():
    """Ten copies of a row say no more than one: a power of about a tenth of what independent rows get."""
    fixed = kb.LotoSettings(h_factors=(0.25,), h_reward_factors=(0.25,), powers=(1.0, 0.5, 0.25, 0.12, 0.06, 0.03))
    alone = model_of(bandwidth=fixed).fit(shifted_normals(tasks=20)).fitted.choices.for_rows(40)
    copies = model_of(bandwidth=fixed).fit(shifted_normals(tasks=20, repeat=10)).fitted.choices.for_rows(40)
    assert copies.power <= alone.power / 4


def test_held_out_tasks_are_covered_as_often_as_promised():
    found = model_of(bandwidth="loto").fit(shifted_normals(tasks=40, seed=5), n=40).fitted.choices.for_rows(40).loto
    assert 0.8 < found.calibration.headline[1] <= 1.0
    assert found.mean > 0.5  # far better than the prior
    assert found.calibration.contraction[0] > 0.3


def test_new_tasks_are_covered_too():
    bank = shifted_normals(tasks=60, seed=2)
    model = model_of().fit(bank.select(range(30)))
    posts = [model.posterior(bank.task(k).take(np.arange(40))) for k in range(30, 60)]
    low, high = np.array([np.quantile(post.draws, [0.05, 0.95]) for post in posts]).T
    covered = (low < bank.rewards[30:, 0]) & (bank.rewards[30:, 0] < high)
    assert 0.75 <= covered.mean() <= 1.0


def test_the_choice_depends_on_the_number_of_rows_alone():
    bank, rng = shifted_normals(), np.random.default_rng(1)
    model = model_of().fit(bank)
    first = model.posterior(kb.Demonstrations(rng.normal(0, 1, (25, 1))))
    second = model.posterior(kb.Demonstrations(rng.normal(1, 1, (25, 1))))
    again = model_of().fit(bank, n=25).posterior(kb.Demonstrations(rng.normal(1, 1, (25, 1))))
    assert (first.h, first.h_reward, first.power) == (second.h, second.h_reward, second.power)
    assert (first.h, first.h_reward, first.power) == (again.h, again.h_reward, again.power)
    assert first.bandwidth_rule == "loto"


def test_a_given_power_is_kept_and_log_likelihood_is_never_powered():
    bank = shifted_normals()
    expert = bank.task(0).take(np.arange(20))
    model = model_of(power=0.5).fit(bank)
    post = model.posterior(expert)
    assert post.power == 0.5
    plain = kb.KDBIRL(prior=kb.Uniform(-2, 2), features=kb.Identity(), bandwidth=(post.h, post.h_reward)).fit(bank)
    assert model.log_likelihood(expert, [[0.3]]) == plain.log_likelihood(expert, [[0.3]])


def rearranged(bank, seed):
    """The same tasks in another order and under other names, with the rows of their episodes interleaved."""
    rng, rows, episode = np.random.default_rng(seed), bank.demonstrations, bank.episode_index
    order, place = np.empty(bank.n_rows, dtype=int), rng.permutation(bank.n_tasks)
    order[np.argsort(rng.permutation(episode), kind="stable")] = np.argsort(episode, kind="stable")
    labels = [None if names is None else np.array(names) for names in (rows.state_labels, rows.action_labels)]
    states, actions = (
        values if values is None or names is None else names[values]
        for values, names in zip((rows.states, rows.actions), labels, strict=True)
    )
    return kb.TaskBank.from_arrays(
        states[order],
        None if actions is None else actions[order],
        tasks=place[bank.tasks[order]],
        rewards=bank.rewards[np.argsort(place)],
        episodes=rng.permutation(bank.n_episodes)[episode[order]],
    )


def places_and_moves():
    """A world of places, of which tasks with higher rewards prefer later ones."""
    rng, names = np.random.default_rng(3), np.array(["yard", "hall", "attic", "cellar", "roof"])
    tasks, rewards = np.repeat(np.arange(10), 60), np.linspace(-2, 2, 10)[:, None]
    states = np.clip(np.round(rewards[tasks, 0] + 2 + rng.normal(size=len(tasks))), 0, 4).astype(int)
    moves = np.array(["stay", "go"])[rng.integers(0, 2, len(tasks))]
    return kb.TaskBank.from_arrays(names[states], moves, tasks, rewards, episodes=np.arange(len(tasks)) // 6)


@pytest.mark.parametrize(
    ("bank", "choices"),
    [
        (shifted_normals(tasks=11, episodes=6, steps=10, q=2), {}),
        (shifted_normals(tasks=12, episodes=1, steps=60), {}),
        (places_and_moves(), {"features": None}),
    ],
    ids=["numbers", "single episodes", "labels"],
)
def test_the_order_of_tasks_and_the_names_of_things_do_not_matter(bank, choices, monkeypatch):
    monkeypatch.setattr("kdbirl.likelihood.bandwidths.ROWS_FOR_PAIRS", 300)  # the median rule samples rows, too
    found = [model_of(**choices).fit(one, seed=3).fitted.choices.for_rows(20) for one in (bank, rearranged(bank, 5))]
    first, second = ([*c.bandwidths.h, c.bandwidths.h_reward, c.power, c.loto.mean] for c in found)
    np.testing.assert_allclose(second, first, rtol=1e-9)  # sums over tasks round differently, by 1e-15 or so
    coverages = [choice.loto.calibration.coverage for choice in found]
    np.testing.assert_array_equal(coverages[1], coverages[0])


def test_another_seed_hardly_moves_the_posterior():
    """By less than a fifth of its sd over 8 seeds; the single best candidate of 40 plays moved it by 0.4."""
    bank = shifted_normals(tasks=21, episodes=20, repeat=5, seed=4)
    expert, training, rewards = bank.task(20).take(np.arange(40)), bank.select(range(20)), np.linspace(-2, 2, 401)
    moments = []
    for seed in range(8):
        model = model_of(bandwidth=kb.LotoSettings(h_factors=(0.25, 0.5))).fit(training, seed=seed)
        logs = model.fitted.choices.for_rows(40).power * model.log_likelihood(expert, rewards[:, None])
        weights = np.exp(logs - logsumexp(logs))
        moments.append((weights @ rewards, np.sqrt(weights @ rewards**2 - (weights @ rewards) ** 2)))
    means, sds = np.array(moments).T
    assert np.ptp(means) < 0.2 * sds.mean()


def test_a_smaller_part_of_the_other_tasks_does_not_depend_on_their_order():
    """Two tasks of one reward are told apart by their rows."""
    bank = shifted_normals(tasks=9)
    bank = kb.TaskBank(bank.demonstrations, bank.tasks, bank.rewards[[0, 1, 2, 3, 4, 4, 6, 7, 8]])
    order = np.random.default_rng(1).permutation(9)
    kept = []
    for one in (bank, bank.select(order)):
        fitted = model_of().fit(one).fitted
        whole = HeldOutTasks.of(fitted.ckde, fitted.choices.plays, np.arange(9), 20, 1, np.zeros((1, 1)))
        kept.append(whole.thinned(4, seed=2).kept)
    np.testing.assert_array_equal(kept[1], kept[0][np.ix_(order, order)])
    assert len(np.unique(kept[0], axis=0)) > 5  # each task has a part of its own


def test_an_objective_replaces_the_score():
    """An objective that likes sharp posteriors gets the sharpest candidate there is."""

    def sharp(truth, points, weights):
        mean = weights @ points
        return -float(weights @ ((points - mean) ** 2).sum(axis=1))

    settings = kb.LotoSettings(QUICK.h_factors, QUICK.h_reward_factors, QUICK.powers, objective=sharp)
    found = model_of(bandwidth=settings).fit(shifted_normals()).fitted.choices.for_rows(20)
    assert found.power == pytest.approx(1.0, rel=1e-3)  # nearly all of the weight is on one candidate
    assert found.bandwidths.h_reward == pytest.approx(found.loto.h_reward_candidates.min(), rel=1e-3)


def test_an_expert_longer_than_any_training_task_gets_a_lower_power_and_a_note():
    model = model_of().fit(shifted_normals(episodes=3))
    short, long = model.fitted.choices.for_rows(30), model.fitted.choices.for_rows(300)
    assert long.power == pytest.approx(short.power / 10)
    assert any("has only 30 rows to show, and the expert 300" in note for note in long.bandwidths.notes)


def test_notes_are_true_of_a_power_that_was_asked_for():
    bank = shifted_normals(episodes=3)
    post = model_of(power=1.0).fit(bank).posterior(kb.Demonstrations(np.zeros((150, 1))))
    assert post.power == post.settings["diagnosis"]["loto"]["power"] == 1.0
    assert not any("scaled" in note for note in post.settings["notes"])
    assert any("checked with 30, and the power is 1, as asked for" in note for note in post.settings["notes"])


def test_notes_of_an_objective_do_not_compare_it_with_the_score_of_the_prior():
    """An objective may be negative, as minus a loss is, where its best candidate is far better than the prior."""
    settings = kb.LotoSettings((0.25,), (0.25, 1.0), (1.0, 0.3), objective=lambda truth, points, weights: -1.0)
    notes = model_of(bandwidth=settings).fit(shifted_normals()).fitted.choices.for_rows(20).bandwidths.notes
    assert not any("prior" in note for note in notes)
    assert any("mean objective -1.00 +- 0.00" in note for note in notes)


@pytest.mark.parametrize(
    ("h_reward_factors", "powers", "edges"),
    [
        ((0.3,), (0.001, 0.002, 1.0), None),  # the largest power is 1 by nature: no edge
        ((0.3,), (1e-6, 2e-6), "power"),
        ((0.3, 16.0, 0.02), (0.3,), None),
        ((16.0, 8.0, 12.0), (0.3,), "h_reward"),
    ],
)
def test_the_edge_of_the_search_is_where_its_values_end_in_whatever_order_they_stand(h_reward_factors, powers, edges):
    settings = kb.LotoSettings((0.25,), h_reward_factors, powers)
    notes = model_of(bandwidth=settings).fit(shifted_normals()).fitted.choices.for_rows(20).bandwidths.notes
    found = [note for note in notes if "edge of the search" in note]
    assert found == ([] if edges is None else [f"loto: the best {edges} is at the edge of the search"])


def test_tasks_with_fewer_rows_than_others_are_counted():
    rng, sizes = np.random.default_rng(0), [40] * 8 + [15, 15]
    tasks = np.repeat(np.arange(10), sizes)
    rewards = np.linspace(-2, 2, 10)[:, None]
    bank = kb.TaskBank.from_arrays(rewards[tasks] + rng.normal(size=(len(tasks), 1)), None, tasks, rewards)
    notes = model_of().fit(bank).fitted.choices.for_rows(30).bandwidths.notes
    assert any("shows 30 rows (2 with fewer show all of theirs)" in note for note in notes)


def test_tasks_outside_the_prior_do_not_play():
    bank = shifted_normals(tasks=14)
    model = model_of(prior=kb.Uniform(0, 2)).fit(bank)
    played = model.fitted.choices.for_rows(20).loto.tasks
    assert played.tolist() == np.flatnonzero(bank.rewards[:, 0] >= 0).tolist()


def test_tasks_of_one_reward_are_left_out_together():
    bank = shifted_normals(tasks=6)
    twice = kb.TaskBank.from_tasks({f"{k}{copy}": (bank.task(k), bank.rewards[k]) for k in range(6) for copy in "ab"})
    model = model_of().fit(twice)
    held_out = HeldOutTasks.of(model.fitted.ckde, model.fitted.choices.plays, np.arange(12), 20, 1, np.zeros((1, 1)))
    assert (held_out.kept == 0).sum(axis=1).tolist() == [2] * 12


@pytest.mark.parametrize(
    ("rewards", "why"),
    [
        (np.eye(4), "4 training rewards are too few for 4 parameters"),
        (np.array([[a, b, c] for a in (0, 1) for b in (0, 1) for c in (0, 1)], float), "far outside the others"),
    ],
)
def test_where_leaving_out_says_nothing_the_median_rule_is_used_and_said(rewards, why):
    rng, tasks = np.random.default_rng(0), np.repeat(np.arange(len(rewards)), 20)
    bank = kb.TaskBank.from_arrays(rng.normal(size=(len(tasks), 2)), None, tasks, rewards)
    expert = kb.Demonstrations(rng.normal(size=(10, 2)))
    post = kb.KDBIRL(prior=kb.Uniform(0, 1), sampler=kb.NUTS(chains=1, draws=20, warmup=50)).fit(bank).posterior(expert)
    assert (post.bandwidth_rule, post.power) == ("median", 1.0)
    assert any(why in note for note in post.settings["notes"])
    with pytest.warns(CalibrationWarning, match=why):
        kb.KDBIRL(prior=kb.Uniform(0, 1), bandwidth="loto").fit(bank)


def test_distance_to_a_hull():
    square = np.array([[0.0, 0], [1, 0], [0, 1], [1, 1]])
    assert distance_to_hull(np.array([0.3, 0.6]), square) == pytest.approx(0, abs=1e-6)
    assert distance_to_hull(np.array([2.0, 0.5]), square) == pytest.approx(1, abs=1e-6)
    assert distance_to_hull(np.array([2.0, 2.0]), square) == pytest.approx(np.sqrt(2), abs=1e-6)


def test_random_rewards_do_not_all_extrapolate():
    rng = np.random.default_rng(0)
    assert not any(all_extrapolate(rng.uniform(-1, 1, (8, 3))) for _ in range(30))


def test_a_saved_model_chooses_the_same(tmp_path):
    bank = shifted_normals()
    model = model_of().fit(bank)
    model.save(tmp_path / "model")
    expert = bank.task(2).take(np.arange(30))
    first, second = model.posterior(expert), kb.load_model(tmp_path / "model").posterior(expert)
    assert np.array_equal(first.draws, second.draws)
    assert (second.bandwidth_rule, second.power) == ("loto", first.power)


@pytest.mark.parametrize("choice", [{"powers": ()}, {"h_factors": (0.0,)}, {"h_reward_factors": (np.nan,)}])
def test_settings_that_make_no_sense_are_refused(choice):
    with pytest.raises(InputError, match=f"LotoSettings\\({next(iter(choice))}="):
        kb.LotoSettings(**choice)


@pytest.mark.parametrize("n", [0, -3, 2.5, True, "20"])
def test_n_is_a_number_of_rows(n):
    with pytest.raises(InputError, match="should be the expert's number of rows"):
        model_of().fit(shifted_normals(), n=n)
