"""The command that repeats a run, from the configuration in its manifest."""

import shlex
from collections.abc import Mapping
from typing import Any

AGAIN = "run-again"
NOT_ARGUMENTS = ("as_json", "quiet", "out")  # how it spoke, and where it went, change no number


def command_of(configuration: Mapping[str, Any], verb: str = "fit", again: str = AGAIN) -> str:
    """`kdbirl fit ...` on several lines, quoted for a shell."""
    words = []
    for name, value in configuration.items():
        if name not in NOT_ARGUMENTS and value is not None and value is not False:
            for one in value if isinstance(value, list) else [value]:
                words.append(_option(name, one))
    return " \\\n    ".join([f"kdbirl {verb}", *words, f"--out {again}"])


def _option(name: str, value: Any) -> str:
    option = f"--{name.replace('_', '-')}"
    # with an equals sign, so that a value that starts with a dash is no option
    return option if value is True else f"{option}={shlex.quote(str(value))}"
