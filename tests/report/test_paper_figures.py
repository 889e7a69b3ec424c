"""The paper's figures drawn again: what stands in them, from constructed numbers."""

import numpy as np
import pytest
from paper.fig1 import LOOKS, density, plot_state_marginals
from paper.fig2 import levels_of, plot_weights
from paper.fig3 import plot_cell_maps
from paper.fig4 import plot_evd_against_rows, plot_weight_marginals
from paper.limits import plot_limits


def test_densities_integrate_to_one_and_stay_in_the_box():
    rng, grid = np.random.default_rng(0), np.linspace(-1, 2, 30_001)
    for values in (rng.random(2000), rng.beta(0.5, 8, 2000)):
        height = density(values, grid, unit=True)
        assert np.trapezoid(height, grid) == pytest.approx(1, abs=0.01)
        assert not height[(grid < 0) | (grid > 1)].any()
    free = density(rng.normal(0.3, 0.2, 2000), grid, unit=False)
    assert np.trapezoid(free, grid) == pytest.approx(1, abs=0.01)


def test_a_panel_for_each_state_as_the_grid_is(tmp_path):
    rng = np.random.default_rng(0)
    draws = {method: rng.random((200, 4)) for method in LOOKS}
    figure = plot_state_marginals(draws, np.array([0.0, 0, 0, 1]))
    titles = [panel.get_title(loc="left") for panel in figure.axes]
    assert titles == ["state [0, 1]", "state [1, 1]", "state [0, 0]", "state [1, 0]"]
    dashed = figure.axes[1].get_lines()[-1]
    assert set(dashed.get_xdata()) == {1.0}
    figure.savefig(tmp_path / "x.png")


def test_four_maps(tmp_path):
    maps = {"truth": np.eye(25)[24], "mean": np.full(25, 0.5), "training": np.full(25, 0.04), "expert": np.eye(25)[24]}
    figure = plot_cell_maps(maps)
    images = [panel.get_images()[0] for panel in figure.axes if panel.get_images()]
    assert len(images) == 4
    assert [image.get_clim()[1] for image in images] == [1, 1, 1, 1]
    assert images[0].get_array()[4, 4] == 1
    figure.savefig(tmp_path / "x.png")


def test_joint_densities_with_their_priors(tmp_path):
    rng = np.random.default_rng(0)
    part = {"truth_map": np.arange(100.0), "mean_map": np.arange(100.0), "prior": "truncated-normal:0,1,-1,1"}
    shown = [part | {"truth": truth, "draws": rng.uniform(-1, 1, (500, 2))} for truth in ([-1.0, 1.0], [1.0, 1.0])]
    figure = plot_weights(shown)
    assert sum(bool(panel.get_images()) for panel in figure.axes) == 4
    figure.savefig(tmp_path / "x.png")


def test_contours_hold_their_share():
    x = np.linspace(-4, 4, 200)
    height = np.exp(-0.5 * (x[:, None] ** 2 + x[None] ** 2))
    low, high = levels_of(height)
    assert height[height > low].sum() / height.sum() == pytest.approx(0.9, abs=0.01)
    assert height[height > high].sum() / height.sum() == pytest.approx(0.5, abs=0.01)


def test_limits_show_every_table_and_what_was_refused(tmp_path):
    seeds = range(3)
    tables = {
        "quality": [
            {"seed": s, "noise": x, "log_likelihood": -x - s, "distance": x + s} for s in seeds for x in (0.0, 0.5)
        ],
        "features": [{"seed": s, "features": f, "distance": 0.1 * s} for s in seeds for f in ("x, y", "x only")],
        "choices": [
            {"seed": s, "kernel": k, "distance_measure": "euclidean", "distance": None if k == "uniform" else 0.5}
            for s in seeds
            for k in ("gaussian", "uniform")
        ],
        "cost": [
            {"seed": s, "parameters": q, "n": n, "operations": float(q * n)}
            for s in seeds
            for q, n in ((4, 100), (9, 100), (9, 50))
        ],
    }
    figure = plot_limits(tables)
    assert len(figure.axes) == 6
    assert [text.get_text() for text in figure.axes[3].texts] == ["refused"]
    figure.savefig(tmp_path / "x.png")
    for panel in figure.axes[4:]:  # less than a decade: powers of ten alone would leave the axis bare
        low, high = panel.get_ylim()
        assert len([tick for tick in panel.get_yticks() if low <= tick <= high]) >= 2


def test_evd_is_drawn_at_the_sizes_that_were_measured(tmp_path):
    rows = [
        {"world": "sepsis", "star": star, "seed": seed, "n": n, "method": method, "evd": 0.1, "prior_evd": 1.0}
        for star in range(2)
        for seed in range(2)
        for n in (10, 100, 1000)
        for method in ("kdbirl", "avril", "avril-prior")
    ]
    figure = plot_evd_against_rows(rows, [[0.5, -0.25, 1.0], [0.0, 0.0, 1.0]])
    low, high = figure.axes[0].get_xlim()
    assert 5 < low < 10 < 1000 < high < 2000
    assert [label.get_text() for label in figure.axes[0].get_xticklabels()] == ["10", "100", "1,000"]
    assert "\u22120.25" in figure.axes[0].get_title(loc="left")
    figure.savefig(tmp_path / "x.png")


def test_marginals_of_weights_have_a_legend(tmp_path):
    marginal = {"edges": [-1.0, 0.0, 1.0], "posterior": [0.2, 0.8], "prior": [0.5, 0.5]}
    figure = plot_weight_marginals({"sepsis": [marginal] * 3}, [0.5, 0.1, -0.3], ["a", "b", "c"])
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["KD-BIRL's posterior", "prior", "$w^\\star$"]
    figure.savefig(tmp_path / "x.png")
