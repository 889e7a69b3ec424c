"""The pictures show what they say, for a grid with walls, both kinds of reward, and axes of the user's own."""

import numpy as np
import pytest
from matplotlib.figure import Figure

import kdbirl as kb
from kdbirl.errors import InputError
from kdbirl.report.world_plots import plot_occupancy, plot_policy, plot_reward_maps


def posterior(names: tuple[str, ...]) -> kb.Posterior:
    draws = np.random.default_rng(0).normal(size=(2, 50, len(names)))
    return kb.Posterior(draws=draws, names=names, method="KDBIRL", sampler="Grid", seed=0)


def image(figure: Figure, panel: int) -> np.ndarray:
    return np.asarray(figure.axes[panel].images[0].get_array())


def test_reward_maps_show_truth_mean_and_sd_with_y_upwards():
    world = kb.Gridworld(size=3, walls=[4])
    post = posterior(world.feature_names)
    truth = np.arange(9.0)
    figure = plot_reward_maps(post, world, true=truth)
    shown = [axes for axes in figure.axes if axes.images]
    assert [axes.get_title(loc="left") for axes in shown] == ["truth", "posterior mean", "posterior sd"]
    np.testing.assert_allclose(np.asarray(shown[0].images[0].get_array()), truth.reshape(3, 3))
    np.testing.assert_allclose(np.asarray(shown[1].images[0].get_array()), post.mean().reshape(3, 3))
    np.testing.assert_allclose(np.asarray(shown[2].images[0].get_array()), post.flat.std(axis=0).reshape(3, 3))
    assert shown[0].images[0].origin == "lower"


def test_weights_are_projected_on_the_grid():
    world = kb.Gridworld(size=4, features="xy")
    post = posterior(world.feature_names)
    cells = np.stack([np.arange(16) % 4, np.arange(16) // 4], axis=1)
    np.testing.assert_allclose(image(plot_reward_maps(post, world), 0), (cells @ post.mean()).reshape(4, 4))


def test_occupancy_and_policy():
    world = kb.Gridworld(size=3)
    policy = kb.plan(world, np.eye(9)[8])
    demos = kb.rollout(world, policy, episodes=10, horizon=6, seed=0)
    share = image(plot_occupancy(demos, world), 0)
    assert share.sum() == pytest.approx(1)
    assert share[2, 2] == share.max()
    axes = Figure().subplots()
    assert plot_policy(policy, world, reward=np.eye(9)[8], axes=axes) is axes.get_figure()
    with pytest.raises(InputError, match="axes"):
        plot_reward_maps(posterior(world.feature_names), world, axes=[axes])
