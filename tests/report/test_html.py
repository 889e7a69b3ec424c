"""The page of a posterior: self-contained, escaped, described, and not too large."""

import base64
import io
import re
from html.parser import HTMLParser

import numpy as np
import pytest
from PIL import Image

from kdbirl.report.html import report_page

from .posteriors import posterior

HOSTILE = "<script>alert('w')</script> & \"q\""
VOID = {"meta", "img", "br", "hr", "link", "input"}


class Page(HTMLParser):
    """Every element with its attributes, the text outside of the style, and whether the tags are balanced."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.words, self.open, self.balanced = [], [], [], True
        self.feed(text)
        self.balanced &= not self.open

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        self.balanced &= bool(self.open) and self.open.pop() == tag

    def handle_data(self, data):
        if "style" not in self.open:
            self.words.append(data)

    @property
    def text(self):
        return " ".join(self.words)

    def all(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]


@pytest.fixture(scope="module")
def plain():
    text = report_page(posterior(), "kdbirl: run")
    return text, Page(text)


def test_the_page_needs_nothing_from_elsewhere(plain):
    text, page = plain
    assert re.findall(r"https?:|//|url\(|@import", re.sub(r"base64,[\w+/=]+", "", text)) == []
    assert not {"script", "link", "iframe", "object"} & {tag for tag, _ in page.elements}
    references = [
        value for _, attributes in page.elements for name, value in attributes.items() if name in ("src", "href")
    ]
    assert references
    assert all(value.startswith("data:image/png;base64,") for value in references)


def test_the_page_is_well_formed(plain):
    text, page = plain
    assert text.startswith("<!doctype html>")
    assert page.balanced
    assert page.all("html") == [{"lang": "en"}]
    assert {"charset": "utf-8"} in page.all("meta")
    assert len(page.all("title")) == len(page.all("h1")) == 1


def test_every_image_has_words_and_can_be_opened(plain):
    images = plain[1].all("img")
    assert len(images) == 3
    for image in images:
        assert len(image["alt"]) > 10
        opened = Image.open(io.BytesIO(base64.b64decode(image["src"].partition(",")[2])))
        opened.verify()
        assert min(opened.size) > 100
        assert "Software" not in opened.info


def test_the_page_tells_question_answer_and_every_choice(plain):
    for words in (
        "The reward of a new task (2 parameters) from 5 expert rows, given 15 rows of 3 training tasks",
        "convergence: green.",
        "normal:0,1",
        "h = 0.5",
        "h' = 0.4",
        "Grid: 4 chains of 250 draws",
        "independent draws",
    ):
        assert words in plain[1].text


def test_what_came_from_files_is_escaped():
    hostile = posterior(
        names=(HOSTILE, "w_y"),
        feature_names=(HOSTILE, "y"),
        settings={"prior": HOSTILE, "features": HOSTILE, "notes": [HOSTILE], "kernel": HOSTILE},
        cards={HOSTILE: ("red", HOSTILE)},
    )
    text = report_page(hostile, HOSTILE)
    assert "<script" not in text
    page = Page(text)
    assert page.balanced
    assert page.text.count(HOSTILE) >= 8
    assert {name for _, attributes in page.elements for name in attributes} <= {
        "lang",
        "charset",
        "name",
        "content",
        "class",
        "scope",
        "alt",
        "src",
    }


def test_one_parameter_has_no_pairs():
    assert len(Page(report_page(posterior(names=("w",)), "one")).all("img")) == 2


def test_numbers_that_are_not_known():
    """A parameter that never moved has no R-hat; the page stands, and says so."""
    draws = np.random.default_rng(0).normal(size=(4, 250, 2))
    draws[:, :, 0] = 1.0
    page = Page(report_page(posterior(draws=draws), "stuck"))
    assert "convergence: red." in page.text
    assert "never moved" in page.text


def test_the_page_stays_small():
    names = [f"parameter {i}" for i in range(10)]
    many = posterior(names=names, shape=(4, 2500), sampler="NUTS")
    assert len(report_page(many, "many").encode()) < 5e6
