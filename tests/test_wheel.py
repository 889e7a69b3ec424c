"""What is shipped: every module, the page's assets, the type marker, no tests. And it works where nothing else is."""

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def built(repository_files, tmp_path_factory) -> tuple[Path, Path]:
    """(wheel, sdist), built as pip builds them."""
    from hatchling.builders.sdist import SdistBuilder
    from hatchling.builders.wheel import WheelBuilder

    folder = tmp_path_factory.mktemp("built")
    (wheel,) = WheelBuilder(str(repository_files)).build(directory=str(folder), versions=["standard"])
    (sdist,) = SdistBuilder(str(repository_files)).build(directory=str(folder), versions=["standard"])
    return Path(wheel), Path(sdist)


@pytest.fixture(scope="module")
def repository_files() -> Path:
    return Path(__file__).resolve().parents[1]


def test_the_wheel_holds_the_package_and_nothing_else(built, repository_files):
    with zipfile.ZipFile(built[0]) as wheel:
        names = [name for name in wheel.namelist() if ".dist-info/" not in name]
        extra = {name.partition(".dist-info/")[2] for name in wheel.namelist() if ".dist-info/" in name}
        assert wheel.testzip() is None
    source = repository_files / "src"
    there = [path for path in (source / "kdbirl").rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    assert sorted(names) == sorted(path.relative_to(source).as_posix() for path in there)
    assert {"kdbirl/py.typed", "kdbirl/report/page/page.js", "kdbirl/report/page/style.css"} <= set(names)
    assert not any(name.startswith("tests") or "/tests/" in name for name in names)
    assert {"METADATA", "entry_points.txt", "licenses/LICENSE"} <= extra


def test_the_wheel_says_what_it_needs(built, repository_files):
    from importlib.metadata import PathDistribution

    with zipfile.ZipFile(built[0]) as wheel:
        folder = next(name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")).partition("/")[0]
        about = PathDistribution(zipfile.Path(wheel, f"{folder}/"))
        assert about.metadata["Requires-Python"] == ">=3.11"
        assert about.metadata["License-Expression"] == "MIT"
        needs = {line for line in about.requires or () if "extra ==" not in line}
        (command,) = about.entry_points.select(group="console_scripts")
    assert (command.name, command.value) == ("kdbirl", "kdbirl.cli:main")
    script = repository_files / "scripts" / "lowest-versions"
    lowest = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True).stdout.split()
    assert len(lowest) == len(needs)
    assert "h5py==3.15" in lowest  # earlier ones write the time into files, so that no two runs are the same bytes


def test_the_sdist_has_what_a_packager_needs(built):
    with tarfile.open(built[1]) as sdist:
        names = {name.partition("/")[2] for name in sdist.getnames()}
    assert {"pyproject.toml", "LICENSE", "README.md", "src/kdbirl/__init__.py", "tests/conftest.py"} <= names
    assert not any(name.startswith((".venv", "build", ".git/")) or "__pycache__" in name for name in names)
    assert built[1].stat().st_size < 10_000_000


def test_every_dependency_has_its_licence_on_the_page(repository_files):
    done = subprocess.run(
        [sys.executable, repository_files / "scripts" / "licences.py", "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    page = (repository_files / "docs" / "licences.md").read_text(encoding="utf-8")
    assert "not named" not in page
    assert "http" not in page


@pytest.mark.long
@pytest.mark.parametrize("versions", [[], ["--newest"]], ids=["lowest", "newest"])
def test_it_works_in_an_empty_environment(versions, repository_files, tmp_path):
    """Wheel and sdist, installed in an environment that has nothing else: doctor, the demo, some of these tests."""
    script = repository_files / "scripts" / "lowest-versions"
    done = subprocess.run(
        [sys.executable, script, "--try", *versions, "--keep", tmp_path], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    said = [line.partition(":")[0] for line in done.stdout.splitlines()]
    assert [step for step in ("wheel", "install", "doctor", "demo", "tests", "sdist") if step not in said] == []
