"""The results file: written whole or not at all, and held against what the project asks of itself."""

import json
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.evaluation_cost import SIZES


@dataclass(frozen=True)
class Target:
    """A ratio that must be at least, or at most, a number."""

    part: str
    path: tuple[str, ...]
    bound: float
    at_least: bool = True

    def met(self, median: float) -> bool:
        """Whether the median of the repeats keeps the bound."""
        return median >= self.bound if self.at_least else median <= self.bound


def _stan(ours: str, measure: str) -> tuple[str, ...]:
    return ("ratios", f"{ours} over stan direct", measure)


TARGETS = (
    Target("stan", _stan("kdbirl default", "effective_per_second_warm"), 1000),
    Target("stan", _stan("kdbirl nuts", "effective_per_second_warm"), 300),
    Target("stan", _stan("kdbirl default", "whole_process_time"), 5),
    Target("stan", _stan("kdbirl nuts", "whole_process_time"), 5),
    Target("evaluation", ("ratios", f"m={SIZES[-1]} over m={SIZES[0]}"), 1.2, at_least=False),
    Target("kernel-sums", ("ratios", "kdbirl over {fastest_competitor}"), 3),
    Target("kernel-sums", ("ratios", "kdbirl over machine's limit"), 0.8),
    Target("avril", ("ratios", "kdbirl over python loop"), 10),
    Target("birl", ("best", "9 states"), 0.05, at_least=False),
    Target("birl", ("best", "36 states"), 0.3, at_least=False),
    Target("birl", ("best", "144 states"), 0.75, at_least=False),
    Target("planning", ("ratios", "kdbirl over numpy loop"), 50),
    Target("planning", ("seconds", "EVD of 4000 draws on ICUSepsis"), 120, at_least=False),
    Target("streaming", ("peak_gib", "continuous"), 2, at_least=False),
    Target("streaming", ("ratios", "streamed over in memory"), 0.5),
    Target("streaming", ("ratios", "distance of the slope from 1"), 0.05, at_least=False),
    Target("sepsis", ("steps_per_second", "SepsisSim"), 300_000),
    Target("cluster", ("ratios", "two workers over one"), 1.7),
    *(
        Target("many-tasks", (f"{q} parameters", "ratios", f"over {what}"), bound)
        for q in (3, 5)
        for what, bound in (("warm fits one by one", 5), ("a process each", 50))
    ),
)


def judged(results: dict[str, Any]) -> Iterator[tuple[str, str, bool]]:
    """Each target that these results can speak about: its name, a sentence, and whether it is met."""
    for target in TARGETS:
        part = results.get(target.part)
        if part is None:
            continue
        keys = [key.format(fastest_competitor=part.get("fastest_competitor", "")) for key in target.path]
        value: Any = part
        for key in keys:
            value = value.get(key, {})
        if "median" in value:
            asked = f"asked for {'>=' if target.at_least else '<='} {target.bound:g}"
            sentence = f"{value['median']:.4g} ({value['low']:.4g} to {value['high']:.4g}), {asked}"
            yield f"{target.part}: {' / '.join(keys[1:])}", sentence, target.met(value["median"])


def read(path: Path) -> dict[str, Any]:
    """Earlier results, or none."""
    return json.loads(path.read_text()) if path.exists() else {}


def write(results: dict[str, Any], path: Path) -> None:
    """Under a temporary name in the same directory, flushed, then renamed."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w") as file:
            json.dump(results, file, indent=2)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
