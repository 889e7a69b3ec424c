"""The examples of every page in docs/ are executed as they are printed, from top to bottom, in one directory."""

from pathlib import Path

import pytest

from .printed_examples import all_examples, run_python, run_shell

DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGES = [page for page in sorted(DOCS.rglob("*.md")) if "<!-- example:" in page.read_text(encoding="utf-8")]


def test_the_pages_with_examples_are_found():
    assert DOCS / "worlds.md" in PAGES


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_example_of_a_page_runs(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    namespace = {}
    for kind, text in all_examples(page.read_text(encoding="utf-8")):
        assert kind in ("python", "shell")
        if kind == "python":
            run_python(text, page.name, namespace)
        else:
            done = run_shell(text, tmp_path)
            assert done.returncode == 0, done.stderr
            assert "kdbirl:" not in done.stderr  # neither an error nor a warning; slow machines see progress
