"""The tidy table of a comparison, a row for each method, n, seed and test task; and its summary, for people.

Within a seed the training tasks are shared, so a mean over the test tasks of each seed comes first; means and standard
errors are then over seeds. Times are medians: the first posterior of a process also compiles.
"""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from kdbirl.data.csv_text import guarded

COLUMNS = (
    "world",
    "method",
    "n",
    "seed",
    "task",
    "evd",
    "regret",
    "regret_of_mean",
    "log_density",
    "bounded",
    "coverage",
    "seconds",
    "fit_seconds",
    "problem",
)
MEASURES = ("evd", "regret", "regret_of_mean", "bounded", "coverage")
SHOWN = {
    "regret": "regret",
    "regret_of_mean": "of its mean",
    "bounded": "log density",
    "coverage": "coverage",
    "seconds": "seconds",
}

Row = Mapping[str, Any]
TERMINAL = 80  # columns


def csv_text(rows: Iterable[Row]) -> str:
    """The tidy table; a measure that does not apply is empty."""
    stream = io.StringIO()
    writer = csv.DictWriter(stream, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({name: _cell(row.get(name)) for name in COLUMNS})
    return stream.getvalue()


def _cell(value: Any) -> Any:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.8g}"
    return guarded(value) if isinstance(value, str) else value


def summary(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """One row for each method and n: means over seeds, `<measure>_error` their standard errors, median times."""
    found = []
    for method in dict.fromkeys(row["method"] for row in rows):
        for n in sorted({row["n"] for row in rows}):
            own = [row for row in rows if row["method"] == method and row["n"] == n]
            found += [{"method": method, "n": n, **_measured(own)}] if own else []
    return found


def _measured(rows: Sequence[Row]) -> dict[str, Any]:
    measured: dict[str, Any] = {"seeds": len({row["seed"] for row in rows}), "answers": len(rows)}
    measured["failed"] = sum(row.get("problem") is not None for row in rows)
    for name in MEASURES:
        measured[name], measured[f"{name}_error"] = _over_seeds(rows, name)
    answered = [row for row in rows if row.get("problem") is None]
    for name in ("seconds", "fit_seconds"):
        measured[name] = float(np.median([row[name] for row in answered])) if answered else None
    return measured


def _over_seeds(rows: Sequence[Row], name: str) -> tuple[float | None, float | None]:
    """The mean over seeds of the means over their tasks, and its standard error (None with one seed)."""
    by_seed: dict[int, list[float]] = {}
    for row in rows:
        if row.get(name) is not None and np.isfinite(row[name]):
            by_seed.setdefault(row["seed"], []).append(row[name])
    if not by_seed:
        return None, None
    means = np.array([np.mean(values) for values in by_seed.values()])
    error = float(means.std(ddof=1) / np.sqrt(len(means))) if len(means) > 1 else None
    return float(means.mean()), error


def summary_text(table: Sequence[Row], labels: Mapping[str, str], title: str) -> str:
    """The summary in columns: `mean ± standard error`, a dash where a measure does not apply."""
    head = ["method", "n", *SHOWN.values()]
    lines = [[labels.get(row["method"], row["method"]), str(row["n"]), *map(_shown(row), SHOWN)] for row in table]
    widths = [max(len(line[i]) for line in [head, *lines]) for i in range(len(head))]
    between = "  " if sum(widths) + 2 * (len(widths) - 1) <= TERMINAL else " "
    widths[0] = min(widths[0], max(7, TERMINAL - sum(widths[1:]) - len(between) * (len(widths) - 1)))
    printed = [
        between.join(
            text[:width].ljust(width) if i == 0 else text.rjust(width)
            for i, (text, width) in enumerate(zip(line, widths, strict=True))
        )
        for line in [head, *lines]
    ]
    failed = sum(row["failed"] for row in table)
    told = (
        f"\n{failed} answer{'s' * (failed > 1)} failed: the column `problem` of the table says why." if failed else ""
    )
    return "\n".join([title, "", *printed]) + told


def _shown(row: Row) -> Any:
    def text(name: str) -> str:
        if row[name] is None:
            return "-"
        error = row.get(f"{name}_error")
        return f"{row[name]:.2f}" + ("" if error is None else f"±{error:.2f}")

    return text
