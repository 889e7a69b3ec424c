"""An extension of Griffe (see mkdocs.yml): lines `name: meaning` about arguments become a list in the API reference.

Docstrings here are plain text, and are read in editors; on the site such lines would run together into one paragraph.
"""

import re
from typing import Any

from griffe import Class, Extension, Function

LINE = re.compile(r"^(`?\w+`?(?:, `?\w+`?)*): ")


class ArgumentLists(Extension):
    """Changes the text of docstrings after they were read, and nothing else."""

    def on_class(self, *, cls: Class, **kwargs: Any) -> None:
        arguments = {name for name, member in cls.members.items() if member.is_attribute}
        _as_list(cls, arguments)

    def on_function(self, *, func: Function, **kwargs: Any) -> None:
        _as_list(func, {parameter.name for parameter in func.parameters})


def _as_list(described: Class | Function, arguments: set[str]) -> None:
    if described.docstring is not None:
        described.docstring.value = listed(described.docstring.value, arguments)


def listed(text: str, arguments: set[str]) -> str:
    """`a: ...` and `a, b: ...` at the start of a line as items; a blank line before the first one of a list."""
    lines: list[str] = []
    inside = False
    for line in text.splitlines():
        found = LINE.match(line)
        if found and {name.strip("`") for name in found[1].split(", ")} <= arguments:
            names = ", ".join(f"`{name.strip('`')}`" for name in found[1].split(", "))
            lines += [*([] if inside or not lines or not lines[-1] else [""]), f"- {names}: {line[found.end() :]}"]
            inside = True
        else:
            inside = inside and bool(line.strip())
            lines.append(f"    {line.strip()}" if inside else line)
    return "\n".join(lines)
