"""How things are timed, and what is said about the machine that they were timed on."""

import importlib.metadata
import os
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

PACKAGES = (
    "kdbirl", "jax", "jaxlib", "blackjax", "numpy", "scipy", "scikit-learn", "pykeops", "pystan", "httpstan",
    "arviz-stats", "dask", "distributed", "pymdptoolbox", "icu-sepsis",
)  # fmt: skip


@dataclass(frozen=True)
class Spread:
    """A number measured several times: what a claim quotes is the median, and its lowest and highest."""

    values: tuple[float, ...]

    @property
    def median(self) -> float:
        """The middle one."""
        return float(np.median(self.values))

    def over(self, other: "Spread") -> "Spread":
        """Ratio of each repeat to the same repeat of `other`, or every pair where the numbers of repeats differ."""
        if len(self.values) == len(other.values):
            return Spread(tuple(a / b for a, b in zip(self.values, other.values, strict=True)))
        return Spread(tuple(a / b for a in self.values for b in other.values))

    def record(self) -> dict[str, object]:
        """For the results file."""
        values = [float(f"{value:.6g}") for value in self.values]
        return {"median": float(f"{self.median:.6g}"), "low": min(values), "high": max(values), "values": values}

    def __str__(self) -> str:
        return f"{self.median:.4g} ({min(self.values):.4g} to {max(self.values):.4g})"


def seconds_of(action: Callable[[], object]) -> float:
    """Wall-clock time of one call, which must not return before its work is done."""
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def interleaved(contenders: Mapping[str, Callable[[], object]], repeats: int) -> dict[str, Spread]:
    """Seconds of each contender. They take turns, so that a slow moment of the machine falls on all of them alike.

    The first round is not counted: it compiles and warms caches.
    """
    rounds = [{name: seconds_of(action) for name, action in contenders.items()} for _ in range(repeats + 1)]
    return {name: Spread(tuple(times[name] for times in rounds[1:])) for name in contenders}


def rates(seconds: Spread, amount: float) -> Spread:
    """`amount` per second."""
    return Spread(tuple(amount / value for value in seconds.values))


def versions(packages: Sequence[str] = PACKAGES) -> dict[str, str]:
    """Installed versions; `source tree` for what is not installed."""
    found = {"python": platform.python_version()}
    for package in packages:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = "source tree" if package == "kdbirl" else "not installed"
    return found


def machine() -> dict[str, object]:
    """Processor, cores, memory and system."""
    return {
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "system": platform.platform(),
    }


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def now() -> str:
    """Date and time, UTC."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def load_average() -> float:
    """Processes wanting a core, averaged over the last minute: a quiet machine starts near zero."""
    return round(os.getloadavg()[0], 2)
