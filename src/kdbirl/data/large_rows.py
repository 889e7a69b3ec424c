"""Rows of a table that need not fit into memory: `RowSource`, and Parquet files as one.

A source is an ordered list of *pieces* that can be read apart, here or on another machine: row groups of Parquet files,
partitions of a distributed frame. Everything that is learnt from a bank is a merge over its pieces.
"""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import polars as pl

from kdbirl.data.tables import METADATA_KEY, PARQUET_SUFFIXES, Part, find_files
from kdbirl.errors import FileProblem, InputError

CELLS_AT_ONCE = 2**23  # rows times columns up to which row groups are decoded at once: 64 MB of float64
PIECE_ROWS = 2**20  # small row groups that follow each other are one piece, up to this many rows


@dataclass(frozen=True)
class Roles:
    """Which columns of the table are what, and what was declared about them; as in `read_task_bank`.

    `single_action`: one action column was named, and not a list of one.
    """

    task: str
    state: tuple[str, ...]
    action: tuple[str, ...] = ()
    episode: str | None = None
    step: str | None = None
    state_names: tuple[str, ...] = ()
    action_names: tuple[str, ...] = ()
    single_action: bool = True
    n_states: int | None = None
    n_actions: int | None = None
    actions: tuple[Any, ...] | None = None
    discrete_states: bool | None = None

    @property
    def variables(self) -> tuple[str, ...]:
        """State and action columns."""
        return (*self.state, *self.action)

    @property
    def kinds(self) -> tuple[tuple[str, ...], ...]:
        """The state columns, and the action columns if there are any."""
        return (self.state, self.action) if self.action else (self.state,)

    @property
    def task_and_variables(self) -> tuple[str, ...]:
        """What rows are counted by, each column once."""
        return tuple(dict.fromkeys([self.task, *self.variables]))

    @property
    def every_column(self) -> tuple[str, ...]:
        """All columns that are ever read, each once."""
        optional = [name for name in (self.episode, self.step) if name is not None]
        return tuple(dict.fromkeys([*self.task_and_variables, *optional]))


@runtime_checkable
class RowSource(Protocol):
    """An ordered list of pieces of one table. Picklable; it holds no open file."""

    @property
    def name(self) -> str:
        """How messages call it."""
        ...

    @property
    def schema(self) -> Mapping[str, Any]:
        """All columns and their types."""
        ...

    @property
    def notes(self) -> Mapping[str, Any]:
        """What our own writer noted about the columns."""
        ...

    @property
    def n_pieces(self) -> int: ...

    @property
    def n_rows(self) -> int | None:
        """None where nobody knows before reading."""
        ...

    def rows_of(self, piece: int) -> int | None:
        """Rows of a piece; None where nobody knows before reading."""
        ...

    def read(self, piece: int, columns: Collection[str], rows: int) -> Iterator[pl.DataFrame]:
        """The piece in frames of at most `rows` rows, in their order, with these columns."""
        ...

    def parts(self, piece: int, first: int, rows: int) -> tuple[Part, ...]:
        """Where rows `first` to `first + rows - 1` of a piece come from, for messages."""
        ...

    def fingerprint(self) -> str:
        """A cheap identity of the content: another one where a row is likely to differ."""
        ...


@dataclass(frozen=True)
class ParquetFile:
    """One file: its path, the columns that its directory names (`task=a/`), the rows of its row groups, its schema."""

    path: Path
    hive: tuple[tuple[str, str], ...]
    group_rows: tuple[int, ...]
    schema: Mapping[str, Any] = field(compare=False)
    notes: Mapping[str, Any] = field(compare=False)
    footer: str  # SHA-256 of the footer: sizes, places and statistics of every column of every row group

    def __getstate__(self) -> dict[str, Any]:
        """What another process gets, whose working directory may be another one."""
        return {**self.__dict__, "path": self.path.absolute()}


@dataclass(frozen=True)
class Span:
    """Row groups `first` to `last` - 1 of a file, and how many rows of the file stand before them."""

    file: int
    first: int
    last: int
    rows_before: int
    rows: int


