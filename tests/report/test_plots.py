"""Figures: what is drawn is what the posterior says, for any number of parameters, and nothing global changes."""

import inspect
import io
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure

import kdbirl as kb
from kdbirl.errors import InputError
from kdbirl.posterior.result import Posterior
from kdbirl.report.panels import POSTERIOR, TRUE, shortened
from kdbirl.report.plots import plot_intervals, plot_marginals, plot_pairs, plot_trace

EVERY = [plot_marginals, plot_intervals, plot_pairs, plot_trace]


def make(q: int = 3, chains: int = 4, length: int = 200, **changes: Any) -> Posterior:
    rng = np.random.default_rng(q)
    fields: dict[str, Any] = {
        "draws": rng.normal(size=(chains, length, q)) * np.linspace(0.1, 1, q),
        "names": tuple(f"w{j}" for j in range(q)),
        "method": "KDBIRL",
        "sampler": "NUTS",
        "seed": 0,
        "prior_draws": rng.normal(size=(300, q)),
    }
    return Posterior(**(fields | changes))


def drawn(figure: Figure) -> bytes:
    """The figure as PNG: text that cannot be set or numbers that cannot be placed fail here."""
    stream = io.BytesIO()
    figure.savefig(stream, format="png", dpi=40)
    return stream.getvalue()


def visible(figure: Figure) -> list[Axes]:
    return [axis for axis in figure.axes if axis.axison]


def titles(figure: Figure) -> list[str]:
    return [axis.get_title(loc="left") for axis in visible(figure)]


@pytest.mark.parametrize("plot", EVERY)
@pytest.mark.parametrize("q", [1, 2, 5, 100])
def test_any_number_of_parameters(plot: Callable[..., Figure], q: int) -> None:
    figure = plot(make(q, length=50), true=np.zeros(q))
    assert isinstance(figure, Figure)
    assert drawn(figure).startswith(b"\x89PNG")
    assert max(figure.get_size_inches()) <= 20


@pytest.mark.parametrize("plot", EVERY)
@pytest.mark.parametrize(
    "posterior",
    [
        make(2, length=1, chains=1),
        make(2, length=2, chains=1),
        make(3, prior_draws=np.zeros((0, 3)), sampler="Grid", chains=1),
        make(2, draws=np.full((2, 50, 2), 0.25)),
        make(2, draws=np.zeros((2, 50, 2))),
        make(2, draws=np.full((2, 50, 2), 1e6) + 1e-10 * np.random.default_rng(0).normal(size=(2, 50, 2))),
        make(2, draws=1e12 * np.random.default_rng(0).normal(size=(2, 50, 2))),
        make(2, draws=1e-12 * np.random.default_rng(0).normal(size=(2, 50, 2))),
        make(2, draws=np.random.default_rng(0).integers(0, 2, size=(2, 50, 2))),
        make(2, chains=11, length=20),
        make(3, names=("$\\frac{$", "größe <script> & 'x' \"y\"", "a very long name " * 20)),
        make(3, names=("a\nb", "", "_hidden")),
        make(2, sample_stats={"diverging": np.random.default_rng(0).random((4, 200)) < 0.1}),
    ],
)
def test_any_posterior(plot: Callable[..., Figure], posterior: Posterior) -> None:
    assert drawn(plot(posterior)).startswith(b"\x89PNG")


def test_marginals_show_posterior_prior_interval_and_true_value() -> None:
    posterior = make(3)
    figure = plot_marginals(posterior, true=[0.1, 0.2, 0.3])
    assert titles(figure) == ["w0", "w1", "w2"]
    axis = figure.axes[1]
    low, high = np.quantile(posterior.flat[:, 1], [0.05, 0.95])
    bars = [line for line in axis.lines if line.get_color() == POSTERIOR and len(line.get_xdata()) == 2]
    np.testing.assert_allclose(bars[0].get_xdata(), [low, high])
    assert [line.get_xdata()[0] for line in axis.lines if line.get_color() == TRUE] == [0.2]
    areas = [patch for patch in axis.patches if patch.get_fill()]
    assert len(areas) == 2  # prior and posterior
    density, edges, _ = areas[1].get_data()
    assert np.sum(density * np.diff(edges)) == pytest.approx(1)
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [
        "posterior",
        "median and 90 %",
        "prior",
        "true value",
    ]


def test_the_prior_can_be_left_out_or_be_missing() -> None:
    for figure in (plot_marginals(make(), prior=False), plot_marginals(make(prior_draws=np.zeros((0, 3))))):
        assert len([patch for patch in figure.axes[0].patches if patch.get_fill()]) == 1
        assert "prior" not in [text.get_text() for text in figure.legends[0].get_texts()]


def test_the_true_value_is_always_in_sight() -> None:
    figure = plot_marginals(make(), true={"w1": 50.0})
    low, high = figure.axes[1].get_xlim()
    assert low < 50 < high
    assert not [line for line in figure.axes[0].lines if line.get_color() == TRUE]


def test_intervals_are_the_quantiles() -> None:
    posterior = make(30)
    axis = plot_intervals(posterior).axes[0]
    assert [label.get_text() for label in axis.get_yticklabels()] == list(posterior.names)
    lines = [c for c in axis.collections if isinstance(c, LineCollection)]
    widest = np.array([segment[:, 0] for segment in lines[1].get_segments()])
    np.testing.assert_allclose(widest.T, np.quantile(posterior.flat, [0.05, 0.95], axis=0))


def test_pairs_are_a_lower_triangle_with_names_at_the_edge() -> None:
    figure = plot_pairs(make(3), true=[0, 0, 0])
    assert len(visible(figure)) == 6
    assert [axis.get_xlabel() for axis in figure.axes[-3:]] == ["w0", "w1", "w2"]
    assert [figure.axes[i].get_ylabel() for i in (0, 3, 6)] == ["", "w1", "w2"]


