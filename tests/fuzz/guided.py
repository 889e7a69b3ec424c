"""Inputs chosen by what they reach: atheris sees the branches of kdbirl's own code that each input takes.

What reaches something new is kept and changed further. The changes are the target's own (`mutation.py`), so that
archives stay intact and JSON stays JSON; finds are judged and kept as in any campaign.
"""

import json
import re
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from .campaign import keep


def guided_campaign(name: str, seed: int, count: int, folder: Path, finds: Path) -> dict[str, Any]:
    """Run `count` inputs of a target in a process that is watched by libFuzzer; every find is kept in `finds`."""
    folder.mkdir(parents=True, exist_ok=True)
    began, listed = time.monotonic(), dict[str, int]()
    words = [sys.executable, "-m", "tests.fuzz.guided_worker", name, str(seed), str(count), str(folder)]
    done = subprocess.run(words, capture_output=True, text=True, errors="replace", check=False)
    seen = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    for line in (line for line in seen if "find" in line):
        keep(finds / name, line["find"], (folder / line["file"]).read_bytes(), listed)
    total = Counter[str](seen[-1]["counts"] if seen and "counts" in seen[-1] else {"find": len(seen)})
    for place in sorted(path for kind in ("timeout", "crash", "oom") for path in folder.glob(f"{kind}-*")):
        total["find"] += 1
        keep(finds / name, f"{place.name.partition('-')[0]}: {done.stderr[-300:]}", place.read_bytes(), listed)
    if not total:
        raise RuntimeError(f"{name}: the worker ended with {done.returncode}: {done.stderr[-500:]}")
    reached = [int(number) for number in re.findall(r"cov: (\d+)", done.stderr)]
    return {"target": name, "guided": count, **total, "branches": [*reached[:1], *reached[-1:]], "listed": listed,
            "slowest seconds": round(max((line.get("slowest", 0.0) for line in seen), default=0.0), 2),
            "minutes": round((time.monotonic() - began) / 60, 1)}  # fmt: skip