@dataclass(frozen=True)
class ParquetRows:
    """Parquet files as a source. Neighbouring small row groups are one piece; of a large one batches are decoded."""

    files: tuple[ParquetFile, ...]
    pieces: tuple[tuple[Span, ...], ...]

    @classmethod
    def open(cls, source: Any) -> "ParquetRows":
        """Files, a directory or a pattern; only the footers are read."""
        return cls.of_files(find_files(source))

    @classmethod
    def of_files(cls, found: Sequence[tuple[Path, Mapping[str, str]]]) -> "ParquetRows":
        """Files with the columns that their directories name; one with other columns than the first is named."""
        files = tuple(_opened(path, hive) for path, hive in found)
        for file in files[1:]:
            _check_alike(files[0], file)
        pieces = tuple(_packed(files))
        if not pieces:
            raise InputError(f"{files[0].path}: the table has no rows; at least one is needed.")
        return cls(files, pieces)

    @property
    def name(self) -> str:
        """The first file, and how many more."""
        more = f" and {len(self.files) - 1} more" if len(self.files) > 1 else ""
        return f"{self.files[0].path}{more}"

    @property
    def schema(self) -> Mapping[str, Any]:
        """Of the first file, with the columns that directories name."""
        first = self.files[0]
        return {**first.schema, **{name: pl.String() for name, _ in first.hive if name not in first.schema}}

    @property
    def notes(self) -> Mapping[str, Any]:
        """What our writer noted in the only file; nothing for several, as when they are read at once."""
        return self.files[0].notes if len(self.files) == 1 else {}

    @property
    def n_pieces(self) -> int:
        """Row groups, small ones packed together."""
        return len(self.pieces)

    @cached_property
    def n_rows(self) -> int:
        """Rows of all files."""
        return sum(sum(file.group_rows) for file in self.files)

    def rows_of(self, piece: int) -> int:
        """As the footers say."""
        return sum(span.rows for span in self.pieces[piece])

    def read(self, piece: int, columns: Collection[str], rows: int) -> Iterator[pl.DataFrame]:
        """Frames of at most `rows` rows. A file that changed or broke since it was opened is named."""
        waiting: list[pl.DataFrame] = []
        for span in self.pieces[piece]:
            for frame in self._batches(span, columns, rows):
                if waiting and sum(part.height for part in waiting) + frame.height > rows:
                    yield _joined(waiting)
                    waiting = []
                waiting.append(frame)
        if waiting:
            yield _joined(waiting)

    def _batches(self, span: Span, columns: Collection[str], rows: int) -> Iterator[pl.DataFrame]:
        import pyarrow as pa
        import pyarrow.parquet as pq

        file = self.files[span.file]
        hive = {name: value for name, value in file.hive if name in columns and name not in file.schema}
        stored = [name for name in file.schema if name in columns]
        groups, done = list(range(span.first, span.last)), 0
        try:
            at_once = span.rows * len(stored) <= CELLS_AT_ONCE
            buffered = {} if at_once else {"pre_buffer": False, "buffer_size": 2**22}  # bounded memory, half the speed
            with pq.ParquetFile(file.path, memory_map=True, **buffered) as parquet:
                if at_once:
                    whole = parquet.read_row_groups(groups, columns=stored, use_threads=False)
                    batches = (whole.slice(start, rows) for start in range(0, span.rows, rows))
                else:
                    batches = parquet.iter_batches(rows, row_groups=groups, columns=stored, use_threads=False)
                for batch in batches:
                    batch.validate(full=True)  # text that is no UTF-8 would be a panic in Polars
                    frame = pl.from_arrow(batch)
                    assert isinstance(frame, pl.DataFrame)
                    done += frame.height
                    yield frame.with_columns(**{name: pl.lit(value) for name, value in hive.items()}) if hive else frame
        except (pa.ArrowException, OSError) as error:
            raise _damaged(file.path, error) from error
        if done != span.rows:
            raise FileProblem(f"{file.path}: the file changed while it was being read; start again.")

    def parts(self, piece: int, first: int, rows: int) -> tuple[Part, ...]:
        """The file, or files, of some rows, with the place of the first of them."""
        found, end = [], first + rows
        for span in self.pieces[piece]:
            start, stop = max(first, 0), min(end, span.rows)
            if start < stop:
                found.append(Part(str(self.files[span.file].path), stop - start, first=span.rows_before + start))
            first, end = first - span.rows, end - span.rows
        return tuple(found)

    def fingerprint(self) -> str:
        """SHA-256 of the footers, which hold the sizes and statistics of every column chunk, not of every byte."""
        return sha256("\0".join(f"{file.hive}{file.footer}" for file in self.files).encode()).hexdigest()


