"""The picture of a patient's stay shows the rows that it was given."""

import matplotlib.pyplot as plt
import numpy as np
import pytest

import kdbirl as kb
from kdbirl.errors import InputError
from kdbirl.report.world_plots import plot_patient

CHART = np.arange(20.0).reshape(5, 4)
ROWS = kb.Demonstrations(
    CHART,
    np.array([0, 7, 24, 3, 11]),
    episodes=np.array([4, 4, 4, 9, 9]),
    state_names=("SOFA", "age", "MeanBP", "lactate"),
    n_actions=25,
)


@pytest.fixture(autouse=True)
def _closed():
    yield
    plt.close("all")


def test_lines_are_the_rows_of_one_episode():
    panes = plot_patient({"one": ROWS, "$other": ROWS}, covariates=("MeanBP", "SOFA"), episode=1).axes
    assert [pane.get_title(loc="left") for pane in panes] == ["MeanBP", "SOFA", "fluid level", "vasopressor level"]
    np.testing.assert_array_equal(panes[0].lines[1].get_xydata(), [[0, 14], [4, 18]])
    np.testing.assert_array_equal(panes[1].lines[0].get_ydata(), [12, 16])
    np.testing.assert_array_equal(panes[2].patches[0].get_data().values, [0, 2])
    np.testing.assert_array_equal(panes[3].patches[0].get_data().values, [3, 1])
    np.testing.assert_array_equal(panes[3].patches[0].get_data().edges, [0, 4, 8])
    assert [text.get_text() for text in panes[0].get_legend().get_texts()] == ["one", "$other"]


def test_axes_may_be_given():
    figure, panes = plt.subplots(3)
    assert plot_patient({"one": ROWS}, covariates=("SOFA",), axes=panes) is figure
    with pytest.raises(InputError, match="needs 5 axes, not 3"):
        plot_patient({"one": ROWS}, axes=panes)


def test_rows_of_another_kind_are_refused():
    with pytest.raises(InputError, match="needs the columns heart rate, which the rows of 'one' do not have"):
        plot_patient({"one": ROWS}, covariates=("heart rate",))
    with pytest.raises(InputError, match="episode=2 should be from 0 to 1: 'one' has 2 episodes"):
        plot_patient({"one": ROWS}, episode=2)
    with pytest.raises(InputError, match=r"treatments as codes 5 \* fluid \+ vasopressor"):
        plot_patient({"one": kb.Demonstrations(CHART, state_names=ROWS.state_names)})
