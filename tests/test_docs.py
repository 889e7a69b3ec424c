"""The examples of every page in docs/ are executed as they are printed, from top to bottom, in one directory."""

from pathlib import Path

import pytest

from .cli.tables import training, write_tables
from .printed_examples import BLOCK, all_examples, run_python, run_shell, unexplained_blocks

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
EVERY_PAGE = [*(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "benchmarks/README.md")), *DOCS.rglob("*.md")]
PAGES = [page for page in sorted(DOCS.rglob("*.md")) if "<!-- example:" in page.read_text(encoding="utf-8")]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty directory, and a browser that writes down which pages it was asked to open."""
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" >>"{tmp_path}/opened"\n')
    browser.chmod(0o755)
    monkeypatch.setenv("BROWSER", f"{browser} %s")
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    return work


def execute(page, folder):
    namespace = {}
    for kind, text in all_examples(page.read_text(encoding="utf-8")):
        assert kind in ("python", "shell")
        if kind == "python":
            run_python(text, page.name, namespace)
        else:
            done = run_shell(text, folder)
            assert done.returncode == 0, done.stderr
            assert "kdbirl:" not in done.stderr  # neither an error nor a warning; slow machines see progress


def test_the_pages_with_examples_are_found():
    assert DOCS / "worlds.md" in PAGES
    assert DOCS / "tutorials" / "gridworld.md" in PAGES


@pytest.mark.parametrize("page", sorted(EVERY_PAGE), ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_block_is_run_or_says_why_not(page):
    text = page.read_text(encoding="utf-8")
    assert 2 * len(BLOCK.findall(text)) == text.count("```")
    assert unexplained_blocks(text) == []


@pytest.mark.parametrize(
    ("page", "found"),
    [
        ("a\n\n```python\nx = 1\n```\n", ["python: x = 1"]),
        ("a\n\n```\n$ ls\n```\n", ["no language: $ ls"]),
        ("<!-- not run: long -->\n```console\n$ ls\n```\n", ["console: $ ls"]),
        ("<!-- not run: it takes an hour -->\n```console\n$ ls\n```\n", []),
        ("<!-- example: shell -->\n```console\n$ ls\n```\n\n```text\na\n```\n", []),
    ],
)
def test_a_block_that_is_not_run_is_found(page, found):
    assert unexplained_blocks(page) == found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_example_of_a_page_runs(page, folder, capsys):
    if page.stem == "index":  # the quick start is for those who have tables
        write_tables(folder)
        training().write_csv(folder / "training.csv")
    execute(page, folder)
    if "--open" in page.read_text(encoding="utf-8"):
        (report,) = folder.rglob("report.html")
        assert (folder.parent / "opened").read_text().split() == [report.as_uri()]
        assert "<h2>What is and is not informed</h2>" in report.read_text(encoding="utf-8")


def test_the_quick_start_is_short():
    lines = [
        line for _, text in all_examples((DOCS / "index.md").read_text(encoding="utf-8")) for line in text.splitlines()
    ]
    assert 0 < len([line for line in lines if line.strip()]) < 15
