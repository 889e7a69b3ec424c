"""Progress of long jobs: a bar on a terminal, plain lines when piped, nothing when quiet; the record of a training.

Library code reports to a `Progress`; only the command line decides what is shown. The default is silent.
"""

import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol, runtime_checkable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import TaskID


@runtime_checkable
class Stream(Protocol):
    """What progress is written to: `sys.stderr`, or whatever stands in for it in a notebook or a test."""

    def write(self, text: str, /) -> int: ...

    def flush(self) -> None: ...

    def isatty(self) -> bool: ...


@runtime_checkable
class Progress(Protocol):
    """What a long job reports to: `done` of `total` steps of the job called `name`, with a short `note`."""

    def update(self, name: str, done: int, total: int, note: str = "") -> None: ...

    def close(self) -> None: ...


BLOCK = 250  # steps of a training from one entry of its `Course` to the next


@dataclass(frozen=True)
class Course:
    """How a training of `kdbirl.training` went: the loss of each block of steps on its own batches, and the error on
    held-out rows before the first block and after each. It stands here because fitted maps hold it without JAX.

    kept_step: after how many steps the network was taken that is kept. outcome: "finished", "stopped early" or
    "diverged". held_out is empty where no rows were held out.
    """

    kind: ClassVar[str] = "vae_course"  # in files of feature maps
    steps: int
    kept_step: int
    outcome: str
    loss: tuple[float, ...]
    held_out: tuple[float, ...]
    held_out_rows: int

    @property
    def sentence(self) -> str:
        """The outcome in words."""
        kept = f"the network of step {self.kept_step:,} is kept" if self.kept_step else "its start is kept"
        if self.outcome == "diverged":
            return f"Training diverged after {self.steps:,} steps: {kept}; lower learning_rate."
        if not self.held_out:
            return f"Trained for {self.steps:,} steps; the loss was {self.loss[-1]:.4g}."
        ended = "stopped early after" if self.outcome == "stopped early" else "took all its"
        lowest = f"a loss of {min(self.held_out):.4g} on {self.held_out_rows:,} held-out rows"
        return f"Training {ended} {self.steps:,} steps: {kept}, with {lowest}."


class Silent:
    """Shows nothing."""

    def update(self, name: str, done: int, total: int, note: str = "") -> None:
        return None

    def close(self) -> None:
        return None


class Pace:
    """How fast a job goes, since it was first heard of; one that starts again is measured again."""

    def __init__(self, done: int, now: float) -> None:
        self._first, self._start, self._last = done, now, done

    def started_again(self, done: int) -> bool:
        """Whether the job has gone back since the last call, as when another of the same name begins."""
        before, self._last = self._last, done
        return done < before

    def text(self, done: int, total: int, now: float) -> str:
        """`250/s, 0:06 left`; nothing where nothing has been measured yet."""
        seconds, steps = now - self._start, done - self._first
        if seconds <= 0 or steps <= 0:
            return ""
        rate = steps / seconds
        left = f", {clock((total - done) / rate)} left" if total > done else ""
        return f"{rate_text(rate)}{left}"


def rate_text(rate: float) -> str:
    """Steps per second with three digits; below one, the seconds that a step takes."""
    if rate < 1:
        return f"{1 / rate:.3g} s each"
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if rate >= size:
            return f"{rate / (1e3 if unit == 'k' else size):.3g}{unit}/s"
    return f"{rate:.0f}/s" if rate >= 100 else f"{rate:.3g}/s"


def clock(seconds: float) -> str:
    """`0:06`, `12:30`, `3:00:00`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


class Lines:
    """At most one line every `every` seconds, with the remaining time, for logs and pipes; short jobs print nothing."""

    def __init__(self, stream: Stream | None = None, every: float = 2.0) -> None:
        self._stream = stream or sys.stderr
        self._every = every
        self._printed: dict[str, float] = {}
        self._paces: dict[str, Pace] = {}

    def update(self, name: str, done: int, total: int, note: str = "") -> None:
        now = time.monotonic()
        pace = self._paces.setdefault(name, Pace(done, now))
        if pace.started_again(done):
            self._paces[name] = pace = Pace(done, now)
        if now - self._printed.setdefault(name, now) < self._every:
            return
        self._printed[name] = now
        parts = (f"{done:,} of {total:,}", note, pace.text(done, total, now))
        print(f"{name}: {', '.join(part for part in parts if part)}", file=self._stream, flush=True)

    def close(self) -> None:
        self._printed.clear()
        self._paces.clear()


class Bar:
    """Rich progress bars with the rate and the remaining time, each on one line: a note gives way to what matters."""

    _BAR, _PERCENT, _PACE = 12, 5, 20  # columns

    def __init__(self, console: "Console | None" = None) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn
        from rich.progress import Progress as RichProgress
        from rich.table import Column

        texts = ("{task.percentage:>3.0f} %", "{task.fields[pace]}", "{task.fields[note]}")
        self._bars = RichProgress(
            TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True)),
            BarColumn(bar_width=self._BAR),
            *(TextColumn(text, markup=False, table_column=Column(no_wrap=True)) for text in texts),
            console=console or Console(stderr=True),
            transient=True,
        )
        self._tasks: dict[str, TaskID] = {}
        self._paces: dict[str, Pace] = {}

    def update(self, name: str, done: int, total: int, note: str = "") -> None:
        now = time.monotonic()
        if not self._bars.live.is_started:
            self._bars.start()
        if name not in self._tasks:
            self._tasks[name] = self._bars.add_task(name, total=total, note=note, pace="")
            self._paces[name] = Pace(done, now)
        if self._paces[name].started_again(done):
            self._paces[name] = Pace(done, now)
        pace = self._paces[name].text(done, total, now)
        taken = max(map(len, self._tasks)) + self._BAR + self._PERCENT + max(self._PACE, len(pace)) + 5
        note = note[: max(0, self._bars.console.width - taken)]
        self._bars.update(self._tasks[name], completed=done, total=total, note=note, pace=pace)

    def close(self) -> None:
        self._bars.stop()
        for task in self._tasks.values():  # a bar of a job that is over does not come back with the next one
            self._bars.remove_task(task)
        self._tasks.clear()
        self._paces.clear()


def for_stream(stream: Stream, quiet: bool) -> Progress:
    """The progress that suits where the output goes."""
    if quiet:
        return Silent()
    return Bar() if stream.isatty() else Lines(stream)
