"""Any source of a table (a file, a directory, a glob, a frame) -> `Table`, which knows where each row came from."""

import glob
import json
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from kdbirl._jax import refuse_fork
from kdbirl.archive import opened
from kdbirl.data.arrays import is_frame
from kdbirl.data.csv_text import read_csv_text
from kdbirl.errors import COLUMNS, ENTRIES, MEMORY_BYTES, FileProblem, InputError, did_you_mean

PARQUET_SUFFIXES = (".parquet", ".pq")
CSV_SUFFIXES = (".csv", ".tsv", ".txt", ".csv.gz", ".tsv.gz", ".txt.gz")
BYTES_OF_A_CELL = 8
MOST_NEAR = 1000  # names among which a misspelt one is looked for
METADATA_KEY = "kdbirl"  # what write_demonstrations notes in a Parquet file


@dataclass(frozen=True)
class Part:
    """One file (or frame) of a table. `lines`: the line of each row in a CSV file, where that is known.

    `first`: how many rows of the file stand before these.
    """

    name: str
    rows: int
    lines: np.ndarray | None = None
    first: int = 0


@dataclass(frozen=True)
class Table:
    """A frame and its origin.

    `columns`: all column names there are; `frame` may hold fewer. `untyped`: the cells are text as found in a CSV, so
    numbers are still to be parsed, with decimal commas if `decimal_comma`. `notes`: what our own writer noted.
    """

    frame: pl.DataFrame
    parts: tuple[Part, ...]
    columns: tuple[str, ...]
    untyped: bool = False
    decimal_comma: bool = False
    notes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """How messages call it."""
        more = f" and {len(self.parts) - 1} more" if len(self.parts) > 1 else ""
        return self.parts[0].name + more

    def place(self, row: int) -> str:
        """Where a row (from 0) is, as people count: "row 3 (line 4) of expert.csv"."""
        for part in self.parts:
            if row < part.rows:
                line = "" if part.lines is None else f" (line {part.lines[row]})"
                return f"row {part.first + row + 1}{line} of {part.name}"
            row -= part.rows
        raise IndexError(row)

    def column(self, name: str) -> pl.Series:
        """A column, or the sentence that says which one was probably meant."""
        if name not in self.columns:
            raise InputError(f"{self.name} has no column {name!r}.{did_you_mean(name, self.columns)}")
        return self.frame[name]


def load_table(source: Any, keep: Collection[str] | None = None) -> Table:
    """Load a table; of wide ones only the columns in `keep`. A table without rows is an error."""
    refuse_fork("Polars")
    table = _from_frame(source, keep) if is_frame(source) else _from_files(source, keep)
    if sum(part.rows for part in table.parts) == 0:
        raise InputError(f"{table.name}: the table has no rows; at least one is needed.")
    return table


def _from_frame(source: Any, keep: Collection[str] | None) -> Table:
    frame = source if isinstance(source, pl.DataFrame) else _polars(source)
    return Table(_chosen(frame, keep), (Part("the table", frame.height),), tuple(frame.columns))


def _polars(source: Any) -> pl.DataFrame:
    """A Polars frame from a lazy one or from pandas."""
    if isinstance(source, pl.LazyFrame):
        return source.collect()
    source = source.set_axis([str(column) for column in source.columns], axis=1)
    if not source.columns.is_unique:
        raise InputError("The table has two columns of the same name; rename one of them.")
    for column in source.columns:
        if source[column].dtype == object:
            # Mixed values: as text, so that the reader can show the one that does not fit.
            source = source.assign(**{column: [None if _absent(v) else str(v) for v in source[column]]})
    return pl.from_pandas(source)


def _absent(value: object) -> bool:
    return value is None or value != value or type(value).__name__ == "NAType"


def _chosen(frame: pl.DataFrame, keep: Collection[str] | None) -> pl.DataFrame:
    return frame if keep is None else frame.select([name for name in frame.columns if name in keep])


def _from_files(source: Any, keep: Collection[str] | None) -> Table:
    found = find_files(source)
    tables = [_read_file(path, hive, keep) for path, hive in found]
    return tables[0] if len(tables) == 1 else _joined(tables)


