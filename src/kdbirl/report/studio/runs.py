"""Which runs there are: directories with a posterior, by the name under which the studio shows and finds them."""

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kdbirl.errors import FileProblem
from kdbirl.report.run_files import card_of, read_json

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


def runs_under(root: Path) -> dict[str, Path]:
    """Every run below a directory (or itself), by its path from there. What is not in here is not served."""
    if (root / "posterior.nc").is_file():
        return {root.name: root}
    found = sorted(_walk(root, DEPTH))
    return {place.relative_to(root).as_posix(): place for place in found[:MOST]}


def _walk(directory: Path, depth: int) -> Iterator[Path]:
    """Directories with a posterior; links are not followed, and hidden ones are unfinished."""
    for entry in os.scandir(directory):
        if entry.name.startswith(".") or not entry.is_dir(follow_symlinks=False):
            continue
        place = Path(entry.path)
        if (place / "posterior.nc").is_file():
            yield place
        elif depth > 1:
            yield from _walk(place, depth - 1)


def listed(name: str, place: Path) -> Listed:
    """What the small files of a run say."""
    manifest = _quietly(place / "manifest.json")
    changed = datetime.fromtimestamp((place / "posterior.nc").stat().st_mtime, UTC).isoformat(timespec="seconds")
    choices, colours = manifest.get("choices"), _NONE
    method = str(choices.get("method", "")) if isinstance(choices, dict) else ""
    with contextlib.suppress(FileProblem):
        colours = tuple(colour for colour, _ in card_of(place).values())
    return Listed(name, place, str(manifest.get("written") or changed)[:16].replace("T", " "), method, colours)


def _quietly(path: Path) -> dict[str, Any]:
    """A list shows what can be read."""
    try:
        return read_json(path)
    except FileProblem:
        return {}
