"""Limits on what a file may make this process do. Each has a name, which the error gives and the environment sets.

A file of a few kilobytes can claim arrays of terabytes, unpack to gigabytes or send a reader round in circles; a name
can ask for a world that no memory holds. What exceeds a limit is refused in one sentence before the work begins.
"""

import os
from dataclasses import dataclass

from kdbirl.errors import FileProblem, InputError

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