def find_files(source: Any) -> list[tuple[Path, dict[str, str]]]:
    """The files of a source, sorted by name, each with the columns that its directory names (`task=a/part.parquet`)."""
    if isinstance(source, Sequence) and not isinstance(source, str | bytes):
        if not source:
            raise FileProblem("The list of files is empty; give at least one.")
        return [found for item in source for found in find_files(item)]
    try:
        path = Path(source).expanduser()
    except RuntimeError:
        raise FileProblem(f"{source}: there is no such user on this machine.") from None
    except TypeError:
        raise InputError(
            f"A table is a file, a directory, a pattern such as 'runs/*.parquet', or a frame, "
            f"not {type(source).__name__}."
        ) from None
    if path.is_dir():
        return _files_in(path)
    if path.exists():
        return [(path, {})]
    if glob.has_magic(str(path)):
        matches = _matches(str(path))
        if not matches:
            raise FileProblem(f"{source}: no file matches this pattern.")
        return [found for match in matches for found in find_files(match)]
    near = [p.name for p in islice(path.parent.iterdir(), MOST_NEAR)] if path.parent.is_dir() else []
    raise FileProblem(f"{source}: there is no such file.{did_you_mean(path.name, near) if near else ''}")


def _files_in(directory: Path) -> list[tuple[Path, dict[str, str]]]:
    files = []
    for path in sorted(_entries(directory)):
        if path.name.lower().endswith(PARQUET_SUFFIXES + CSV_SUFFIXES):
            parents = path.relative_to(directory).parts
            files.append((path, dict(part.split("=", 1) for part in parents[:-1] if "=" in part)))
    if not files:
        raise FileProblem(f"{directory}: this directory has no table (a .parquet, .csv or .tsv file).")
    return files


def _entries(directory: Path) -> Iterator[Path]:
    """Every file below a directory that is not hidden. Links to directories are not followed, and a search of half the
    disk (`--training /`) ends with a sentence."""
    looked_at, queue = 0, [directory]
    while queue:
        place = queue.pop()
        for entry in _listed(place, must=place == directory):
            looked_at += 1
            ENTRIES.check(looked_at, f"{directory} is too large a place to look for tables; name them more closely")
            if entry.name.startswith((".", "_")):
                continue
            if entry.is_dir(follow_symlinks=False):
                queue.append(Path(entry.path))
            elif entry.is_file():
                yield Path(entry.path)


def _listed(directory: Path, must: bool) -> "list[os.DirEntry[str]]":
    try:
        with os.scandir(directory) as entries:
            return list(islice(entries, ENTRIES.value + 1))
    except OSError as error:
        if not must:  # a closed directory inside an open one
            return []
        raise FileProblem(f"{directory}: cannot be read ({error.strerror or error}).") from error


def _matches(pattern: str) -> list[str]:
    """The paths that a pattern stands for; what `**` would search is measured first."""
    if "**" in pattern:
        start = Path(os.path.dirname(glob.escape(pattern).partition("[")[0]) or ".")  # noqa: PTH120 (a slash may end it)
        all(True for _ in (_entries(start) if start.is_dir() else ()))
    found = list(islice(glob.iglob(pattern, recursive=True), ENTRIES.value + 1))  # noqa: PTH207 (it may be absolute)
    ENTRIES.check(len(found), f"{pattern} stands for too many files")
    return sorted(found)


def _read_file(path: Path, hive: Mapping[str, str], keep: Collection[str] | None) -> Table:
    try:
        with opened(path, "expected a table") as file:
            magic = file.read(4)
            name = path.name.lower()
            if name.endswith(PARQUET_SUFFIXES) or (magic == b"PAR1" and not name.endswith(CSV_SUFFIXES)):
                table = _read_parquet(path, magic, keep)
            else:
                table = _read_csv(path, magic + file.read(), keep)
    except OSError as error:
        raise FileProblem(f"{path}: cannot be read ({error.strerror or error}).") from error
    for column, value in hive.items():
        if column not in table.columns:
            frame = table.frame.with_columns(pl.lit(value).alias(column))
            table = Table(
                _chosen(frame, keep), table.parts, (*table.columns, column), table.untyped, table.decimal_comma
            )
    return table


