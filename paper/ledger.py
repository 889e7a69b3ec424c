"""The ledger, `claims.csv`: one row for each claim of the paper and each variant of its setting.

A verdict is decided by a statistic with its interval over seeds, and never by fewer than ten seeds.
"""

import csv
import io
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal

from kdbirl.archive import opened, write_text
from kdbirl.data.csv_text import guarded, unguarded
from kdbirl.errors import FileProblem, InputError

Verdict = Literal["holds", "does not hold", "cannot be decided", "not decided (quick)"]
VERDICTS: tuple[Verdict, ...] = ("holds", "does not hold", "cannot be decided", "not decided (quick)")
VARIANTS = ("printed", "released", "ours")  # as the text says, as the authors' scripts do it, our best honest settings
FEWEST_SEEDS = 10
FILE = "claims.csv"


@dataclass(frozen=True)
class Claim:
    """A claim, where it stands in the paper, the number that decides it with its 95 % interval, the verdict and why."""

    experiment: str
    name: str
    variant: str
    claim: str
    where: str
    statistic: str
    number: float
    low: float
    high: float
    seeds: int
    verdict: str
    why: str

    def __post_init__(self) -> None:
        if self.verdict not in VERDICTS:
            raise InputError(f"verdict={self.verdict!r} should be one of: {', '.join(VERDICTS)}.")
        if self.variant not in VARIANTS:
            raise InputError(f"variant={self.variant!r} should be one of: {', '.join(VARIANTS)}.")


def opposite(verdict: Verdict) -> Verdict:
    """The verdict on the contrary."""
    return {"holds": "does not hold", "does not hold": "holds"}.get(verdict, verdict)  # type: ignore[return-value]


def withheld(claim: Claim, quick: bool) -> Claim:
    """The claim without a verdict where the run was too small for one."""
    if quick:
        return replace(claim, verdict="not decided (quick)", why="a quick run: small sizes, few seeds")
    if claim.seeds < FEWEST_SEEDS:
        reason = f"{claim.seeds} seeds; {FEWEST_SEEDS} are needed for a verdict"
        return replace(claim, verdict="cannot be decided", why=reason)
    return claim


def ledger_text(claims: Sequence[Claim]) -> str:
    """The ledger as CSV."""
    stream = io.StringIO()
    writer = csv.DictWriter(stream, [field.name for field in fields(Claim)], lineterminator="\n")
    writer.writeheader()
    for claim in claims:
        writer.writerow({k: guarded(v) if isinstance(v, str) else v for k, v in asdict(claim).items()})
    return stream.getvalue()


def read_ledger(path: Path) -> list[Claim]:
    """The claims of a ledger; none where there is no file."""
    if not path.exists():
        return []
    try:
        with opened(path, "expected a ledger of claims") as stream:
            rows = list(csv.DictReader(io.StringIO(stream.read().decode("utf-8"), newline="")))
        return [_claim(row) for row in rows]
    except (AttributeError, KeyError, TypeError, ValueError, csv.Error) as problem:
        raise FileProblem(
            f"{path} is not a ledger of claims ({problem}); move it away, or choose another directory."
        ) from problem


def _claim(row: dict[str, str]) -> Claim:
    values: dict[str, Any] = {field.name: unguarded(row[field.name]) for field in fields(Claim)}
    for name, kind in (("number", float), ("low", float), ("high", float), ("seeds", int)):
        values[name] = kind(values[name])
    return Claim(**values)


def update_ledger(path: Path, claims: Sequence[Claim]) -> None:
    """Replace the rows of the experiments and variants in `claims`; all others stay."""
    renewed = {(claim.experiment, claim.variant) for claim in claims}
    kept = [claim for claim in read_ledger(path) if (claim.experiment, claim.variant) not in renewed]
    write_text(path, ledger_text([*kept, *claims]))
