"""What the study of bandwidth rules found: one row for each world, K, n and rule, and the claims that it decides."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from kdbirl.experiments.ledger import Claim, Verdict, withheld
from kdbirl.experiments.statistics import Interval

NAME = "bandwidths"
WHERE = "Section 5 (bandwidths by the variance of distances); no claim of coverage is printed"
PROMISED, LOWEST, HIGHEST = 0.9, 0.85, 0.97
MEASURES = ("coverage", "bounded", "log_density", "squared_error", "evd", "evd_of_mean")
Row = dict[str, Any]


def summary(rows: Sequence[Row]) -> list[Row]:
    """Means over banks, each with its standard error over banks, and the mean choices of each cell and rule."""
    cells = dict.fromkeys((row["world"], row["K"], row["n"], row["rule"]) for row in rows)
    return [_summed(cell, [row for row in rows if _cell(row) == cell]) for cell in cells]


def _cell(row: Row) -> tuple[Any, ...]:
    return row["world"], row["K"], row["n"], row["rule"]


def _summed(cell: tuple[Any, ...], own: Sequence[Row]) -> Row:
    found: Row = dict(zip(("world", "K", "n", "rule"), cell, strict=True))
    found |= {"banks": len(own), "test_tasks": sum(len(row["coverage"]) for row in own)}
    for name in MEASURES:
        means = np.array([np.mean(row[name]) for row in own])
        error = float(means.std(ddof=1) / np.sqrt(len(means))) if len(means) > 1 else None
        found |= {name: float(means.mean()), f"{name}_error": error}
    for name in ("h", "h_reward", "power"):
        found[name] = float(np.mean([row[name] for row in own]))
    return found


def claims(rows: Sequence[Row], quick: bool) -> list[Claim]:
    """Whether intervals hold the truth as often as promised, in the worst cell of each rule."""
    table, rules = summary(rows), dict.fromkeys(row["rule"] for row in rows)
    return [withheld(_claim(rule, [row for row in table if row["rule"] == rule], rows), quick) for rule in rules]


def _claim(rule: str, cells: Sequence[Row], rows: Sequence[Row]) -> Claim:
    worst = max(cells, key=lambda row: abs(row["coverage"] - PROMISED))
    own = [np.mean(row["coverage"]) for row in rows if _cell(row) == _cell(worst)]
    interval, inside = Interval.of(np.asarray(own)), all(LOWEST <= row["coverage"] <= HIGHEST for row in cells)
    verdict: Verdict = "holds" if inside else "does not hold"
    lowest, highest = (find(row["coverage"] for row in cells) for find in (min, max))
    return Claim(
        experiment=NAME,
        name=f"coverage-{rule}",
        variant="printed" if rule == "paper" else "ours",
        claim=f"With the rule {rule!r}, 90 % intervals hold the truth in 85 to 97 % of new tasks, in every cell.",
        where=WHERE,
        statistic=f"coverage in the worst cell ({worst['world']}, {worst['K']} tasks, {worst['n']} rows)",
        number=interval.number,
        low=interval.low,
        high=interval.high,
        seeds=len(own),
        verdict=verdict,
        why=f"coverage is {lowest:.2f} to {highest:.2f} over {len(cells)} cells",
    )
