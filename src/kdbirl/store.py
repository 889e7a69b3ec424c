"""Long loops go on where they were stopped: their state is kept in a directory while they run.

    with keep_checkpoints("run.unfinished"):            whoever starts the work: a user, or a verb of the command line
        posterior = model.posterior(expert, seed=0)

    checkpoint = checkpoint_of("NUTS", seed, sampler, target)       a loop: its name, and everything that decides its
    held = checkpoint.held() or {...}                               numbers
    for ...:
        checkpoint.keep({"first": first, "chains": leaves, ...})    arrays, numbers and text, in dictionaries and lists
    checkpoint.keep({...}, last=True)

A checkpoint is found again by a hash of everything that decides it, and by nothing else: work that is started again
with the same data, settings, seed and versions passes through finished loops at once and goes on in the one that was
interrupted; whatever has changed is computed anew. A loop must give the same bits from `held` as without interruption,
so it keeps random generators and optimisers as well as results. Outside `keep_checkpoints` nothing is kept or hashed.
"""

import dataclasses
import errno
import hashlib
import inspect
import io
import json
import os
import re
import shutil
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from typing import Any

from kdbirl.archive import whole_or_not_at_all, write_text
from kdbirl.errors import FileProblem, Interrupted, KDBIRLError, KDBIRLWarning
from kdbirl.installation import package_versions

EVERY = 10.0  # seconds between two writings of a loop's state
SHARE = 0.05  # of the time that writing may take; large states are then written less often

State = Mapping[str, Any]
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


class Checkpoints:
    """The directory of a piece of work, with one file a loop."""

    def __init__(self, directory: Path, every: float) -> None:
        self.directory, self.every = directory, every
        self.pending: dict[Path, Callable[[], bytes]] = {}

    def write(self, path: Path, content: bytes) -> None:
        """Put a file in place, whole."""
        self.directory.mkdir(parents=True, exist_ok=True)
        with whole_or_not_at_all(path) as unfinished:
            unfinished.write_bytes(content)


class Checkpoint:
    """The state of one loop. `place` is None where nothing is kept."""

    def __init__(self, store: Checkpoints | None = None, place: Path | None = None) -> None:
        self._store, self._place = store, place
        self._written, self._cost = time.monotonic(), 0.0

    def held(self) -> dict[str, Any] | None:
        """The state that was kept last; None at the beginning. A damaged file is not used, and a warning names it."""
        if self._place is None or not self._place.is_file():
            return None
        digest, _, content = self._place.read_bytes().partition(b"\n")
        if hashlib.sha256(content).hexdigest().encode() == digest:
            return dict(_unpacked(content))
        warnings.warn(f"{self._place} is damaged and is not used: that part starts again.", KDBIRLWarning, stacklevel=2)
        return None

    def keep(self, state: State, last: bool = False) -> None:
        """Take note of the state: written if `every` seconds have passed or it is the `last`, and when interrupted.

        Arrays are not copied, so the loop must not write into them; arrays of JAX are taken over at once.
        """
        if self._store is None or self._place is None:
            return
        tree, arrays = _apart(state)
        self._store.pending[self._place] = lambda: _packed(tree, arrays)
        now = time.monotonic()
        if last or now - self._written >= max(self._store.every, self._cost / SHARE):
            self._store.write(self._place, _packed(tree, arrays))
            del self._store.pending[self._place]
            self._written, self._cost = time.monotonic(), time.monotonic() - now


_current: ContextVar[Checkpoints | None] = ContextVar("checkpoints", default=None)


@contextmanager
def keep_checkpoints(directory: str | Path, every: float | None = None) -> Iterator[None]:
    """Long loops inside keep their states in `directory`, and go on from those that are there already.

    every: seconds between two writings of a state, EVERY (10) if not given; at most that much is lost to a kill -9.
    Interrupted (Ctrl-C, an error), they are written once more. Afterwards the directory is yours to delete, or keep
    for more work of the same kind; it grows by a file for each long loop. Others around this
    one rest meanwhile.
    """
    store = Checkpoints(Path(directory), EVERY if every is None else every)
    token = _current.set(store)
    try:
        yield
    except BaseException:
        for path, content in store.pending.items():
            store.write(path, content())
        raise
    finally:
        _current.reset(token)


def checkpoint_of(name: str, *decides: Any) -> Checkpoint:
    """The checkpoint of a loop whose numbers are decided by these values and the versions of the packages."""
    store = _current.get()
    if store is None:
        return Checkpoint()
    digest = hashlib.sha256()
    for value in (name, decides, package_versions()):
        _feed(digest.update, value)
    words = re.sub(r"[^a-z0-9]+", "-", name.lower())
    return Checkpoint(store, store.directory / f"{words}-{digest.hexdigest()[:24]}.checkpoint")


