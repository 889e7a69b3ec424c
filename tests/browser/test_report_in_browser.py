"""The report in a real browser: opened from disk with the network cut."""

import numpy as np
import pytest

from .pages import HOSTILE, SECTIONS, bounded_run, full_run, posterior, write

SERIOUS = ("serious", "critical")


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    return write(tmp_path_factory.mktemp("report"), full_run())


def marks(page, chart):
    """Everything drawn in a chart, as text."""
    return page.locator(f"#{chart} svg").inner_html()


def drag(page, chart, start, end):
    """Drag across a chart, from one share of its width to another."""
    place = page.locator(f"#{chart}")
    place.scroll_into_view_if_needed()
    box = place.bounding_box()
    y = box["y"] + 40
    page.mouse.move(box["x"] + start * box["width"], y)
    page.mouse.down()
    for share in (0.5, 1.0):
        page.mouse.move(box["x"] + (start + share * (end - start)) * box["width"], y + 30 * share)
    page.mouse.up()


def number(page, parameter, name):
    return float(page.locator(f'output[data-parameter="{parameter}"][data-number="{name}"]').inner_text())


def violations(page, axe):
    page.evaluate(axe)
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']}).then(r => r.violations)")
    return [(v["id"], v["impact"], [n["html"][:120] for n in v["nodes"][:3]]) for v in found if v["impact"] in SERIOUS]


def test_it_opens_from_disk_without_a_network(report, opened):
    watched = opened()
    page = watched.open(report)
    assert [heading.inner_text() for heading in page.locator("main h2").all()] == SECTIONS
    assert page.locator(".chart:visible").count() >= 10
    for place in page.locator(".chart:visible").all():
        assert len(place.get_attribute("aria-label")) > 10
        assert place.locator("svg").count() == 1
    page.locator("#sampler summary").click()
    page.wait_for_selector("#sampler .chart svg")
    assert watched.requests == [report.as_uri()]
    assert watched.problems == []


def test_a_brush_changes_the_linked_charts_and_the_numbers(report, opened):
    watched = opened()
    page = watched.open(report)
    before = {chart: marks(page, chart) for chart in ("marginal-1", "intervals", "pair")}
    mean, other = number(page, 0, "mean"), number(page, 1, "mean")
    drag(page, "marginal-0", 0.6, 0.85)
    page.wait_for_selector("#status.on")
    assert all(marks(page, chart) != drawn for chart, drawn in before.items())
    assert number(page, 0, "mean") > mean + 0.5
    assert number(page, 1, "mean") > other + 0.3  # correlated with the first by construction
    low, high = (
        float(page.locator(f'input[data-parameter="0"][data-end="{end}"]').input_value()) for end in ("low", "high")
    )
    assert low <= number(page, 0, "q05") <= number(page, 0, "q95") <= high
    page.keyboard.press("Escape")
    page.wait_for_selector("#status:not(.on)", state="attached")
    assert number(page, 0, "mean") == mean
    page.wait_for_function("document.querySelector('#marginal-1 svg').innerHTML.length > 0")
    assert watched.problems == []


def test_the_scatter_brushes_both_of_its_parameters(report, opened):
    watched = opened()
    page = watched.open(report)
    drag(page, "pair", 0.4, 0.7)
    page.wait_for_selector("#status.on")
    assert " from " in page.locator("#status output").inner_text()
    filled = [box.input_value() for box in page.locator(".range input").all()]
    assert sum(value != "" for value in filled) == 4
    page.get_by_role("button", name="Clear the brush").click()
    page.wait_for_selector("#status:not(.on)", state="attached")
    assert watched.problems == []


def test_everything_can_be_done_with_the_keyboard(report, opened):
    watched = opened()
    page = watched.open(report)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    assert page.evaluate("location.hash") == "#main"
    page.locator('input[data-parameter="0"][data-end="low"]').focus()
    page.keyboard.type("0.5")
    page.keyboard.press("Tab")
    page.wait_for_selector("#status.on")
    assert number(page, 0, "q05") >= 0.5
    drawn = marks(page, "pair")
    page.locator("#pair-x").focus()
    page.keyboard.press("ArrowDown")
    page.wait_for_function("drawn => document.querySelector('#pair svg')?.innerHTML !== drawn", arg=drawn)
    page.locator("#sampler summary").focus()
    page.keyboard.press("Enter")
    assert page.locator("#sampler details").get_attribute("open") is not None
    assert watched.problems == []


def end(page, parameter, name):
    return page.locator(f'input[data-parameter="{parameter}"][data-end="{name}"]')


