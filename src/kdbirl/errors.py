"""Errors and warnings. Every message says what is wrong, where, what was expected and what to do."""

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches

LONGEST_NAME, MOST_COMPARED = 60, 200  # a file may have a name as long as a book, and very many
LONGEST_MESSAGE = 2000  # beyond it long words are shown in part
LONG_WORD = re.compile(r"\S{200,}")


class KDBIRLError(Exception):
    """Anything this package raises on purpose; the command line prints it as one sentence."""

    def __str__(self) -> str:
        """The message, of which what somebody's file put into it is shown in part where it is as long as a book."""
        return readable(super().__str__())


class InputError(KDBIRLError, ValueError):
    """The data or an argument is wrong: the user can mend it."""


class FileProblem(InputError):
    """A file cannot be read or written, is damaged, or is not what its name says."""


class MissingDependency(KDBIRLError, ImportError):
    """An optional package is needed; the message names the extra to install."""


class SamplingError(KDBIRLError, RuntimeError):
    """The posterior cannot be sampled as asked, for example because its density is zero everywhere."""


class Interrupted(KDBIRLError):
    """Ctrl-C: what was done is kept, and the message says how to go on."""


class KDBIRLWarning(UserWarning):
    """The result stands, but read this first."""


class SupportWarning(KDBIRLWarning):
    """Expert rows lie outside what the training tasks have seen."""


class ConvergenceWarning(KDBIRLWarning):
    """The sampler's own diagnostics say that its draws should not be trusted yet."""


class IdentifiabilityWarning(KDBIRLWarning):
    """The training tasks say nothing about some reward directions: they keep their prior."""


def _shortened(name: str) -> str:
    return name if len(name) <= LONGEST_NAME else f"{name[:LONGEST_NAME]}..."


def readable(message: str) -> str:
    """A message that somebody can read: of a long one the beginnings of its long words, and its two ends."""
    if len(message) > LONGEST_MESSAGE:
        message = LONG_WORD.sub(lambda word: _shortened(word[0]), message)
    if len(message) > LONGEST_MESSAGE:
        half = LONGEST_MESSAGE // 2
        message = f"{message[:half]} ... {message[-half:]}"
    return message


def quoted(value: object) -> str:
    """A cell of somebody's table as a message shows it: in quotes, and only the beginning of a long one."""
    return repr(_shortened(value)) if isinstance(value, str) else _shortened(str(value))


def did_you_mean(name: str, candidates: Iterable[str]) -> str:
    """`" Did you mean 'x'?"` for a near candidate, or the list of what there is: a far-off guess only misleads."""
    known = [_shortened(str(c)) for c in candidates]
    spelled = {_spelling(candidate): candidate for candidate in reversed(known[:MOST_COMPARED])}
    asked = _spelling(_shortened(name))
    near = get_close_matches(asked, spelled, 1, 0.5 if len(asked) == 2 else 0.65)
    near = near or [word for word in spelled if len(asked) > 2 and word.startswith(asked)]  # only the end is missing
    if near:
        return f" Did you mean {spelled[near[0]]!r}?"
    shown = ", ".join(repr(c) for c in known[:12]) + (f" and {len(known) - 12} more" if len(known) > 12 else "")
    return f" There are: {shown}." if known else ""


def _spelling(name: str) -> str:
    """Without what hands get wrong most: case, and how words are joined."""
    return re.sub(r"[\s_-]+", " ", name).strip().casefold() or name


class CalibrationWarning(KDBIRLWarning):
    """Nothing is known about how far the posterior's intervals can be trusted."""


# Limits on what a file may make this process do. Each has a name, which the error gives and the environment sets.
#
# A file of a few kilobytes can claim arrays of terabytes, unpack to gigabytes or send a reader round in circles; a name
# can ask for a world that no memory holds. What exceeds a limit is refused in one sentence before the work begins.

GIBIBYTE = 2**30


@dataclass(frozen=True)
class Limit:
    """`variable`: of the environment, a whole number. `unit`: what is counted, in words."""

    variable: str
    default: int
    unit: str

    @property
    def value(self) -> int:
        """The limit in force now."""
        text = os.environ.get(self.variable, "").strip()
        if not text:
            return self.default
        if not text.isdecimal() or len(text) > 18 or int(text) < 1:
            raise InputError(f"{self.variable}={text[:40]!r} should be a whole number of {self.unit}, at least 1.")
        return int(text)

    def check(self, amount: int, subject: str) -> None:
        """Refuse an amount above the limit; the sentence is `subject` and the numbers."""
        if amount > self.value:
            raise FileProblem(
                f"{subject}: {self._shown(amount)}, and the limit is {self._shown(self.value)}; if that is what you "
                f"want, set {self.variable} to more."
            )

    def _shown(self, amount: int) -> str:
        if self.unit == "bytes" and amount >= 2**20:
            scale, name = (GIBIBYTE, "GiB") if amount >= GIBIBYTE else (2**20, "MiB")
            return f"{amount / scale:,.4g} {name}" if amount < 10**18 else "more than 10^18 bytes"
        return f"{amount:,} {self.unit}" if amount < 10**18 else f"more than 10^18 {self.unit}"


FILE_BYTES = Limit("KDBIRL_MAX_FILE_BYTES", 8 * GIBIBYTE, "bytes")
MEMORY_BYTES = Limit("KDBIRL_MAX_MEMORY_BYTES", 4 * GIBIBYTE, "bytes")  # of one file unpacked, of one world's tables
JSON_BYTES = Limit("KDBIRL_MAX_JSON_BYTES", 2**26, "bytes")
COLUMNS = Limit("KDBIRL_MAX_COLUMNS", 100_000, "columns")
ENTRIES = Limit("KDBIRL_MAX_ENTRIES", 100_000, "directory entries")
ARRAYS = Limit("KDBIRL_MAX_ARRAYS", 10_000, "arrays")
