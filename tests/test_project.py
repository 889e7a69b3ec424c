"""The files around the code say what is true: versions, constraints, layout, no addresses of registries."""

import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import kdbirl

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
# In halves, so that this file does not name them either.
REGISTRIES = [
    left + right
    for left, right in (
        ("py", "pi.org"),
        ("python", "hosted.org"),
        ("npm", "js.org"),
        ("npm", "js.com"),
        ("deb.deb", "ian.org"),
        ("crates", ".io"),
        ("ana", "conda.org"),
        ("ana", "conda.com"),
    )
]


def tracked_files() -> list[Path]:
    """Files that are or would be committed."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode != 0:
        pytest.skip("not a git work tree")
    return [ROOT / name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]


def constraints() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pairs = [line.split("==") for line in lines if line and not line.startswith("#")]
    return {canonicalize_name(name): version for name, version in pairs}


def declared() -> list[Requirement]:
    lines = [*PROJECT["dependencies"], *(line for extra in PROJECT["optional-dependencies"].values() for line in extra)]
    return [requirement for requirement in map(Requirement, lines) if requirement.name != "kdbirl"]


def layout_folders() -> list[str]:
    """Folders that README's layout section shows: its top ones as they are, the indented ones under src/kdbirl/."""
    section = (ROOT / "README.md").read_text(encoding="utf-8").split("## Layout")[1].split("\n## ")[0]
    folders = re.findall(r"^    ( *)([\w./-]+/)(?:\s|$)", section, flags=re.MULTILINE)
    return [f"src/kdbirl/{name}" if indent else name for indent, name in folders]


def test_no_file_names_a_registry():
    found = [
        f"{path.relative_to(ROOT)}: {host}"
        for path in tracked_files()
        for host in REGISTRIES
        if host.encode() in path.read_bytes()
    ]
    assert found == []


def test_constraints_are_plain():
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    plain = re.compile(r"[A-Za-z0-9][\w.-]*==[\w.]+")
    assert [line for line in lines if not line.startswith("#") and not plain.fullmatch(line)] == []
    names = [canonicalize_name(line.split("==")[0]) for line in lines if not line.startswith("#")]
    assert names == sorted(set(names)), "keep the lines sorted, each package once"


@pytest.mark.parametrize("requirement", declared(), ids=str)
def test_constraints_cover_the_dependency(requirement):
    tested = constraints().get(canonicalize_name(requirement.name))
    assert tested is not None, f"add {requirement.name} to constraints.txt"
    assert requirement.specifier.contains(tested)
    assert any(clause.operator == ">=" for clause in requirement.specifier), "give a lower bound"


def test_constraints_cover_what_is_installed():
    """Every transitive dependency is pinned, so that a fresh clone gets the tested set."""
    from importlib.metadata import PackageNotFoundError, requires

    pinned, seen, queue = constraints(), set(), [requirement.name for requirement in declared()]
    while queue:
        name = canonicalize_name(queue.pop())
        if name in seen or name == "kdbirl":
            continue
        seen.add(name)
        try:
            needs = [Requirement(line) for line in requires(name) or ()]
        except PackageNotFoundError:
            continue  # an extra that is not installed here
        queue += [need.name for need in needs if need.marker is None or need.marker.evaluate({"extra": ""})]
    assert len(seen) > 30
    assert sorted(seen - set(pinned) - {"setuptools"}) == []


def test_changelog_mentions_the_version():
    assert kdbirl.__version__ in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_folders_in_the_readme_exist():
    folders = layout_folders()
    assert len(folders) > 5
    assert [folder for folder in folders if not (ROOT / folder).is_dir()] == []


def test_the_readme_shows_every_folder_of_the_package():
    package = ROOT / "src" / "kdbirl"
    existing = {f"src/kdbirl/{path.name}/" for path in package.iterdir() if any(path.glob("*.py"))}
    assert existing - set(layout_folders()) == set()


def test_every_decision_is_listed():
    pages = {path.name for path in (ROOT / "docs" / "decisions").glob("[0-9]*.md")}
    listed = set(re.findall(r"\(([0-9][\w-]*\.md)\)", (ROOT / "docs" / "decisions" / "README.md").read_text()))
    assert pages == listed
    assert len({page[:4] for page in pages}) == len(pages), "two pages have one number"


def test_links_between_pages_lead_somewhere():
    pages = [path for path in tracked_files() if path.suffix == ".md"]
    dead = [
        f"{page.relative_to(ROOT)}: {link}"
        for page in pages
        for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
        if not (page.parent / link).exists()
    ]
    assert dead == []


def test_ci_runs_the_same_as_a_developer():
    script = ROOT / ".ci" / "run"
    assert script.stat().st_mode & 0o111
    assert "make test" in script.read_text(encoding="utf-8")


def test_a_machine_without_a_recent_python_gets_a_sentence(tmp_path):
    (tmp_path / "scripts").mkdir()
    script = shutil.copy(ROOT / "scripts" / "environment", tmp_path / "scripts")
    old = tmp_path / "old python"
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(0o755)
    done = subprocess.run(
        ["bash", script], env=os.environ | {"PYTHON": str(old)}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr.startswith("kdbirl needs Python 3.11 or newer with its venv module, and found none (tried ")
    assert not (tmp_path / ".venv").exists()
