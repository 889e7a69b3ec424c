"""Text in exported CSV that no spreadsheet runs: a cell that begins like a formula gets an apostrophe before it.

A label such as `=HYPERLINK(...)` is a formula to a spreadsheet, and `-1+cmd|...` is one too. Our reader takes the
apostrophe off again, so that tables come back as they were: `'=x` is written as `''=x`. Numbers stay as they are.
"""

import re

import polars as pl

BEGINS_LIKE_A_FORMULA = r"'*[=+\-@\t\r＝＋－＠]"  # noqa: RUF001 (the wide forms are formulas too, in some spreadsheets)
NUMBER = r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?"
_FORMULA, _NUMBER = re.compile(BEGINS_LIKE_A_FORMULA), re.compile(NUMBER)


def guarded(text: str) -> str:
    """The cell to write."""
    return f"'{text}" if _FORMULA.match(text) and not _NUMBER.fullmatch(text) else text


def unguarded(text: str) -> str:
    """The text that was written as this cell."""
    return text[1:] if text.startswith("'") and _FORMULA.match(text) else text


def guarded_frame(frame: pl.DataFrame) -> pl.DataFrame:
    """A table with every text cell, and every column's name, as they are to be written."""
    text = pl.col(pl.String, pl.Enum, pl.Categorical).cast(pl.String)
    formula = text.str.contains(f"^{BEGINS_LIKE_A_FORMULA}") & ~text.str.contains(f"^{NUMBER}$")
    safe = frame.with_columns(pl.when(formula).then("'" + text).otherwise(text).name.keep())
    return safe.rename(guarded)


def unguarded_frame(frame: pl.DataFrame) -> pl.DataFrame:
    """The cells of a table of text as they were before they were written."""
    return frame.with_columns(pl.all().str.replace(f"^'({BEGINS_LIKE_A_FORMULA})", "${1}"))
