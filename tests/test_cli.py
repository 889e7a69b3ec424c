"""The frame of the command line: one sentence for a mistake, exit codes, doctor, the compilation cache."""

import json
import os
import shlex
import subprocess
import sys
import warnings

import pytest
import typer

import kdbirl
from kdbirl import cli, installation
from kdbirl.cli import terminal as compilation_cache
from kdbirl.errors import ConvergenceWarning, InputError


def command(*arguments, **environment):
    """Run `kdbirl ARGUMENTS` as a user does, in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "kdbirl", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | environment,
    )


@pytest.fixture
def failing_verb(monkeypatch):
    """A verb `fail` that raises what it is given, in place of the real ones."""

    def install(problem):
        app = typer.Typer()

        @app.callback()
        def verbs():
            pass

        @app.command()
        def fail():
            raise problem

        monkeypatch.setattr(cli, "app", app)

    return install


def test_version():
    done = command("--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"kdbirl {kdbirl.__version__}\n", "")


def test_without_a_verb_it_shows_help(capsys):
    assert cli.run([]) == 0
    assert "doctor" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["report"], "kdbirl: Missing argument 'RUN'. See kdbirl report --help.\n"),
        (["frobnicate"], "kdbirl: No such command 'frobnicate'. See kdbirl --help.\n"),
        (["fit", "--draws", "many"], "kdbirl: Invalid value for '--draws': Input should be a valid integer\n"),
        (["doctr"], "kdbirl: No such command 'doctr'. Did you mean 'doctor'?\n"),
        (["doctor", "--jsn"], "kdbirl: No such option: --jsn (Possible options: --json)\n"),
        (["doctor", "extra"], "kdbirl: Got unexpected extra argument(s) (extra)\n"),
    ],
)
def test_a_wrong_command_is_one_sentence_and_exit_code_2(arguments, sentence, capsys):
    assert cli.run(arguments) == 2
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("", sentence)


def test_our_errors_become_one_sentence(failing_verb, capsys):
    failing_verb(InputError("column 'x' is missing;\n  did you mean 'X'?"))
    assert cli.run(["fail"]) == 2
    assert capsys.readouterr().err == "kdbirl: column 'x' is missing; did you mean 'X'?\n"


def test_a_problem_of_the_system_names_the_file(failing_verb, capsys):
    failing_verb(PermissionError(13, "Permission denied", "/somewhere"))
    assert cli.run(["fail"]) == 2
    assert capsys.readouterr().err == "kdbirl: /somewhere: Permission denied.\n"


@pytest.mark.parametrize("wanted", ["", "1"])
def test_a_fault_of_ours_shows_its_traceback_only_when_asked(wanted, failing_verb, capsys, monkeypatch):
    monkeypatch.setenv("KDBIRL_TRACEBACK", wanted)
    failing_verb(ZeroDivisionError("by zero"))
    assert cli.run(["fail"]) == 1
    shown = capsys.readouterr().err
    assert "this is a fault in kdbirl (ZeroDivisionError: by zero)" in shown
    assert ("Traceback" in shown) == bool(wanted)


def test_interrupting_is_exit_code_130(failing_verb, capsys):
    failing_verb(KeyboardInterrupt())
    assert cli.run(["fail"]) == 130
    assert capsys.readouterr().err == "kdbirl: Stopped.\n"


def test_a_closed_pipe_is_no_traceback():
    program = f"{shlex.quote(sys.executable)} -m kdbirl --help | true"
    done = subprocess.run(["bash", "-c", program], capture_output=True, text=True, check=False)
    assert done.stderr == ""


def test_only_our_warnings_are_shown(capsys, monkeypatch):
    monkeypatch.setattr(sys, "warnoptions", [])
    with warnings.catch_warnings():
        cli._show_only_our_warnings()
        warnings.warn("R-hat of\n w1 is 1.2", ConvergenceWarning, stacklevel=1)
        warnings.warn("for programmers", DeprecationWarning, stacklevel=1)
    assert capsys.readouterr().err == "kdbirl: warning: R-hat of w1 is 1.2\n"


def test_doctor_finds_this_installation_well(tmp_path):
    done = command("doctor", "--json", KDBIRL_CACHE_DIR=str(tmp_path))
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    status = {check["name"]: check["status"] for check in report["checks"]}
    assert report["ok"] is True
    assert report["kdbirl"] == kdbirl.__version__
    assert [status[name] for name in ("python", "jax", "JAX device", "float64", "compilation cache")] == ["ok"] * 5
    assert "extra minari" in status


def test_doctor_in_words(capsys, tmp_path):
    assert cli.run(["doctor"]) == 0
    shown = capsys.readouterr().out
    assert "Everything that kdbirl needs is here and works." in shown
    assert "float64" in shown


def test_doctor_says_what_is_missing_and_how_to_get_it(monkeypatch, capsys):
    monkeypatch.setattr(
        installation, "_installed", lambda name: {"blackjax": None, "jax": "0.4.1", "minari": None}.get(name, "9999.0")
    )
    assert cli.run(["doctor"]) == 1
    shown = capsys.readouterr()
    assert "note    extra minari" in shown.out
    assert "pip install 'kdbirl[minari]'" in shown.out
    assert shown.err.startswith("kdbirl: kdbirl cannot work here until this is mended: blackjax (not installed: ")
    assert "jax (0.4.1 is too old: pip install 'jax>=" in shown.err


def test_doctor_sees_single_precision(monkeypatch):
    monkeypatch.setattr(installation, "_one_plus_a_little", lambda: 0.0)
    assert installation._double_precision().status == "problem"


def test_package_versions_are_for_a_manifest():
    versions = installation.package_versions()
    assert versions["kdbirl"] == kdbirl.__version__
    assert {"python", "jax", "numpy", "blackjax"} <= set(versions)
    assert "pytest" not in versions


def test_the_cache_is_where_the_user_says(monkeypatch, tmp_path):
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR", raising=False)
    monkeypatch.delenv("KDBIRL_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert compilation_cache.cache_directory().is_relative_to(tmp_path / "xdg" / "kdbirl" / "jax")
    monkeypatch.setenv("KDBIRL_CACHE_DIR", str(tmp_path / "ours"))
    assert compilation_cache.cache_directory().is_relative_to(tmp_path / "ours" / "jax")
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path / "jax's"))
    assert compilation_cache.cache_directory() == tmp_path / "jax's"


def test_compiled_programs_are_kept_between_processes(tmp_path):
    first = command("doctor", KDBIRL_CACHE_DIR=str(tmp_path))
    written = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*-cache")}
    second = command("doctor", KDBIRL_CACHE_DIR=str(tmp_path))
    assert (first.returncode, second.returncode) == (0, 0)
    assert written, "the first process stored no program"
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*-cache")} == written


def test_a_cache_that_cannot_be_written_or_read_is_no_failure(tmp_path):
    occupied = tmp_path / "a file"
    occupied.write_text("not a directory")
    done = command("doctor", KDBIRL_CACHE_DIR=str(occupied))
    assert (done.returncode, done.stderr) == (0, "")
    assert "not writable: set KDBIRL_CACHE_DIR" in done.stdout
    command("doctor", KDBIRL_CACHE_DIR=str(tmp_path / "cache"))
    for entry in (tmp_path / "cache").rglob("*-cache"):
        entry.write_bytes(entry.read_bytes()[:20])
    done = command("doctor", KDBIRL_CACHE_DIR=str(tmp_path / "cache"))
    assert (done.returncode, done.stderr) == (0, "")


def test_the_oldest_programs_go_first(tmp_path):
    for age in range(10):
        entry = tmp_path / f"program{age}-cache"
        entry.write_bytes(b"x" * 100)
        os.utime(entry, (1000 - age, 1000 - age))
    compilation_cache.prune(tmp_path, largest=1000)
    assert len(list(tmp_path.iterdir())) == 10
    compilation_cache.prune(tmp_path, largest=999)
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"program{age}-cache" for age in range(4)]
