"""CSV as people have it -> one Polars frame of text: any common separator, BOM, gzip, quotes, UTF-8 or Latin-1.

Nothing is converted here: a task "01" must stay "01", and a bad cell must still be there to be shown.
"""

import csv
import gzip
import io
import re
import zlib
from collections import Counter
from contextlib import suppress
from itertools import islice
from pathlib import Path

import numpy as np
import polars as pl
from jaxtyping import Int

from kdbirl.errors import COLUMNS, MEMORY_BYTES, FileProblem, InputError

# Text in exported CSV that no spreadsheet runs: a cell that begins like a formula gets an apostrophe before it.
#
# A label such as `=HYPERLINK(...)` is a formula to a spreadsheet, and `-1+cmd|...` is one too. Our reader takes the
# apostrophe off again, so that tables come back as they were: `'=x` is written as `''=x`. Numbers stay as they are.

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


SEPARATORS = ("\t", ";", ",", "|")
# First bytes of files that are sometimes called .csv, and what to tell their owner.
FOREIGN = {
    b"PAR1": "a Parquet file: give it a name that ends in .parquet",
    b"\x89PNG": "a PNG image, not a table",
    b"\xff\xd8\xff": "a JPEG image, not a table",
    b"%PDF": "a PDF document, not a table",
    b"PK\x03\x04": "a zip archive or an Excel workbook: save the sheet as CSV first",
    b"\xd0\xcf\x11\xe0": "an old Excel workbook: save the sheet as CSV first",
    b"\x89HDF": "an HDF5 file, not a table: save the table as Parquet or CSV first",
    b"SQLite": "an SQLite database: export the table as CSV first",
}


def read_csv_text(path: Path, data: bytes) -> tuple[pl.DataFrame, Int[np.ndarray, " rows"] | None, str]:
    """(frame of text columns, the line of each row or None when lines and rows do not correspond, separator)."""
    text = _decode(path, _decompress(path, data))
    first, skipped = _header_line(text)
    if not first.strip():
        raise FileProblem(f"{path}: the file is empty; a header line and at least one row are needed.")
    separator = text[4] if skipped else separator_of(first)
    COLUMNS.check(first.count(separator), f"{path} has too many columns")
    names = _names(path, first, separator)
    frame = _parse(path, text, separator, len(names), skipped + 1)
    lines = _lines(text, frame.height, skipped + 2)
    filled = ~frame.select(pl.all_horizontal(pl.all().is_null())).to_series()
    if not filled.all():  # blank lines
        frame, lines = frame.filter(filled), None if lines is None else lines[filled.to_numpy()]
    frame = unguarded_frame(frame) if "'" in text else frame
    return frame.rename(dict(zip(frame.columns, _unique(names), strict=True))), lines, separator


def _names(path: Path, header: str, separator: str) -> list[str]:
    """The columns' names; each but the empty ones is there once."""
    try:
        cells = next(csv.reader(io.StringIO(header), delimiter=separator))
    except csv.Error as error:
        raise FileProblem(f"{path}: the header cannot be read ({error}); is this a table?") from error
    names = [unguarded(name.strip()) for name in cells]
    repeated = sorted(name for name, count in Counter(names).items() if count > 1 and name)
    if repeated:
        raise InputError(f"{path}: the column {repeated[0]!r} is there more than once; rename one of them.")
    return names


def _unique(names: list[str]) -> list[str]:
    """Unnamed columns (an index written by pandas, a trailing separator) get a name that nobody asks for."""
    return [name or f"(unnamed column {i + 1})" for i, name in enumerate(names)]


def _decompress(path: Path, data: bytes) -> bytes:
    if data[:2] != b"\x1f\x8b":
        if path.suffix == ".gz":
            raise FileProblem(f"{path}: the name says gzip, but the content is not; was it already unpacked?")
        return data
    most = MEMORY_BYTES.value
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as stream:
            unpacked = stream.read(most + 1)
            MEMORY_BYTES.check(len(unpacked), f"{path} unpacks to too much")
            return unpacked
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise FileProblem(f"{path}: the gzip file is damaged or cut short ({error}); get it again.") from error


def _decode(path: Path, data: bytes) -> str:
    for magic, meaning in FOREIGN.items():
        if data.startswith(magic):
            raise FileProblem(f"{path}: this is {meaning}.")
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return _unix_lines(data.decode("utf-16", errors="replace"))
    if b"\0" in data[:65536]:
        raise FileProblem(f"{path}: this is not a text file, although its name says CSV.")
    for encoding in ("utf-8-sig", "cp1252"):
        try:
            return _unix_lines(data.decode(encoding))
        except UnicodeDecodeError:
            continue
    return _unix_lines(data.decode("latin-1"))  # every byte is a character there


def _unix_lines(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


def _header_line(text: str) -> tuple[str, int]:
    """The header, and how many lines stand before it (Excel's `sep=;`)."""
    first, _, rest = text.partition("\n")
    if len(first) == 5 and first.lower().startswith("sep=") and first[4].isascii() and first[4] != '"':
        return rest.partition("\n")[0], 1
    return first, 0


def separator_of(header: str) -> str:
    """The candidate that occurs most often outside quotes in the header; tab before semicolon before comma in a tie."""
    outside = "".join(header.split('"')[::2])
    counts = [outside.count(separator) for separator in SEPARATORS]
    return SEPARATORS[int(np.argmax(counts))] if max(counts) else ","


def _parse(path: Path, text: str, separator: str, width: int, skip: int) -> pl.DataFrame:
    try:
        return pl.read_csv(
            io.BytesIO(text.encode()),
            has_header=False,
            skip_lines=skip,
            separator=separator,
            schema={f"c{i}": pl.String for i in range(width)},
            missing_columns="insert",  # short lines have empty cells, which are named if they are needed
            raise_if_empty=False,
            glob=False,
        )
    except pl.exceptions.PolarsError as error:
        raise FileProblem(f"{path}: {_reason(text, separator, width, skip, str(error))}") from error


def _reason(text: str, separator: str, width: int, skip: int, error: str) -> str:
    """Why the parser stopped, found again with Python's own reader, which knows its line."""
    reader = csv.reader(io.StringIO(text), delimiter=separator)
    with suppress(csv.Error):  # a cell that is longer than Python's reader takes
        for fields in islice(reader, skip, None):
            if len(fields) > width:
                return f"line {reader.line_num} has {len(fields)} fields, but the header has {width}; mend that line."
    if '"' in text:
        return 'a quoted cell is never closed, or is not properly quoted; look for a stray " character.'
    return f"this cannot be read as a CSV table ({error.partition(chr(10))[0]})."


def _lines(text: str, rows: int, first: int) -> Int[np.ndarray, " rows"] | None:
    """Line numbers of the rows, if every row is one line (a quoted cell may hold line breaks)."""
    count = text.count("\n") + (not text.endswith("\n")) - (first - 1)
    return np.arange(first, first + rows) if count == rows else None
