"""The command line: one file a verb, no logic. A mistake of the user's is one sentence and exit code 2."""

import os
import sys
import warnings
from collections.abc import Sequence
from typing import Annotated, NoReturn, TextIO

import typer

from kdbirl import __version__
from kdbirl.cli import compilation_cache
from kdbirl.cli.compare import compare
from kdbirl.cli.demos import demos
from kdbirl.cli.diagnose import diagnose
from kdbirl.cli.doctor import doctor
from kdbirl.cli.evaluate import evaluate
from kdbirl.cli.fit import fit
from kdbirl.cli.report import report
from kdbirl.cli.reproduce import reproduce
from kdbirl.cli.studio import studio
from kdbirl.errors import KDBIRLError, KDBIRLWarning

INTERRUPTED = 130  # what shells call a program that Ctrl-C has ended

app = typer.Typer(
    name="kdbirl",
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command(epilog="Example: kdbirl demos --env gridworld:5 --one-per-state --true-reward 'cell 24=1' --out grid")(
    demos
)
app.command(
    epilog="Example: kdbirl fit --training training.parquet --rewards rewards.csv --expert expert.csv "
    "--state x,y --action action --prior uniform:0,1 --out run"
)(fit)
app.command(epilog="Example: kdbirl diagnose run --calibrate --sensitivity")(diagnose)
app.command(epilog="Example: kdbirl evaluate run --world grid/world.json")(evaluate)
app.command(epilog="Example: kdbirl compare --env gridworld:2 --methods kdbirl,birl,avril --rows 10,100 --out grid")(
    compare
)
app.command(epilog="Example: kdbirl report run --no-rows")(report)
app.command(epilog="Example: kdbirl studio runs")(studio)
app.command(epilog="Example: kdbirl reproduce contraction --out reproduction")(reproduce)
app.command(epilog="Example: kdbirl doctor --json")(doctor)


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


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Entry point of the process: set it up, run the verb, exit. Nothing else in the package touches the process."""
    compilation_cache.switch_on()
    _show_only_our_warnings()
    sys.exit(run(arguments))


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and give its exit code: 0, or 2 for a user's mistake, 1 for anything else."""
    words = list(sys.argv[1:] if arguments is None else arguments) or ["--help"]
    try:
        code = app(args=words, prog_name="kdbirl", standalone_mode=False)
        if code == INTERRUPTED:
            return _sentence("Stopped.", INTERRUPTED)
        return code if isinstance(code, int) else 0
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
    text = mistake.format_message() if isinstance(mistake, typer.TyperException) else str(mistake)
    return " ".join(text.split())


def _sentence(text: str, code: int) -> int:
    print(f"kdbirl: {text}", file=sys.stderr)
    return code


def _unexpected(problem: Exception) -> int:
    """A fault of ours: still one sentence, and the traceback for whoever asks for it."""
    if os.environ.get("KDBIRL_TRACEBACK"):
        import traceback

        traceback.print_exception(problem)
    what = " ".join(f"{type(problem).__name__}: {problem}".split())
    return _sentence(f"this is a fault in kdbirl ({what}). KDBIRL_TRACEBACK=1 shows where it happened.", 1)


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
    print(f"kdbirl: warning: {' '.join(str(message).split())}", file=file or sys.stderr)
