"""The source files that a module's results depend on: its own, and all of ours that it imports, directly or not."""

import ast
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]


def source_closure(modules: tuple[str, ...]) -> list[Path]:
    """Files of `kdbirl.<modules>` and of everything of ours that they import (inside functions too), sorted.

    `kdbirl/__init__.py` is left out: it names everything and computes nothing.
    """
    found: set[Path] = set()
    waiting = [path for name in modules for path in _files_of(f"kdbirl.{name}")]
    while waiting:
        path = waiting.pop()
        if path not in found:
            found.add(path)
            waiting += _imported(path)
    return sorted(found)


@cache
def _imported(path: Path) -> tuple[Path, ...]:
    names: list[str] = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return tuple(file for name in names for file in _files_of(name))


def _files_of(name: str) -> list[Path]:
    """The file of a module of ours, or of a folder its `__init__`; none for anything else."""
    first, *rest = name.split(".")
    if first != "kdbirl" or not rest:
        return []
    path = PACKAGE.joinpath(*rest)
    return [file for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file()]
