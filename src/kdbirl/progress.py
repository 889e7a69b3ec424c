"""Progress of long jobs: a bar on a terminal, plain lines when piped, nothing when quiet.

Library code reports to a `Progress`; only the command line decides what is shown. The default is silent.
"""

import sys
import time
from typing import Protocol, runtime_checkable


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


class Silent:
    """Shows nothing."""

    def update(self, name: str, done: int, total: int, note: str = "") -> None:
        return None

    def close(self) -> None:
        return None


class Lines:
    """At most one line every `every` seconds, for logs and pipes; short jobs print nothing."""

    def __init__(self, stream: Stream | None = None, every: float = 2.0) -> None:
        self._stream = stream or sys.stderr
        self._every = every
        self._printed: dict[str, float] = {}

    def update(self, name: str, done: int, total: int, note: str = "") -> None:
        now = time.monotonic()
        if now - self._printed.setdefault(name, now) < self._every:
            return
        self._printed[name] = now
        print(f"{name}: {done} of {total} {note}".rstrip(), file=self._stream, flush=True)

    def close(self) -> None:
        self._printed.clear()


class Bar:
    """Rich progress bars with the remaining time."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )
        from rich.progress import Progress as RichProgress

        self._bars = RichProgress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}"),
            console=Console(stderr=True),
            transient=True,
        )
        self._tasks: dict[str, int] = {}

    def update(self, name: str, done: int, total: int, note: str = "") -> None:
        if not self._bars.live.is_started:
            self._bars.start()
        if name not in self._tasks:
            self._tasks[name] = int(self._bars.add_task(name, total=total, note=note))
        self._bars.update(self._tasks[name], completed=done, total=total, note=note)  # type: ignore[arg-type]

    def close(self) -> None:
        self._bars.stop()
        self._tasks.clear()


def for_stream(stream: Stream, quiet: bool) -> Progress:
    """The progress that suits where the output goes."""
    if quiet:
        return Silent()
    return Bar() if stream.isatty() else Lines(stream)