def test_pairs_and_trace_mark_divergent_draws() -> None:
    diverging = np.zeros((4, 200), bool)
    diverging[1, [5, 9]] = True
    posterior = make(2, sample_stats={"diverging": diverging})
    marks = [line for line in plot_pairs(posterior).axes[2].lines if line.get_marker() == "x"]
    np.testing.assert_array_equal(marks[0].get_xdata(), posterior.draws[1, [5, 9], 0])
    ticks = [line for line in plot_trace(posterior).axes[0].lines if line.get_marker() == "|"]
    np.testing.assert_array_equal(ticks[0].get_xdata(), [5, 9])


def test_trace_shows_every_chain_and_what_was_found() -> None:
    posterior = make(2)
    left = plot_trace(posterior).axes[0]
    chains = [line.get_ydata() for line in left.lines if len(line.get_xdata()) == 200]
    np.testing.assert_array_equal(chains, posterior.draws[:, :, 0])
    assert left.get_title(loc="left").startswith(f"w0    R-hat {posterior.convergence.r_hat[0]:.3f}, effective draws")


def test_independent_draws_are_not_joined() -> None:
    line = plot_trace(make(1, sampler="Grid", chains=1)).axes[0].lines[0]
    assert line.get_linestyle() == "None"


def test_with_many_parameters_the_ones_that_matter_are_shown_and_said() -> None:
    posterior = make(100)
    figure = plot_marginals(posterior)
    ratio = posterior.prior_draws.std(axis=0) / posterior.flat.std(axis=0)
    narrowest = sorted(np.argsort(-ratio)[:24])
    assert titles(figure) == [f"w{j}" for j in narrowest]
    assert figure.get_supxlabel() == "24 of 100 parameters: those that the data narrowed most"
    draws = np.random.default_rng(0).normal(size=(4, 200, 100))
    draws[0, :, 77] += 5
    draws[:, :, 55] = 1
    shown = titles(plot_trace(make(100, draws=draws)))
    assert any(title.startswith("w77 ") for title in shown)
    assert "w55" in shown  # a parameter that never moves has no R-hat, and is the first to be looked at


@pytest.mark.parametrize("plot", EVERY)
def test_chosen_parameters_in_the_chosen_order(plot: Callable[..., Figure]) -> None:
    figure = plot(make(100, length=50), parameters=["w70", "w3"])
    if plot is plot_pairs:
        names = [axis.get_xlabel() for axis in figure.axes[-2:]]
    elif plot is plot_intervals:
        names = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    else:
        names = [title.split()[0] for title in titles(figure)]
    assert names == ["w70", "w3"]
    assert figure.get_supxlabel() == ""


@pytest.mark.parametrize(
    ("plot", "shape"), [(plot_marginals, (1, 3)), (plot_intervals, (1, 1)), (plot_pairs, (3, 3)), (plot_trace, (3, 2))]
)
def test_own_axes_are_drawn_on(plot: Callable[..., Figure], shape: tuple[int, int]) -> None:
    figure = Figure()
    axes = figure.subplots(*shape, squeeze=False)
    assert plot(make(3), axes=axes) is figure
    assert len(figure.axes) == shape[0] * shape[1]
    assert axes[-1, 0].lines or axes[-1, 0].collections
    assert drawn(figure)


def test_one_axes_for_one_parameter_and_subfigures() -> None:
    figure = Figure()
    left, right = figure.subfigures(1, 2)
    assert plot_marginals(make(1), axes=left.subplots()) is figure
    assert plot_intervals(make(1), axes=right.subplots()) is figure
    assert drawn(figure)


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"parameters": ["w9"]}, r"parameters: there is no reward parameter 'w9'\. Did you mean"),
        ({"parameters": []}, "parameters: the list is empty"),
        ({"true": [1.0]}, r"true: expected 3 values, one for each parameter, got shape \(1,\)"),
        ({"true": {"x": 1.0}}, "true: there is no reward parameter 'x'"),
    ],
)
@pytest.mark.parametrize("plot", EVERY)
def test_wrong_arguments_get_a_sentence(plot: Callable[..., Figure], keywords: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        plot(make(3), **keywords)


def test_too_few_axes_get_a_sentence() -> None:
    with pytest.raises(InputError, match="axes: this figure needs 3 axes, an array of 1 x 3; got 1"):
        plot_marginals(make(3), axes=Figure().subplots())
    with pytest.raises(InputError, match="axes: this figure needs 9 axes"):
        plot_pairs(make(3), axes=[1] * 9)


def test_long_names_keep_both_ends() -> None:
    assert shortened("w1") == "w1"
    assert shortened("abcdefghij", 8) == "abcd…hij"
    assert len(shortened("x" * 100)) == 26


def test_pyplot_stays_out_of_it() -> None:
    program = """
import sys
import numpy as np
from kdbirl.posterior.result import Posterior
from kdbirl.report.plots import plot_marginals
plot_marginals(Posterior(np.random.default_rng(0).normal(size=(1, 50, 1)), ("w",), "KDBIRL", "Grid", 0))
print("matplotlib.pyplot" in sys.modules)
"""
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout == "False\n"


@pytest.mark.parametrize("name", [name for name in kb._MODULE_OF if name.startswith("plot_")])
def test_every_public_figure_is_a_function_that_takes_axes_and_gives_a_figure(name):
    signature = inspect.signature(getattr(kb, name))
    assert signature.parameters["axes"].default is None
    assert signature.return_annotation in (Figure, "Figure")