def forget(directory: Path) -> None:
    """Delete the checkpoints of work that is done."""
    shutil.rmtree(directory, ignore_errors=True)


def _feed(update: Callable[[bytes], Any], value: Any) -> None:
    """Hash a value by its content: the same in every process, for the same content and no other."""
    import numpy as np

    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        named = [(field.name, getattr(value, field.name)) for field in dataclasses.fields(value)]
        update(f"{type(value).__qualname__}({len(named)}".encode())
        for name, part in named:
            update(name.encode() + b"=")
            _feed(update, part)
    elif isinstance(value, Mapping):
        update(f"map({len(value)}".encode())
        for key, part in value.items():
            _feed(update, key)
            _feed(update, part)
    elif isinstance(value, list | tuple | set | frozenset):
        update(f"{type(value).__name__}({len(value)}".encode())
        for part in value if isinstance(value, list | tuple) else sorted(value, key=repr):
            _feed(update, part)
    elif hasattr(value, "__array__"):
        array = np.ascontiguousarray(value)
        update(f"array({array.dtype.str}{array.shape}".encode())
        update(array.tobytes())
    elif callable(value) and not isinstance(value, type):
        _feed_function(update, value)
    else:
        update(f"{type(value).__qualname__}:{_ADDRESS.sub('', repr(value))}".encode())


def _feed_function(update: Callable[[bytes], Any], function: Any) -> None:
    """A function (a user's own kernel, say) by what it does: its code, and the values that it was made with."""
    if isinstance(function, partial):
        _feed(update, [function.func, function.args, function.keywords])
        return
    function = inspect.unwrap(function)
    code = getattr(function, "__code__", None)
    if code is None:
        update(f"{type(function).__qualname__}:{_ADDRESS.sub('', repr(function))}".encode())
        return
    update(function.__qualname__.encode() + code.co_code)
    _feed(update, (_ADDRESS.sub("", repr(code.co_consts)), code.co_names))
    held = [cell.cell_contents for cell in function.__closure__ or ()]
    _feed(update, [part for part in held if part is not function])  # a function may know itself
    if inspect.ismethod(function):
        _feed(update, function.__self__)


