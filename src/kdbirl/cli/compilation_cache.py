"""Compiled programs kept on disk between runs of the command line.

JAX reads these settings from the environment when it is first imported, so switching the cache on costs nothing for
commands that never import it, and is inherited by worker processes. Only `kdbirl.cli.main` calls this: a library may
not configure JAX for its user. What the user has set already is left alone.
"""

import contextlib
import os
import warnings
from hashlib import sha256
from pathlib import Path

from kdbirl.installation import cache_home, is_writable

_LARGEST = 512 * 2**20  # bytes; a fit leaves about 1 MB
_SETTINGS = {
    # Every program, not only those that take JAX's default of a second to compile: a fit has dozens of small ones.
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
}


def cache_directory() -> Path:
    """Where compiled programs go: JAX's own setting, else KDBIRL_CACHE_DIR, XDG_CACHE_HOME or ~/.cache."""
    if chosen := os.environ.get("JAX_COMPILATION_CACHE_DIR"):
        return Path(chosen)
    return cache_home() / "jax" / _processor()


def switch_on() -> None:
    """Use the cache if its directory can be written; never fail, and never speak, if it cannot."""
    directory = cache_directory()
    if "JAX_COMPILATION_CACHE_DIR" in os.environ or not is_writable(directory):
        return
    os.environ["JAX_COMPILATION_CACHE_DIR"] = str(directory)
    for name, value in _SETTINGS.items():
        os.environ.setdefault(name, value)
    # An entry that another process is still writing, or that a kill cut short, is compiled anew: nothing to read.
    warnings.filterwarnings("ignore", message="Error (reading|writing) persistent compilation cache entry")
    with contextlib.suppress(OSError):
        prune(directory, _LARGEST)


def prune(directory: Path, largest: int) -> None:
    """Delete the oldest entries until half of `largest` bytes remain, once more than `largest` are there."""
    entries = sorted((entry.stat().st_mtime, entry.stat().st_size, entry) for entry in directory.glob("*-cache"))
    total = sum(size for _, size, _ in entries)
    if total <= largest:
        return
    for _, size, entry in entries:
        if total <= largest // 2:
            return
        entry.unlink(missing_ok=True)
        total -= size


def _processor() -> str:
    """A name for this kind of processor: programs compiled for another must not be loaded from a shared home."""
    import platform

    description = platform.machine()
    with contextlib.suppress(OSError, StopIteration):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        description += next(line for line in lines if line.startswith(("flags", "Features")))
    return sha256(description.encode()).hexdigest()[:12]
