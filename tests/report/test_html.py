"""The page of a run: self-contained, escaped, described, complete; what a browser makes of it is in tests/browser."""

import base64
import hashlib
import json
import re
from html.parser import HTMLParser

import numpy as np
import pytest

from kdbirl.report.html import report_page
from kdbirl.report.page.shell import command_of, json_in_html, vega_bundle
from kdbirl.report.run_files import Run

from .posteriors import posterior

HOSTILE = "<script>alert('w')</script> & \"q\" </style>"
VOID = {"meta", "img", "br", "hr", "link", "input"}
OURS = ("https:", "http:", "//")


class Page(HTMLParser):
    """Every element with its attributes, the visible text, the scripts, and whether the tags are balanced."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.words, self.scripts, self.open, self.balanced = [], [], [], [], True
        self.feed(text)
        self.balanced &= not self.open

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag):
        self.balanced &= bool(self.open) and self.open.pop() == tag

    def handle_data(self, data):
        if "script" in self.open:
            self.scripts[-1] += data
        elif "style" not in self.open:
            self.words.append(data)

    @property
    def text(self):
        return " ".join(" ".join(self.words).split())

    @property
    def content(self):
        return json.loads(self.scripts[0])

    def all(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]


def page_of(made, name="run", rows=True, **more):
    return Page(report_page(Run.of(made, name, **more), rows))


@pytest.fixture(scope="module")
def plain():
    text = report_page(Run.of(posterior(), "run"))
    return text, Page(text)


def test_the_page_needs_nothing_from_elsewhere(plain):
    text, page = plain
    assert not {"link", "iframe", "object", "img"} & {tag for tag, _ in page.elements}
    references = [v for _, attributes in page.elements for n, v in attributes.items() if n in ("src", "href")]
    assert references
    assert all(value.startswith("#") for value in references)
    without_library = text.replace(vega_bundle(), "")
    assert not any(word in without_library for word in OURS if word != "//")
    assert re.findall(r"url\(|@import", without_library) == []


def test_the_policy_allows_these_two_scripts_alone(plain):
    _, page = plain
    policy = next(meta["content"] for meta in page.all("meta") if meta.get("http-equiv") == "Content-Security-Policy")
    digests = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in page.scripts[1:]]
    assert len(digests) == 2
    assert f"script-src 'sha256-{digests[0]}' 'sha256-{digests[1]}';" in policy
    assert policy.startswith("default-src 'none'")
    assert "unsafe-eval" not in policy
    assert not any(name.startswith("on") for _, attributes in page.elements for name in attributes)


def test_the_page_is_well_formed(plain):
    text, page = plain
    assert text.startswith("<!doctype html>")
    assert page.balanced
    assert page.all("html") == [{"lang": "en"}]
    assert {"charset": "utf-8"} in page.all("meta")
    assert len(page.all("title")) == len(page.all("h1")) == 1
    identifiers = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(identifiers) == len(set(identifiers))


def test_every_chart_has_a_place_and_words(plain):
    _, page = plain
    places = [a for a in page.all("div") if "chart" in a.get("class", "").split()]
    assert {place["id"] for place in places} == set(page.content["charts"])
    assert all(place["role"] == "img" and len(place["aria-label"]) > 10 for place in places)


def test_the_page_tells_question_answer_and_every_choice(plain):
    for words in (
        "The reward of a new task (2 parameters) from 5 expert rows, given 15 rows of 3 training tasks",
        "convergence ✓ green",
        "normal:0,1",
        "h = 0.5",
        "h' = 0.4",
        "Grid: 4 chains of 250 draws",
        "independent draws",
        "kdbirl diagnose run --calibrate",
    ):
        assert words in plain[1].text


def test_the_draws_in_the_page_are_those_of_the_posterior(plain):
    made, draws = posterior(), plain[1].content["draws"]
    assert draws["names"] == list(made.names)
    for j, column in enumerate(draws["columns"]):
        whole = np.frombuffer(base64.b64decode(column["packed"]), dtype="<u2")
        np.testing.assert_allclose(column["low"] + column["step"] * whole, made.flat[:, j], atol=column["step"])


def test_what_came_from_files_is_escaped():
    hostile = posterior(
        names=(HOSTILE, "w_y"),
        feature_names=(HOSTILE, "y"),
        task_names=(HOSTILE, "b", "c"),
        settings={"prior": HOSTILE, "features": HOSTILE, "notes": [HOSTILE], "kernel": HOSTILE},
        cards={HOSTILE: ("red", HOSTILE)},
    )
    manifest = {"configuration": {HOSTILE: HOSTILE}, "inputs": {HOSTILE: HOSTILE}, "versions": {HOSTILE: HOSTILE}}
    page = page_of(hostile, HOSTILE, manifest=manifest)
    assert page.balanced
    assert len(page.scripts) == 3
    assert page.text.count(HOSTILE) >= 12
    assert page.content["draws"]["names"][0] == HOSTILE
    assert not any(name.startswith("on") for _, attributes in page.elements for name in attributes)


def test_json_ends_no_script_and_stays_json():
    content = {"</script>": "<!-- <script> & \u2028"}
    text = json_in_html(content)
    assert not set("<>&\u2028") & set(text)
    assert json.loads(text) == content


def test_rows_are_left_out_on_request():
    rng = np.random.default_rng(0)
    features = rng.normal(size=(5, 2)) + 123456.0
    made = posterior(expert_features=features, log_likelihood=rng.normal(size=(4, 250, 5)))
    with_rows, without = page_of(made), page_of(made, rows=False)
    assert "row-influence" in with_rows.content["charts"]
    assert "row-influence" not in without.content["charts"]
    assert f"{features[:, 0].min():.4g}" in with_rows.text
    assert "The most decisive expert rows" not in without.text
    assert "least" not in [word for word in without.words if word.strip()]
    assert "least" in with_rows.words
    assert {"name": "kdbirl-rows", "content": "left out"} in without.all("meta")


@pytest.mark.parametrize("names", [("w",), tuple(f"cell {c}" for c in range(25)), tuple(f"w{j}" for j in range(300))])
def test_few_and_many_parameters(names):
    page = page_of(posterior(names=names))
    charts = set(page.content["charts"])
    assert ("pair" in charts) == (len(names) > 1)
    assert ("map-mean" in charts) == (len(names) == 25)
    assert sum(chart.startswith("marginal-") for chart in charts) == min(len(names), 12)


def test_numbers_that_are_not_known():
    """A parameter that never moved has no R-hat; the page stands, and says so."""
    draws = np.random.default_rng(0).normal(size=(4, 250, 2))
    draws[:, :, 0] = 1.0
    page = page_of(posterior(draws=draws), "stuck")
    assert "convergence ✕ red" in page.text
    assert "never moved" in page.text


def test_the_command_repeats_the_run():
    configuration = {"training": "my table.csv", "prior": ["w=normal:0,1", "v=uniform:0,1"], "n_states": None}
    configuration |= {"discrete_states": True, "quiet": True, "no_rows": False, "out": "run", "state": "-x,y"}
    words = command_of(configuration).replace(" \\\n   ", "")
    assert words == (
        "kdbirl fit --training='my table.csv' --prior=w=normal:0,1 --prior=v=uniform:0,1 --discrete-states "
        "--state=-x,y --out run-again"
    )
