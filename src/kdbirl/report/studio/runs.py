"""Which runs there are: directories with a posterior, by the name under which the studio shows and finds them."""

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

from kdbirl.errors import FileProblem
from kdbirl.limits import ENTRIES
from kdbirl.report.run_files import card_of, read_json
from kdbirl.report.tasks_directory import FILE as MANY

DEPTH = 3  # directories below the one that was given
MOST = 1000
_NONE: tuple[str, ...] = ()


@dataclass(frozen=True)
class Listed:
    """A run as the list shows it, from its small files alone."""

    name: str
    place: Path
    written: str
    method: str
    colours: tuple[str, ...]
    many: bool = False


def runs_under(root: Path) -> dict[str, Path]:
    """Every run below a directory (or itself), by its path from there. What is not in here is not served."""
    if (root / "posterior.nc").is_file():
        return {root.name: root} if _stays_inside(root, root) else {}
    found = sorted(place for place in _walk(root, DEPTH) if _stays_inside(place, root))
    if (root / MANY).is_file() and _stays_inside(root, root):
        return {root.name: root} | {f"{root.name}/tasks/{task.name}": task for task in found}
    return {place.relative_to(root).as_posix(): place for place in found[:MOST]}


def _stays_inside(run: Path, root: Path) -> bool:
    """Whether no file of a run is a link to somewhere outside the directory that is served."""
    files = [*run.iterdir(), *(place / "findings.json" for place in run.glob("diagnosis*"))]
    return all(file.resolve().is_relative_to(root.resolve()) for file in files if file.is_symlink())


def _walk(directory: Path, depth: int) -> Iterator[Path]:
    """Directories with a posterior; links are not followed, and hidden ones are unfinished."""
    try:
        entries = list(islice(os.scandir(directory), ENTRIES.value))
    except OSError:  # a directory of somebody else's
        return
    for entry in entries:
        if entry.name.startswith(".") or not entry.is_dir(follow_symlinks=False):
            continue
        place = Path(entry.path)
        if (place / "posterior.nc").is_file() or (place / MANY).is_file():
            yield place
        if not (place / "posterior.nc").is_file() and depth > 1:
            yield from _walk(place, depth - 1)


def listed(name: str, place: Path) -> Listed:
    """What the small files of a run say."""
    manifest = _quietly(place / "manifest.json")
    file = place / (MANY if (place / MANY).is_file() else "posterior.nc")
    changed = datetime.fromtimestamp(file.stat().st_mtime, UTC).isoformat(timespec="seconds")
    choices, colours = manifest.get("choices"), _NONE
    method = str(choices.get("method", "")) if isinstance(choices, dict) else ""
    many = manifest.get("test_tasks")
    method = f"{method}, {many} test tasks" if isinstance(many, int) else method
    with contextlib.suppress(FileProblem):
        colours = tuple(colour for colour, _ in card_of(place).values())
    return Listed(
        name, place, str(manifest.get("written") or changed)[:16].replace("T", " "), method, colours, file.name == MANY
    )


def _quietly(path: Path) -> dict[str, Any]:
    """A list shows what can be read."""
    try:
        return read_json(path)
    except FileProblem:
        return {}
