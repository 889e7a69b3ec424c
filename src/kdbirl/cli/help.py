"""What `--help` looks like: no type beside a flag, which takes none; examples that can be copied line by line."""

from collections.abc import Sequence
from typing import Any

from typer.core import TyperCommand, TyperGroup


class Verb(TyperCommand):
    """A verb of ours."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _without_types(super().get_params(ctx))


class Verbs(TyperGroup):
    """All of them."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _without_types(super().get_params(ctx))


def _without_types(parameters: Sequence[Any]) -> list[Any]:
    for parameter in parameters:
        if getattr(parameter, "is_flag", False):
            parameter.metavar = ""
    return list(parameters)


def example(*lines: str) -> str:
    """A command for the end of a help text; its lines, each within 80 columns, stay as they are for a shell."""
    return "\n\n".join(["Example:", " \\\n\n".join(lines)])
