"""`--help` of every verb says what it does, and shows an example that its own options accept."""

import re

import pytest
import typer

from kdbirl import cli

COMMANDS = typer.main.get_command(cli.app).commands
VERBS = sorted(COMMANDS)


def test_the_verbs_are_found():
    assert {"fit", "demos", "diagnose", "evaluate", "compare", "report", "studio", "reproduce", "doctor"} <= set(VERBS)


@pytest.mark.parametrize("verb", VERBS)
def test_help_has_an_example(verb, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERMINAL_WIDTH", "80")
    assert cli.run([verb, "--help"]) == 0
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= 80
    text = " ".join(shown.split())
    example = text[text.index(f"Example: kdbirl {verb}") :]
    used = set(re.findall(r"--[a-z][a-z-]*", example))
    assert used <= {option for parameter in COMMANDS[verb].params for option in parameter.opts}
