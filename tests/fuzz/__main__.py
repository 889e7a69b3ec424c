"""Fuzz all readers and the command line: `python -m tests.fuzz --seed N --count N [--target NAME ...] [--guided]`."""

import argparse
import json
import sys
import tempfile
from pathlib import Path

from .campaign import campaign, work
from .guided import guided_campaign
from .targets import TARGETS


def main() -> None:
    if sys.argv[1:2] == ["worker"]:
        name, seed, first, last, folder = sys.argv[2:]
        return work(name, int(seed), int(first), int(last), Path(folder))
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=2000, help="inputs in all, by the targets' shares")
    parser.add_argument("--target", action="append", choices=list(TARGETS), help="only this one, and again for others")
    parser.add_argument("--guided", action="store_true", help="choose inputs by the branches they reach (atheris)")
    parser.add_argument("--out", type=Path, default=Path("build/fuzz"), help="where finds and summary.jsonl are kept")
    given = parser.parse_args()
    chosen = [TARGETS[name] for name in given.target or TARGETS]
    if given.guided:
        chosen = [target for target in chosen if not target.guarded]  # its branches are those of a C library
    whole = sum(target.share for target in chosen)
    given.out.mkdir(parents=True, exist_ok=True)
    finds = 0
    with tempfile.TemporaryDirectory(prefix="kdbirl-fuzz-") as place:
        for target in chosen:
            count = max(1, round(given.count * target.share / whole))
            run = guided_campaign if given.guided else campaign
            found = run(target.name, given.seed, count, Path(place) / target.name, given.out / "finds")
            finds += found.get("find", 0)
            with (given.out / "summary.jsonl").open("a") as file:
                file.write(json.dumps({"seed": given.seed, **found}) + "\n")
            print(json.dumps(found), flush=True)
    sys.exit(f"{finds} finds, kept in {given.out / 'finds'}" if finds else 0)


if __name__ == "__main__":
    main()
