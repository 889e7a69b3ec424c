"""The figures of Lemma 4.1 and Theorem 4.2 show the numbers they were given."""

import numpy as np
import pytest
from matplotlib.figure import Figure
from paper.theory_plots import plot_ckde_convergence, plot_contraction_draws, plot_posterior_contraction

from kdbirl.errors import InputError

WORLD = {"hand_noise": 0.25, "world_noise": 0.15, "low": 0.1, "high": 1.0}
SIZES = [64, 256, 1024]


def means(table):
    centre = table.mean(axis=0)
    return {"number": centre.tolist(), "low": (centre * 0.9).tolist(), "high": (centre * 1.1).tolist()}


def lemma():
    slope = {"number": -0.2, "low": -0.25, "high": -0.15}
    paths = {}
    for i, name in enumerate(("every-row", "root", "few-tasks", "paper-rule")):
        error = (i + 1) * np.array(SIZES) ** -0.25 * np.ones((3, 1))
        paths[name] = {
            "label": name,
            "error": error.tolist(),
            "mean": means(error),
            "slope": slope,
            "tail_slope": slope,
        }
    return {"m": SIZES, "rate": -0.25, "paths": paths}


def theorem():
    rng, paths = np.random.default_rng(0), {}
    for name in ("growing", "fixed-1024", "fixed-64", "paper-rule"):
        mass = rng.random((3, 3, 3))
        paths[name] = {
            "label": name,
            "m": SIZES,
            "mass": mass.tolist(),
            "mean_mass": [means(mass[:, :, r]) for r in range(3)],
            "distance": mass[:, :, 0].tolist(),
            "mean_distance": means(mass[:, :, 0]),
            "coverage": [0.9, 0.8, 0.7],
            "draws": rng.uniform(0.1, 1, (3, 50, 2)).tolist(),
        }
    return {"n": SIZES, "radii": [0.1, 0.2, 0.4], "shown_truth": [0.8, 0.4], "paths": paths}


def drawn(axis):
    """The curves with markers, by their colours."""
    return {line.get_color(): line.get_ydata() for line in axis.lines if line.get_marker() not in ("None", ".")}


def test_convergence_shows_every_path_and_the_theorys_slope():
    numbers = lemma()
    errors, rates = plot_ckde_convergence(numbers).axes
    curves = list(drawn(errors).values())
    assert len(curves) == 4
    for curve, path in zip(curves, numbers["paths"].values(), strict=True):
        assert curve == pytest.approx(path["mean"]["number"])
    theory = next(line for line in errors.lines if line.get_linestyle() == "--")
    assert np.polyfit(np.log(SIZES), np.log(theory.get_ydata()), 1)[0] == pytest.approx(-0.25)
    assert sum(line.get_marker() != "None" for line in rates.lines) == 8


def test_contraction_shows_the_smallest_ball():
    numbers = theorem()
    mass, _, coverage = plot_posterior_contraction(numbers).axes
    for curve, path in zip(drawn(mass).values(), numbers["paths"].values(), strict=True):
        assert curve == pytest.approx(path["mean_mass"][0]["number"])
    assert all(list(curve) == [0.9, 0.8, 0.7] for curve in drawn(coverage).values())


def test_the_wedge_is_the_ball():
    """Its edges, on the box, are at the L1 distance that it is drawn for."""
    from paper.theory_world import TwoTargets

    axis = plot_contraction_draws(theorem(), WORLD).axes[0]
    corners = axis.patches[0].get_xy()[1:3]
    assert TwoTargets(**WORLD).l1_distances(corners, np.array([0.8, 0.4])) == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("plot", "count"),
    [
        (lambda axes: plot_ckde_convergence(lemma(), axes), 2),
        (lambda axes: plot_posterior_contraction(theorem(), axes), 3),
        (lambda axes: plot_contraction_draws(theorem(), WORLD, axes=axes), 6),
    ],
)
def test_axes_of_the_user(plot, count):
    figure = Figure(layout="constrained")
    assert plot(figure.subplots(1, count)) is figure
    with pytest.raises(InputError, match=f"{count} Matplotlib axes are needed, 1 were given"):
        plot(Figure().subplots())
