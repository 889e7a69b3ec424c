"""What a run directory holds is read as far as it is there; the newest word on each finding counts."""

import json

import pytest

import kdbirl as kb
from kdbirl.errors import FileProblem
from kdbirl.report.html import write_report
from kdbirl.report.run_files import card_of, read_run

from .posteriors import posterior


@pytest.fixture
def bare(tmp_path):
    """A directory as an early version left it: the draws alone."""
    place = tmp_path / "run"
    place.mkdir()
    posterior(cards={"calibration": ("not assessed", "Nobody.")}).save(place / "posterior.nc")
    return place


def add(place, name, card, **findings):
    (place / name).mkdir()
    (place / name / "findings.json").write_text(json.dumps({"report_card": card, **findings}))


def test_the_draws_alone_are_enough(bare):
    run = read_run(bare)
    assert (run.name, run.model, dict(run.manifest), run.evaluation) == ("run", None, {}, None)
    assert run.posterior == kb.load_posterior(bare / "posterior.nc")
    assert write_report(bare)[0].read_text().startswith("<!doctype html>")


def test_later_diagnoses_count_but_take_nothing_back(bare):
    add(bare, "diagnosis", {"calibration": ["red", "first"], "support": ["green", "s"]}, plan={"n": 1})
    add(bare, "diagnosis-2", {"calibration": ["not assessed", "no"], "support": ["amber", "t"]}, plan={"n": 2})
    add(bare, "diagnosis-10", {"sensitivity": ["green", "last"]}, plan={"n": 10})
    run = read_run(bare)
    assert run.card["calibration"] == ("red", "first")
    assert run.card["support"] == ("amber", "t")
    assert run.card["sensitivity"] == ("green", "last")
    assert run.findings["plan"] == {"n": 10}
    assert card_of(bare) == {name: run.card[name] for name in ("calibration", "support", "sensitivity")}


def test_rows_that_were_left_out_stay_left_out(bare):
    assert "kdbirl-rows" not in write_report(bare)[0].read_text()
    assert write_report(bare, rows=False)[1] is False
    assert '<meta name="kdbirl-rows" content="left out">' in write_report(bare)[0].read_text()


def test_another_file_can_be_named(bare, tmp_path):
    assert write_report(bare, target=tmp_path / "page.html") == (tmp_path / "page.html", True)
    assert not (bare / "report.html").exists()


@pytest.mark.parametrize(("content", "reason"), [("{", "cannot be read as JSON"), ("[]", "holds no JSON object")])
def test_a_damaged_file_is_named(bare, content, reason):
    (bare / "evaluation.json").write_text(content)
    with pytest.raises(FileProblem, match=f"evaluation.json {reason}"):
        read_run(bare)


def test_what_is_no_run_is_named(tmp_path):
    with pytest.raises(FileProblem, match=r"has no posterior\.nc; give the run directory that kdbirl fit made"):
        read_run(tmp_path)
    with pytest.raises(FileProblem, match="does not exist"):
        read_run(tmp_path / "none")
