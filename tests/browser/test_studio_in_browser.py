"""The studio in a real browser: list, report and comparison, as a user clicks through them."""

import threading

import pytest

from kdbirl.report.studio.server import studio_server

from .pages import HOSTILE, full_run, posterior, write
from .test_report_in_browser import violations

NAMES = ("first", HOSTILE[0].replace("/", "_"))


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    for seed, name in enumerate(NAMES):
        (root / name).mkdir()
        posterior(seed=seed).save(root / name / "posterior.nc")
    write(root / "first", full_run())
    with studio_server(root) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


def test_a_user_clicks_through_it(address, opened, axe):
    watched = opened(offline=False)
    page = watched.page
    page.goto(address)
    assert [link.inner_text() for link in page.locator("tbody a").all()] == sorted(NAMES)
    assert violations(page, axe) == []
    page.get_by_role("link", name="first").click()
    page.wait_for_selector("html[data-ready]")
    assert page.locator("#posterior .chart svg").count() >= 3
    page.get_by_role("link", name="All runs").click()
    page.wait_for_selector("text=Compare the two")
    page.get_by_role("button", name="Compare the two").press("Enter")
    page.wait_for_selector("html[data-ready]")
    assert page.locator("#posteriors .chart svg").count() == 3
    assert NAMES[1] in page.locator("h1").inner_text()
    assert violations(page, axe) == []
    assert page.evaluate("window.hacked") is None
    page.get_by_role("link", name="All runs").click()
    page.wait_for_selector("text=Compare the two")
    assert all(url.startswith(address) for url in watched.requests)
    assert watched.problems == []
