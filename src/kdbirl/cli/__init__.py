"""The command line: one file a verb, no logic. A mistake of the user's is one sentence and exit code 2."""

import os
import re
import signal
import sys
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Annotated, NoReturn, TextIO

import typer

from kdbirl import __version__
from kdbirl.cli.compare import compare
from kdbirl.cli.demos import demos
from kdbirl.cli.diagnose import diagnose
from kdbirl.cli.doctor import doctor
from kdbirl.cli.evaluate import evaluate
from kdbirl.cli.fit import fit
from kdbirl.cli.report import report
from kdbirl.cli.studio import studio
from kdbirl.cli.terminal import Verb, Verbs, example, printable, switch_on
from kdbirl.errors import Interrupted, KDBIRLError, KDBIRLWarning, readable

INTERRUPTED = 130  # what shells call a program that Ctrl-C has ended

app = typer.Typer(
    name="kdbirl",
    cls=Verbs,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
EXAMPLES: dict[Callable[..., None], str] = {
    demos: example("kdbirl demos --env gridworld:5 --one-per-state --true-reward 'cell 24=1'", "--out grid"),
    fit: example(
        "kdbirl fit --training training.csv --rewards rewards.csv --expert expert.csv",
        "--state x,y --action action --prior uniform:0,1 --out run",
    ),
    diagnose: example("kdbirl diagnose run --calibrate --sensitivity"),
    evaluate: example("kdbirl evaluate run --world grid/world.json"),
    compare: example("kdbirl compare --env gridworld:2 --methods kdbirl,birl,avril --rows 10,100", "--out grid"),
    report: example("kdbirl report run --no-rows --open"),
    studio: example("kdbirl studio runs --open"),
    doctor: example("kdbirl doctor --json"),
}
for verb, shown in EXAMPLES.items():
    app.command(cls=Verb, epilog=shown)(verb)


def _print_version(wanted: bool) -> bool:
    if wanted:
        typer.echo(f"kdbirl {__version__}")
        raise typer.Exit
    return wanted


@app.callback()
def _kdbirl(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    """Bayesian inverse reinforcement learning from labelled training tasks."""


def main(arguments: Sequence[str] | None = None, commands: typer.Typer | None = None) -> NoReturn:
    """Entry point of the process: set it up, run the verb, exit. Nothing else in the package touches the process."""
    switch_on()
    _show_only_our_warnings()
    _keep_native_code_quiet()
    with suppress(AttributeError):  # a file name may be any bytes: shown with backslashes
        sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    signal.signal(signal.SIGTERM, _stop)
    sys.exit(run(arguments, commands))


def _stop(*_: object) -> NoReturn:
    """A polite kill (a cluster's time limit, a container that is stopped) is like Ctrl-C: what was done is kept."""
    raise KeyboardInterrupt


def run(arguments: Sequence[str] | None = None, commands: typer.Typer | None = None) -> int:
    """Run the command line and give its exit code: 0, or 2 for a user's mistake, 1 for anything else."""
    words = list(sys.argv[1:] if arguments is None else arguments) or ["--help"]
    try:
        asked = app if commands is None else commands
        code = asked(args=words, prog_name=asked.info.name or "kdbirl", standalone_mode=False)
        if code == INTERRUPTED:
            return _sentence("Stopped.", INTERRUPTED)
        return code if isinstance(code, int) else 0
    except Interrupted as stop:
        return _sentence(str(stop), INTERRUPTED)
    except (KDBIRLError, typer.TyperException) as mistake:
        return _sentence(_text_of(mistake), 2)
    except BrokenPipeError:  # whoever read our output has gone, as with `| head`
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115, PTH123  (stays open: the interpreter flushes it at exit)
        return 1
    except typer.Abort:
        return _sentence("Stopped.", INTERRUPTED)
    except OSError as problem:
        where = f"{problem.filename}: " if problem.filename else ""
        return _sentence(f"{where}{problem.strerror or problem}.", 2)
    except MemoryError:
        return _sentence("Not enough memory. Use fewer rows, draws or chains, or a machine with more.", 1)
    except Exception as problem:
        return _unexpected(problem)


def _text_of(mistake: Exception) -> str:
    if not isinstance(mistake, typer.TyperException):
        return " ".join(str(mistake).split())
    text = re.sub(r", unable to parse string as an? \w+$", "", " ".join(mistake.format_message().split()))
    context = getattr(mistake, "ctx", None)
    if context is not None and text.endswith(".") and "Did you mean" not in text:  # what is missing, or no such verb
        text += f" See {context.command_path} --help."
    return text


def _sentence(text: str, code: int) -> int:
    print(f"kdbirl: {printable(text)}", file=sys.stderr)
    return code


def _unexpected(problem: Exception) -> int:
    """A fault of ours: still one sentence, and the traceback for whoever asks for it."""
    if os.environ.get("KDBIRL_TRACEBACK"):
        import traceback

        traceback.print_exception(problem)
    what = " ".join(f"{type(problem).__name__}: {problem}".split())
    return _sentence(f"this is a fault in kdbirl ({what}). KDBIRL_TRACEBACK=1 shows where it happened.", 1)


def _keep_native_code_quiet() -> None:
    """Rust's panics and XLA's logs go past Python, straight to file 2; what we have to say goes where that led before.

    A damaged Parquet file is one sentence then, not a sentence after a panic. KDBIRL_TRACEBACK leaves all as it is.
    """
    if os.environ.get("KDBIRL_TRACEBACK"):
        return
    with suppress(OSError, ValueError, AttributeError):  # no such file, or a stream of somebody else's
        if sys.stderr.fileno() == 2:
            ours = os.dup(2)
            sys.stderr = os.fdopen(ours, "w", buffering=1, encoding=sys.stderr.encoding, errors="backslashreplace")
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, 2)
            os.close(nowhere)


def _show_only_our_warnings() -> None:
    """Ours as one line each; those of other libraries speak to programmers, not to users of a command."""
    if sys.warnoptions:  # -W or PYTHONWARNINGS: a programmer
        return
    warnings.simplefilter("ignore")
    warnings.simplefilter("default", KDBIRLWarning)
    warnings.showwarning = _one_line


def _one_line(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    print(f"kdbirl: warning: {printable(readable(' '.join(str(message).split())))}", file=file or sys.stderr)
