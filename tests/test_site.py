"""The documentation site builds without a warning, has every page and public name, and fetches nothing."""

import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import urlsplit

import pytest

import kdbirl

ROOT = Path(__file__).resolve().parents[1]
LOADING = {"script": "src", "link": "href", "img": "src", "iframe": "src", "source": "src", "object": "data"}


class Loaded(HTMLParser):
    """Addresses that a browser fetches when it shows the page, as opposed to links that a reader may follow."""

    def __init__(self, page):
        super().__init__()
        self.addresses, self.identifiers = [], set()
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.identifiers.add(given.get("id"))
        if given.get(LOADING.get(tag, "")) and given.get("rel") not in ("canonical", "prev", "next"):
            self.addresses.append(given[LOADING[tag]])


@pytest.fixture(scope="module")
def pages(site):
    return {path.relative_to(site): path.read_text(encoding="utf-8") for path in sorted(site.rglob("*.html"))}


def test_every_page_is_in_the_navigation(pages):
    shown = pages[Path("index.html")]
    navigation = set(re.findall(r'href="([\w./-]+\.html)"', shown[: shown.index("<article")]))
    expected = {
        str(page.relative_to(ROOT / "docs").with_suffix(".html")).replace("README.html", "index.html")
        for page in (ROOT / "docs").rglob("*.md")
    }
    assert len(expected) > 15
    assert expected - navigation == set()
    assert {"api/index.html", "changelog.html"} <= navigation


def test_the_reference_has_every_public_name(pages):
    described = set().union(*(Loaded(text).identifiers for path, text in pages.items() if path.parts[0] == "api"))
    assert len(kdbirl._MODULE_OF) > 80
    assert [name for name, module in kdbirl._MODULE_OF.items() if f"{module}.{name}" not in described] == []


def test_lines_about_arguments_are_a_list(pages):
    assert re.search(r"<li>\s*(<p>)?<code>state_only</code>: the reward", pages[Path("api/methods.html")])


def test_pages_load_nothing_from_another_host(pages):
    elsewhere = {address for text in pages.values() for address in Loaded(text).addresses if urlsplit(address).netloc}
    assert elsewhere == set()


def test_styles_load_nothing_from_another_host(site, pages):
    sheets = [path.read_text(encoding="utf-8") for path in site.rglob("*.css")]
    inline = [style for text in pages.values() for style in re.findall(r"<style.*?</style>", text, flags=re.DOTALL)]
    fetched = re.findall(r"(?:url\(|@import)\s*['\"]?((?:https?:)?//[^'\")\s]+)", "\n".join(sheets + inline))
    assert sheets
    assert fetched == []


def test_what_is_loaded_is_there(site, pages):
    missing = [
        f"{path}: {address}"
        for path, text in pages.items()
        if path.name != "404.html"  # served for any address, so that its own are absolute
        for address in Loaded(text).addresses
        if address != "."
        and not address.startswith("data:")
        and not (site / path.parent / urlsplit(address).path).exists()
    ]
    assert missing == []
