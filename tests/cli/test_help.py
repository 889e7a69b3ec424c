"""`--help` of every verb says what it does, and shows an example that its own options accept."""

import os
import re
import subprocess
import sys

import pytest
import typer

from kdbirl import cli

COMMANDS = typer.main.get_command(cli.app).commands
VERBS = sorted(COMMANDS)


def test_the_verbs_are_found():
    assert {"fit", "demos", "diagnose", "evaluate", "compare", "report", "studio", "doctor"} <= set(VERBS)


@pytest.mark.parametrize("verb", VERBS)
def test_help_has_an_example(verb, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERMINAL_WIDTH", "80")
    assert cli.run([verb, "--help"]) == 0
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= 80
    assert "…" not in shown  # nothing is cut
    assert "<bool>" not in shown
    text = " ".join(shown.split())
    example = text[text.index(f"Example: kdbirl {verb}") :]
    lines = [line.strip() for line in shown[shown.index("Example:") :].splitlines()[1:] if line.strip()]
    assert [line.endswith("\\") for line in lines] == [True] * (len(lines) - 1) + [False]  # it can be copied as it is
    used = set(re.findall(r"--[a-z][a-z-]*", example))
    parameters = COMMANDS[verb].params
    assert used <= {option for one in parameters for option in (*one.opts, *one.secondary_opts)}


def test_help_of_the_program_fits_and_lists_every_verb(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERMINAL_WIDTH", "80")
    assert cli.run(["--help"]) == 0
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= 80
    assert "…" not in shown
    assert all(f"│ {verb} " in shown for verb in VERBS)
    assert "--install-completion" in shown


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_can_be_quiet_and_speak_json(verb):
    options = {option for parameter in COMMANDS[verb].params for option in parameter.opts}
    assert {"--json", "--quiet"} <= options


@pytest.mark.parametrize(("typed", "completed"), [("kdbirl dia", "diagnose"), ("kdbirl fit --tra", "--training")])
def test_a_shell_completes_verbs_and_options(typed, completed):
    """As bash asks for it, once `kdbirl --install-completion` has told it how."""
    asked = {"_KDBIRL_COMPLETE": "complete_bash", "COMP_WORDS": typed, "COMP_CWORD": str(len(typed.split()) - 1)}
    done = subprocess.run(
        [sys.executable, "-m", "kdbirl"], capture_output=True, text=True, check=False, env=os.environ | asked
    )
    assert (done.returncode, done.stdout.split()) == (0, [completed])


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_can_be_shown_and_installed(shell, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION", "1")
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(SystemExit) as end:
        cli.run(["--show-completion", shell])
    assert end.value.code == 0
    assert "_KDBIRL_COMPLETE" in capsys.readouterr().out
    with pytest.raises(SystemExit) as end:
        cli.run(["--install-completion", shell])
    assert end.value.code == 0
    assert f"{shell} completion installed" in capsys.readouterr().out
    assert any("_KDBIRL_COMPLETE" in path.read_text() for path in tmp_path.rglob("*kdbirl*") if path.is_file())
