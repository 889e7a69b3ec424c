"""A real headless Chromium, with the network cut; every page is watched for errors and for anything it asks for."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

PATIENCE = 180_000  # milliseconds: a loaded machine is slow, and that is no fault of a page
CANDIDATES = (os.environ.get("KDBIRL_CHROMIUM", ""), "chromium", "chromium-browser", "google-chrome")


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Fails, rather than skips, where there is none: a page that nobody looked at is not tested."""
    from playwright.sync_api import sync_playwright

    found = next((path for name in CANDIDATES if name and (path := shutil.which(name))), None)
    if found is None:
        pytest.fail("There is no Chromium: run scripts/browser, or name one in KDBIRL_CHROMIUM.", pytrace=False)
    with sync_playwright() as playwright:
        # as root, as in a container, Chromium's own sandbox cannot start
        chromium = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield chromium
        chromium.close()


class Watched:
    """A page that remembers what went wrong: messages of the console, errors, dialogs, requests for other files."""

    def __init__(self, page: Any) -> None:
        self.page, self.problems, self.requests = page, [], []
        page.on("console", lambda message: self.problems.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: self.problems.append(str(error)))
        page.on("dialog", self._dialog)
        page.on("request", lambda request: self.requests.append(request.url))

    def _dialog(self, dialog: Any) -> None:
        self.problems.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def open(self, target: Path | str) -> Any:
        """From disk, or an address; until every chart is drawn."""
        self.page.goto(target.as_uri() if isinstance(target, Path) else target)
        self.page.wait_for_selector("html[data-ready]")
        return self.page


@pytest.fixture
def opened(browser: Any) -> Iterator[Any]:
    """`opened(width=..., scheme=..., offline=...)`: a new watched page."""
    contexts = []

    def new(width: int = 1280, height: int = 900, scheme: str = "light", offline: bool = True) -> Watched:
        size = {"width": width, "height": height}
        context = browser.new_context(viewport=size, color_scheme=scheme, offline=offline)
        context.set_default_timeout(PATIENCE)
        contexts.append(context)
        return Watched(context.new_page())

    yield new
    for context in contexts:
        context.close()


@pytest.fixture(scope="session")
def axe() -> str:
    """The accessibility checker's script, from the installed package."""
    import axe_playwright_python

    return (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text(encoding="utf-8")