def _apart(state: Any) -> tuple[Any, list[Any]]:
    """A tree for JSON, in which arrays are numbers of the list."""
    import numpy as np

    arrays: list[Any] = []

    def tree_of(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {"map": {str(name): tree_of(part) for name, part in value.items()}}
        if isinstance(value, list | tuple):
            return {"list": [tree_of(part) for part in value]}
        if value is None or isinstance(value, bool | int | float | str):
            return value
        arrays.append(np.asarray(value))
        return {"array": len(arrays) - 1}

    return tree_of(state), arrays


def _packed(tree: Any, arrays: list[Any]) -> bytes:
    import numpy as np

    stream = io.BytesIO()
    np.savez(stream, tree=np.array(json.dumps(tree)), **{f"a{i}": array for i, array in enumerate(arrays)})
    content = stream.getvalue()
    return hashlib.sha256(content).hexdigest().encode() + b"\n" + content


def _unpacked(content: bytes) -> Any:
    import numpy as np

    with np.load(io.BytesIO(content), allow_pickle=False) as stored:

        def value_of(tree: Any) -> Any:
            if not isinstance(tree, dict):
                return tree
            ((kind, part),) = tree.items()
            if kind == "map":
                return {name: value_of(value) for name, value in part.items()}
            return [value_of(value) for value in part] if kind == "list" else stored[f"a{part}"]

        return value_of(json.loads(str(stored["tree"])))


# Work on a directory: by one process at a time, and again after an interruption.
#
# `DIR.unfinished` is a directory in the making: what was asked for (`asked.json`) and the checkpoints of its long
# loops. The result gets its own name in one step when it is whole, and then the unfinished directory is removed.
# Started again with the same request, the work goes on from there; with another one it is refused, since what is there
# belongs to somebody's hours of computing.

ASKED = "asked.json"
PRESENTATION = ("as_json", "quiet", "show")


def _nobody(text: str) -> None:
    """Hears it."""


@contextmanager
def resumable(directory: Path, asked: Mapping[str, Any], tell: Callable[[str], None] = _nobody) -> Iterator[None]:
    """Make `directory`, or whatever has that name when it is done, with checkpoints in `DIR.unfinished`.

    tell: how to say that work goes on.
    """
    place = directory.absolute().with_name(f"{directory.absolute().name}.unfinished")
    shown = directory.with_name(place.name)
    _make(place, shown)
    with sole_user(place, shown):
        try:
            for left in place.parent.glob(f".{_literal(directory.absolute().name)}.*.unfinished"):
                _remove(left)  # what a killed process was writing: we alone are at it now
            _same_request(place / ASKED, json.loads(json.dumps(dict(asked), default=str)), shown)
            if _has_checkpoints(place):
                tell(f"Going on from {shown}.")
            with keep_checkpoints(place):
                yield
        except KeyboardInterrupt as stop:
            raise Interrupted(_stopped(str(shown) if _has_checkpoints(place) else None)) from stop
        except KDBIRLError as problem:
            if not isinstance(problem, FileProblem):  # it would end like this again
                shutil.rmtree(place, ignore_errors=True)
            raise
        else:
            shutil.rmtree(place, ignore_errors=True)
        finally:
            if place.is_dir() and not _has_checkpoints(place):
                shutil.rmtree(place, ignore_errors=True)  # nothing is lost


@contextmanager
def sole_user(directory: Path, shown: Path | None = None, *, below: bool = False) -> Iterator[None]:
    """Refuse a second process on the same directory. The lock is the kernel's: it ends with the process, however.

    Where a file system has no locks, there is none. below: the subdirectories are this process's alone, too. A link to
    another directory in it is refused: a directory may be somebody else's, and does not choose where we write.
    """
    import fcntl  # POSIX

    try:
        handle = os.open(directory, os.O_RDONLY)
    except OSError as problem:
        raise FileProblem(f"{shown or directory} cannot be opened: {problem.strerror}.") from problem
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as problem:
            if problem.errno in (errno.EWOULDBLOCK, errno.EACCES):
                raise FileProblem(
                    f"{shown or directory} is in use: another process is writing there; wait for it, or choose "
                    "another directory."
                ) from problem
        for place, folders, _ in os.walk(directory):
            for name in folders:
                refuse_link(Path(place) / name)
            if not below:
                break
        for left in list((directory.rglob if below else directory.glob)(".*.unfinished")):
            _remove(left)  # what a killed process was writing
        yield
    finally:
        os.close(handle)


def refuse_link(place: Path) -> None:
    """A directory to write in is a directory itself, not a link that leads out of the one that the user named."""
    if place.is_symlink():
        raise FileProblem(
            f"{place} is a link to {place.resolve()}, where files would be written; remove the link, or move that "
            "directory here."
        )


@contextmanager
def interruptible(kept: str) -> Iterator[None]:
    """Ctrl-C becomes one sentence on how to go on. kept: where what was done is."""
    try:
        yield
    except KeyboardInterrupt as stop:
        raise Interrupted(_stopped(kept)) from stop


def _stopped(kept: str | None) -> str:
    if kept is None:
        return "Stopped early: the same command does it again."
    return f"Stopped. What was done is in {kept}: the same command goes on from there."


def request_of(options: Mapping[str, Any]) -> dict[str, Any]:
    """What of a command's options decides its result: not how it is shown."""
    return {name: value for name, value in options.items() if name not in PRESENTATION}


def _make(place: Path, shown: Path) -> None:
    refuse_link(place)
    try:
        place.mkdir(exist_ok=True)
    except OSError as problem:
        raise FileProblem(f"{shown} cannot be made: {problem.strerror}; choose another place.") from problem


def _same_request(path: Path, asked: dict[str, Any], shown: Path) -> None:
    """Write the request, or compare it with the one that is there."""
    if not path.is_file():
        write_text(path, json.dumps(asked, indent=2, sort_keys=True) + "\n")
        return
    try:
        before = json.loads(path.read_text(encoding="utf-8"))
        other = [name for name in sorted({*before, *asked}) if before.get(name) != asked.get(name)]
    except (OSError, ValueError, TypeError):
        raise FileProblem(f"{shown / ASKED} is damaged; remove {shown} to start again.") from None
    if other:
        then, now = ("not given" if given.get(other[0]) is None else repr(given[other[0]]) for given in (before, asked))
        raise FileProblem(
            f"{shown} holds unfinished work that was asked for otherwise: {other[0]} was {then}, and now is {now}. "
            f"Give the same options to go on ({ASKED} in it has them all), choose another directory, or remove it."
        )


def _has_checkpoints(place: Path) -> bool:
    return any(place.glob("*.checkpoint"))


def _literal(name: str) -> str:
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in name)


def _remove(left: Path) -> None:
    if left.is_dir():
        shutil.rmtree(left, ignore_errors=True)
    else:
        left.unlink(missing_ok=True)
