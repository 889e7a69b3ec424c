"""The pages of a comparison and of a reproduction in a real browser: they look as reports do, and run nothing."""

import json

import matplotlib.pyplot as plt
import pytest
from paper.directory import write_page
from paper.ledger import Claim, update_ledger

from kdbirl.evaluation.comparison_table import SHOWN
from kdbirl.report.comparison_page import comparison_page

from .pages import HOSTILE
from .test_report_in_browser import violations


@pytest.fixture(scope="module")
def comparison(tmp_path_factory):
    row = {"method": "kdbirl", "n": 10} | dict.fromkeys(SHOWN, 0.5) | {f"{name}_error": 0.1 for name in SHOWN}
    rows = [row, row | {"method": HOSTILE[0]}]
    methods = {"kdbirl": {"label": "KD-BIRL", "kind": "posterior", "sees": ["rows", HOSTILE[2]], "settings": "loto"}}
    budget = {"draws": 1000, "steps": 200}
    configuration = {"env": HOSTILE[1], "methods": methods, "rows": [10, 50], "seeds": 2, "budget": budget}
    figure, axes = plt.subplots()
    axes.plot([1, 2])
    path = tmp_path_factory.mktemp("comparison") / "comparison.html"
    path.write_text(comparison_page(figure, rows, {"kdbirl": "KD-BIRL"}, configuration, 2), encoding="utf-8")
    plt.close(figure)
    return path


@pytest.fixture(scope="module")
def reproduction(tmp_path_factory):
    place = tmp_path_factory.mktemp("reproduction")
    (place / "fig1").mkdir()
    manifest = {"title": HOSTILE[0], "part": "fig1-ours", "seeds": [0, 1], "outputs": {}, "configuration": {}}
    (place / "fig1" / "manifest-ours.json").write_text(json.dumps(manifest))
    verdicts = ("holds", "does not hold", "cannot be decided", "not decided (quick)")
    claims = [
        Claim("fig1", f"c{i}", "ours", HOSTILE[i], "Section 6", "a size", 0.1, 0.0, 0.2, 12, verdict, HOSTILE[1])
        for i, verdict in enumerate(verdicts)
    ]
    update_ledger(place / "claims.csv", claims)
    return write_page(place, ["fig1"])


@pytest.mark.parametrize("name", ["comparison", "reproduction"])
@pytest.mark.parametrize(("width", "scheme"), [(390, "light"), (390, "dark"), (1280, "light"), (1280, "dark")])
def test_it_is_readable_everywhere_and_runs_nothing(name, width, scheme, request, opened, axe):
    path = request.getfixturevalue(name)
    watched = opened(width=width, scheme=scheme)
    watched.page.goto(path.as_uri())
    assert watched.page.evaluate("document.documentElement.scrollWidth") <= width
    assert violations(watched.page, axe) == []
    assert HOSTILE[0] in watched.page.locator("main").inner_text()
    command = watched.page.locator("pre code").inner_text()
    expected = {"comparison": "--rows=10,50 \\\n    --draws=1000", "reproduction": "python -m paper fig1"}
    assert expected[name] in command
    assert watched.page.evaluate("window.hacked") is None
    assert watched.requests == [path.as_uri()]
    assert watched.problems == []
