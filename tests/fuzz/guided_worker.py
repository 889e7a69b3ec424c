"""The process of `guided.py`: nothing of kdbirl is imported before atheris can see it."""

import json
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

CLOCK_SECONDS = 120  # after which libFuzzer ends the process: it reads the clock, and the machine may be busy
Outcome = Callable[[bytes], tuple[str, str]]
Mutate = Callable[[random.Random, Sequence[bytes]], bytes]


def work(name: str, seed: int, count: int, folder: Path) -> None:
    """The worker: `count` inputs of a target, and what was seen; the process ends with it."""
    import atheris

    corpus = folder / "kept"
    corpus.mkdir(parents=True)
    with atheris.instrument_imports(include=["kdbirl"]):  # to the end: readers import what they need when they need it
        from .campaign import SECONDS, outcome
        from .targets import TARGETS, prepared

        prepared()
        os.environ["MINARI_DATASETS_PATH"] = str(folder)
        target = TARGETS[name]
        given = target.seeds(folder)
        for number, data in enumerate(given):
            (corpus / f"seed-{number}").write_bytes(data)
            outcome(target, data, folder)  # imports are not the input's seconds
        words = [f"-runs={count}", f"-seed={seed + 1}", f"-timeout={CLOCK_SECONDS}", "-rss_limit_mb=4096"]
        words += ["-max_len=2000000", "-cross_over=0", f"-artifact_prefix={folder}/", str(corpus)]
        run = _Run(lambda data: outcome(target, data, folder), folder, count, SECONDS)
        atheris.Setup(["fuzz", *words], run.one, custom_mutator=_mutator(target.mutate, given))
        atheris.Fuzz()


class _Run:
    """What was seen so far; the last input writes it, since libFuzzer ends the process without a return."""

    def __init__(self, outcome: Outcome, folder: Path, count: int, seconds: float) -> None:
        self.outcome, self.folder, self.count, self.seconds = outcome, folder, count, seconds
        self.seen, self.counts, self.slowest = 0, Counter[str](), 0.0

    def one(self, data: bytes) -> None:
        """One input; a find is kept and the campaign goes on."""
        began = time.process_time()
        kind, said = self.outcome(data) if data else ("begun", "")  # libFuzzer's first is empty
        spent = time.process_time() - began
        if spent > self.seconds and kind in ("accepted", "refused"):
            kind, said = "find", f"hang: {spent:.0f} s of the processor"
        self.slowest = max(self.slowest, spent)
        self.counts[kind] += 1
        self.seen += 1
        if kind == "find":
            (self.folder / f"find-{self.counts[kind]}").write_bytes(data)
            print(json.dumps({"find": said, "file": f"find-{self.counts[kind]}"}), flush=True)
        if self.seen == self.count:
            print(json.dumps({"counts": self.counts, "slowest": self.slowest}), flush=True)


def _mutator(mutate: Mutate, given: Sequence[bytes]) -> Callable[[bytes, int, int], bytes]:
    """The target's own changes, of the input that libFuzzer chose."""

    def change(data: bytes, most: int, seed: int) -> bytes:
        rng = random.Random(seed)
        try:
            return mutate(rng, [data])[:most]
        except Exception:  # the chosen input is no archive, or no JSON, any more: its like begin anew from a seed
            return mutate(rng, given)[:most]

    return change


if __name__ == "__main__":
    work(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]))