def test_typed_ranges_say_what_they_do(report, opened):
    """One end leaves the other open; an empty range is refused; the brush stays within its axis; Escape clears all."""
    watched = opened()
    page = watched.open(report)
    end(page, 0, "low").fill("0.25")
    end(page, 0, "low").press("Enter")
    page.wait_for_selector("#status.on")
    assert "w_x at least 0.25" in page.locator("#status output").inner_text()
    assert end(page, 0, "high").input_value() == ""
    kept = page.locator("#status output").inner_text()
    end(page, 0, "high").fill("-3")
    end(page, 0, "high").press("Enter")
    assert page.evaluate("document.querySelector('input:invalid').validationMessage") == "From 0.25 to -3 is no range."
    assert page.locator("#status output").inner_text() == kept
    end(page, 0, "high").fill("1000")
    end(page, 0, "high").press("Enter")
    page.wait_for_function("() => document.querySelector('#status output').textContent.includes('to 1000')")
    brush, chart = (page.locator(f"#marginal-0 {place}").bounding_box() for place in (".brush_brush path", "svg"))
    assert brush["x"] + brush["width"] <= chart["x"] + chart["width"] + 1
    end(page, 0, "high").focus()
    page.keyboard.press("Escape")
    page.wait_for_selector("#status:not(.on)", state="attached")
    assert [box.input_value() for box in page.locator(".range input").all()] == [""] * 6
    assert watched.problems == []


def test_ranges_can_be_typed_on_a_phone_without_scrolling_sideways(report, opened):
    page = opened(width=360, height=740).open(report)
    for box in page.locator(".range input").all():
        place = box.bounding_box()
        assert place["x"] >= 0
        assert place["x"] + place["width"] <= 360
        assert place["width"] > 60


def test_no_bin_reaches_beyond_the_bounds_of_the_prior():
    import json
    import re

    from kdbirl.report.html import report_page

    text = report_page(bounded_run())
    content = json.loads(re.search(r'id="content">(.*?)</script>', text, flags=re.DOTALL)[1])
    for chart in ("marginal-0", "marginal-1"):
        bins = content["charts"][chart]["bins"]
        assert (bins[0]["a"], bins[-1]["b"]) == (0.0, 1.0)


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_accessibility_checker_finds_nothing_serious(scheme, width, report, opened, axe):
    page = opened(scheme=scheme, width=width).open(report)
    page.evaluate("document.querySelectorAll('details').forEach(fold => fold.open = true)")
    page.wait_for_selector("#sampler .chart svg")
    assert violations(page, axe) == []


def test_it_fits_a_phone_and_paper(report, opened):
    watched = opened(width=360, height=740)
    page = watched.open(report)
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    page.emulate_media(media="print")
    assert not page.locator("nav").is_visible()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert len(page.pdf()) > 10_000
    assert watched.problems == []


def test_hostile_names_are_text_and_run_nothing(tmp_path, opened):
    names = {name: ("red", name) for name in HOSTILE}
    settings = {"prior": HOSTILE[0], "features": HOSTILE[1], "notes": list(HOSTILE)}
    run = full_run(
        HOSTILE,
        HOSTILE[0],
        feature_names=HOSTILE[:2],
        task_names=(*HOSTILE, "f"),
        settings=settings,
        cards=names,
    )
    path = write(tmp_path, run)
    watched = opened(width=390)
    watched.open(path)
    assert watched.page.evaluate("document.documentElement.scrollWidth") <= 390
    watched = opened()
    page = watched.open(path)
    shown = page.locator("body").inner_text()
    for name in HOSTILE:
        assert name in shown
    page.evaluate("document.querySelectorAll('details').forEach(fold => fold.open = true)")
    drag(page, "marginal-1", 0.3, 0.8)
    page.wait_for_selector("#status.on")
    page.locator("#task-influence svg path").first.hover(force=True)
    for parameter in range(5):
        page.locator("#pair-y").select_option(str(parameter))
    assert page.evaluate("window.hacked") is None
    assert page.locator("main script, main img").count() == 0
    assert watched.requests == [path.as_uri()]
    assert watched.problems == []


def test_the_policy_lets_no_other_script_run(report, opened):
    """Were something ever not escaped, it still could do nothing."""
    page = opened().open(report)
    page.evaluate(
        """() => { document.body.insertAdjacentHTML("beforeend", "<img src=x onerror='window.hacked = 1'>");
        const script = document.createElement("script"); script.textContent = "window.hacked = 2";
        document.body.append(script); }"""
    )
    page.wait_for_timeout(100)
    assert page.evaluate("window.hacked") is None


def test_ten_thousand_draws_of_ten_parameters_load_fast(tmp_path, opened):
    """Under 5 MB and two seconds; the browser's own processor time, since a loaded machine's clock says little."""
    names = [f"w_{j}" for j in range(10)]
    path = write(tmp_path, full_run(names, draws=10_000))
    assert path.stat().st_size < 5e6
    watched = opened()
    session = watched.page.context.new_cdp_session(watched.page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})
    watched.open(path)
    spent = {entry["name"]: entry["value"] for entry in session.send("Performance.getMetrics")["metrics"]}
    assert spent["TaskDuration"] < 2.0
    assert watched.problems == []


def test_a_run_with_fewer_files_still_has_its_page(tmp_path, opened):
    from kdbirl.report.run_files import Run

    bare = posterior(
        ("w",), log_likelihood=None, settings={}, cards={}, task_rewards=np.array([[0.0], [1.0]]), task_names=("a", "b")
    )
    watched = opened()
    page = watched.open(write(tmp_path, Run.of(bare, "old")))
    assert page.locator("main h2").count() == len(SECTIONS) - 1
    assert page.locator("#pair").count() == 0
    assert watched.problems == []