def is_parquet(source: Any) -> bool:
    """Whether every file of a source (a file, directory or pattern) is Parquet."""
    return all(path.name.lower().endswith(PARQUET_SUFFIXES) for path, _ in find_files(source))


def _joined(frames: list[pl.DataFrame]) -> pl.DataFrame:
    return frames[0] if len(frames) == 1 else pl.concat(frames, how="vertical_relaxed")


def _opened(path: Path, hive: Mapping[str, str]) -> ParquetFile:
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not path.name.lower().endswith(PARQUET_SUFFIXES):
        raise InputError(
            f"{path}: only Parquet files can be streamed; read a CSV whole (--no-stream), or write it as Parquet first."
        )
    try:
        with pq.ParquetFile(path) as parquet:
            metadata = parquet.metadata
            empty = pl.from_arrow(parquet.schema_arrow.empty_table())
        groups = tuple(metadata.row_group(i).num_rows for i in range(metadata.num_row_groups))
        notes = json.loads((metadata.metadata or {}).get(METADATA_KEY.encode(), b"{}"))
        footer = _footer(path)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise _damaged(path, error) from error
    assert isinstance(empty, pl.DataFrame)
    return ParquetFile(path, tuple(hive.items()), groups, dict(empty.schema), notes, footer)


def _footer(path: Path) -> str:
    """SHA-256 of the Parquet footer, whose length stands eight bytes before the end."""
    with path.open("rb") as stream:
        stream.seek(-8, 2)
        length = int.from_bytes(stream.read(4), "little")
        stream.seek(-8 - length, 2)
        return sha256(stream.read(length)).hexdigest()


def _damaged(path: Path, error: Exception) -> FileProblem:
    if isinstance(error, FileNotFoundError):
        return FileProblem(f"{path}: there is no such file any more; it was there when the bank was opened.")
    reason = str(error).split("\n", 1)[0].rstrip(".")
    return FileProblem(f"{path}: the Parquet file is damaged or cut short ({reason}); get it again.")


def _check_alike(first: ParquetFile, file: ParquetFile) -> None:
    """Every file has the first one's columns, of the same kind."""
    ours = {**first.schema, **{name: pl.String() for name, _ in first.hive}}
    theirs = {**file.schema, **{name: pl.String() for name, _ in file.hive}}
    for name in (*ours, *theirs):
        if (name in ours) != (name in theirs):
            has, lacks = (first, file) if name in ours else (file, first)
            raise InputError(f"{lacks.path} has no column {name!r}, but {has.path} has; the files must be alike.")
    for name, dtype in theirs.items():
        if dtype != ours[name] and not (dtype.is_numeric() and ours[name].is_numeric()):
            raise InputError(f"{file.path}: the column {name!r} is {dtype}, but {ours[name]} in {first.path}.")


def _packed(files: tuple[ParquetFile, ...]) -> Iterator[tuple[Span, ...]]:
    """Pieces: row groups in order, packed up to `PIECE_ROWS`; spans of one file are joined."""
    piece: list[Span] = []
    for number, file in enumerate(files):
        before = 0
        for group, rows in enumerate(file.group_rows):
            if piece and sum(span.rows for span in piece) + rows > PIECE_ROWS:
                yield tuple(piece)
                piece = []
            if rows and piece and piece[-1].file == number and piece[-1].last == group:
                last = piece.pop()
                piece.append(Span(number, last.first, group + 1, last.rows_before, last.rows + rows))
            elif rows:
                piece.append(Span(number, group, group + 1, before, rows))
            before += rows
    if piece:
        yield tuple(piece)
