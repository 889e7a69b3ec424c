"""The pictures show the numbers of what they are given, for few and for many parameters."""

import re

import numpy as np
import pytest
from matplotlib.figure import Figure

import kdbirl as kb
from kdbirl.errors import InputError
from kdbirl.evaluation.policy_classes import policy_classes
from kdbirl.report.page.trust_charts import directions
from kdbirl.report.trust_plots import plot_identifiability, plot_policy_classes, plot_support
from kdbirl.trust.directions import readable_complement
from kdbirl.trust.identifiability import Identifiability, principal_contractions
from kdbirl.trust.support import Support


def identifiability(rank: int, q: int) -> Identifiability:
    informed = np.linalg.qr(np.random.default_rng(0).normal(size=(q, rank)))[0].T if rank else np.zeros((0, q))
    names = tuple(f"${j}" for j in range(q))
    strengths = np.linspace(2, 0.1, rank)
    return Identifiability(informed, readable_complement(informed), strengths, names, rank + 1, True)


def posterior(q: int) -> kb.Posterior:
    rng = np.random.default_rng(1)
    draws = rng.normal(size=(1, 500, q)) * np.linspace(0.2, 1, q)
    names = tuple(f"${j}" for j in range(q))
    return kb.Posterior(
        draws=draws, names=names, method="m", sampler="Grid", seed=0, prior_draws=rng.normal(size=(500, q))
    )


@pytest.mark.parametrize(("rank", "q"), [(0, 3), (2, 4), (4, 4), (3, 100), (60, 100)])
def test_identifiability_shows_strengths_then_contractions(rank, q):
    found = identifiability(rank, q)
    left, right = plot_identifiability(found).axes
    lengths = [bar.get_width() for bar in right.patches]
    np.testing.assert_allclose(lengths[: min(rank, 24)], found.strengths[:24])
    assert len([t for t in right.texts if "keeps the prior" in t.get_text()]) == len(lengths) - min(rank, 24)
    assert left.get_title(loc="left").startswith(f"{rank} of {q} directions informed")
    assert ("not shown" in left.get_title(loc="left")) == (q == 100)
    figure = plot_identifiability(found, posterior(q))
    if rank:
        post = posterior(q)
        values = principal_contractions(post.flat, post.prior_draws, found.informed)[0]
        shown = [bar.get_width() for bar in figure.axes[1].patches][: min(rank, 24)]
        np.testing.assert_allclose(shown, np.maximum(values[:24], 0))
    figure.canvas.draw()


def test_colours_have_the_signs_of_the_words_beside_them():
    axes = np.array([[-0.6, 0.8, 0.0], [0.8, 0.6, 0.0]])
    found = Identifiability(axes, np.eye(3)[2:], np.ones(2), ("a", "b", "c"), 3, True)
    left, _ = plot_identifiability(found).axes
    words = [label.get_text() for label in left.get_yticklabels()]
    assert words == ["0.6 a - 0.8 b", "0.8 a + 0.6 b", "c"]
    np.testing.assert_allclose(left.images[0].get_array(), [[0.6, -0.8, 0], [0.8, 0.6, 0], [0, 0, 1]])


def test_pictures_tell_what_the_priors_shape_moved():
    """Uninformed are c and a - b; the prior ties the second to the sum, and its variance fell by 96 %."""
    rng, axes = np.random.default_rng(3), np.array([[1.0, 1, 0], [0, 0, 2**0.5], [1, -1, 0]]) / 2**0.5
    found = Identifiability(axes[:1], axes[1:], np.ones(1), ("a", "b", "c"), 2, True, tied=(False, True))
    draws = rng.normal(size=(1, 2000, 3)) * [0.1, 1.0, 0.2] @ axes
    fields = {"method": "m", "sampler": "Grid", "seed": 0, "prior_draws": rng.normal(size=(4000, 3))}
    post = kb.Posterior(draws=draws, names=found.names, **fields)
    record = found.beside(post.flat, post.prior_draws).to_dict()
    assert record["uninformed_contractions"] == pytest.approx([0, 0.96], abs=0.01)
    assert "By the prior's shape alone, the variance of a - b (their difference) fell by 9" in record["sentence"]
    _, right = plot_identifiability(found, post).axes
    texts = [text.get_text() for text in right.texts]
    assert texts[0] == " keeps the prior"
    assert re.fullmatch(r" 9[67]%, by the prior's shape", texts[1])
    rows = directions(post, record).spec["data"]["values"]
    assert [row.get("words", "").split(",")[-1].strip() for row in rows] == [
        "",
        "keeps the prior",
        "by the prior's shape",
    ]
    assert rows[2]["share"] == pytest.approx(0.96, abs=0.01)
    old = {name: value for name, value in record.items() if name != "uninformed_contractions"}
    assert [row["share"] for row in directions(post, old).spec["data"]["values"][1:]] == [0, 0]


def support(n: int = 20, tasks: int = 4) -> Support:
    effective = np.linspace(0, 40, n)
    density = np.linspace(-9, 1, n)
    density[0] = -np.inf
    rows = np.array([3.0, *[50.0] * (tasks - 1)])
    few, nothing = effective < 5, np.zeros(n, dtype=bool)
    return Support(effective, density, few, nothing, nothing, tuple(f"t{k}" for k in range(tasks)), rows, 10)


@pytest.mark.parametrize("tasks", [4, 60])
def test_support_shows_every_row_and_every_task(tasks):
    found = support(tasks=tasks)
    left, right = plot_support(found).axes
    inside, outside = left.lines[:2]
    assert (len(inside.get_xdata()), len(outside.get_xdata())) == (17, 3)
    assert np.isfinite(outside.get_ydata()).all()
    assert sorted(bar.get_height() for bar in right.patches) == sorted(found.task_rows)
    assert len(right.get_xticklabels()) == (tasks if tasks <= 30 else 0)


def test_policy_classes_show_the_shares_and_the_rest():
    world = kb.Gridworld(size=3)
    classes = policy_classes(np.random.default_rng(2).normal(size=(60, 9)), world)
    axis = plot_policy_classes(classes).axes[0]
    lengths = [bar.get_width() for bar in axis.patches]
    np.testing.assert_allclose(lengths[:5], classes.shares)
    assert sum(lengths) == pytest.approx(1)
    assert axis.get_yticklabels()[-1].get_text() == f"{classes.n_classes - 5} other kinds"


def test_axes_of_the_users_own():
    axes = Figure().subplots(1, 2)
    assert plot_support(support(), axes=axes) is axes[0].get_figure()
    with pytest.raises(InputError, match="needs 2 Matplotlib axes; got 1"):
        plot_identifiability(identifiability(2, 4), axes=axes[0])