def _read_parquet(path: Path, magic: bytes, keep: Collection[str] | None) -> Table:
    if magic != b"PAR1":
        kind = "it is empty" if not magic else "its content is something else"
        raise FileProblem(f"{path}: the name says Parquet, but {kind}; if it is a CSV, give it a name ending in .csv.")
    # by PyArrow: at some damaged files Polars panics, or ends the whole process
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as parquet:
            _check_parquet(path, parquet.metadata, keep)
            names = list(parquet.schema_arrow.names)
            columns = None if keep is None else [name for name in names if name in keep]
            cells = parquet.read(columns=columns or None)
            cells.validate(full=True)  # text that is no UTF-8 would be a panic in Polars
            frame = pl.from_arrow(cells)
            notes = json.loads((parquet.metadata.metadata or {}).get(METADATA_KEY.encode(), b"{}"))
        assert isinstance(frame, pl.DataFrame)
    except InputError:
        raise
    except BaseException as error:  # PyArrow and Polars raise whatever they stumble over; a panic is no Exception
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        reason = (str(error).splitlines() or [""])[0][:200]
        raise FileProblem(f"{path}: the Parquet file is damaged or cut short ({reason}); get it again.") from error
    notes = notes if isinstance(notes, dict) else {}
    return Table(frame, (Part(str(path), frame.height),), tuple(names), notes=notes)


def _check_parquet(path: Path, about: Any, keep: Collection[str] | None) -> None:
    """What the file says that it unpacks to: a few kilobytes can claim, and hold, terabytes of repeated values."""
    COLUMNS.check(about.num_columns, f"{path} has too many columns")
    unpacked = 0
    for group in range(about.num_row_groups):
        chunks = about.row_group(group)
        for chunk in map(chunks.column, range(chunks.num_columns)):
            if keep is None or chunk.path_in_schema.partition(".")[0] in keep:
                unpacked += max(chunk.num_values * BYTES_OF_A_CELL, chunk.total_uncompressed_size)
    MEMORY_BYTES.check(unpacked, f"{path} unpacks to too much")


def _read_csv(path: Path, data: bytes, keep: Collection[str] | None) -> Table:
    if not data:
        raise FileProblem(f"{path}: the file is empty; a header line and at least one row are needed.")
    frame, lines, separator = read_csv_text(path, data)
    part = Part(str(path), frame.height, lines)
    return Table(_chosen(frame, keep), (part,), tuple(frame.columns), untyped=True, decimal_comma=separator in ";\t")


def _joined(tables: Sequence[Table]) -> Table:
    """All rows of several files with the same columns; a file that differs from the first is named."""
    first = tables[0]
    for table in tables[1:]:
        _check_alike(first, table)
    frame = pl.concat([table.frame.select(first.frame.columns) for table in tables], how="vertical_relaxed")
    parts = tuple(part for table in tables for part in table.parts)
    commas = any(table.decimal_comma for table in tables)
    return Table(frame, parts, first.columns, first.untyped, commas)


def _check_alike(first: Table, table: Table) -> None:
    if first.untyped != table.untyped:
        raise InputError(f"{table.name}: CSV and Parquet files are mixed here ({first.name} differs); read them apart.")
    for name in (*first.columns, *table.columns):
        if (name in first.columns) != (name in table.columns):
            has, lacks = (first, table) if name in first.columns else (table, first)
            raise InputError(f"{lacks.name} has no column {name!r}, but {has.name} has; the files must be alike.")
    for name, dtype in table.frame.schema.items():
        other = first.frame.schema[name]
        if dtype != other and not (dtype.is_numeric() and other.is_numeric()):
            raise InputError(f"{table.name}: the column {name!r} is {dtype}, but {other} in {first.name}.")


# Columns as they are written on the command line: `x,y` and `x=pos_x,action=act`.


def separated(text: str | None) -> list[str] | None:
    """The names in `x,y`; None where nothing was given."""
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]


def one_or_more(text: str | None) -> str | list[str] | None:
    """A name, or a list where there are several."""
    names = separated(text)
    return names[0] if names and len(names) == 1 else names


def pairs(text: str | None) -> dict[str, str] | None:
    """`{our name: their name}` from `x=pos_x,action=act`."""
    found = {}
    for pair in separated(text) or ():
        ours, equals, theirs = (part.strip() for part in pair.partition("="))
        if not (ours and equals and theirs):
            raise InputError(f"The pair of column names {pair!r} should read ours=theirs, such as x=pos_x.")
        found[ours] = theirs
    return found or None
