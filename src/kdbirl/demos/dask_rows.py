"""A Dask DataFrame as the rows of a streamed bank: each partition is a piece, read where it is needed.

Nothing of Dask is imported: a frame says itself what its partitions are.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

import polars as pl

from kdbirl.demos.tables import Part
from kdbirl.errors import InputError


def is_dask_frame(source: Any) -> bool:
    """Whether this is a Dask DataFrame."""
    return type(source).__module__.startswith("dask") and hasattr(source, "to_delayed") and hasattr(source, "columns")


@dataclass(frozen=True)
class DaskRows:
    """A `RowSource` whose pieces are the partitions of a lazy Dask DataFrame."""

    partitions: tuple[Any, ...] = field(repr=False)
    schema: Mapping[str, Any]
    token: str
    n_rows: int | None = None

    @classmethod
    def of(cls, frame: Any) -> "DaskRows":
        """The partitions as recipes: a worker carries out the recipe of a partition itself."""
        partitions = tuple(frame.to_delayed())
        if any(hasattr(task, "client") or type(task).__name__ == "Future" for task in _graph_values(partitions)):
            raise InputError(
                "This Dask DataFrame is persisted: its rows are on workers, and lost with them. Give the frame as it "
                "was before persist(), for example dask.dataframe.read_parquet(...)."
            )
        empty = pl.from_pandas(frame._meta.reset_index(drop=True))
        return cls(partitions, dict(empty.schema), str(frame._name))

    @property
    def name(self) -> str:
        """How messages call it."""
        return "the Dask DataFrame"

    @property
    def notes(self) -> Mapping[str, Any]:
        """None: our writer's notes are in files."""
        return {}

    @property
    def n_pieces(self) -> int:
        """Partitions."""
        return len(self.partitions)

    def rows_of(self, piece: int) -> None:
        """Nobody knows."""

    def read(self, piece: int, columns: Collection[str], rows: int) -> Iterator[pl.DataFrame]:
        """The partition, computed in this process, in frames of at most `rows` rows."""
        pandas = self.partitions[piece].compute(scheduler="synchronous")
        wanted = [name for name in pandas.columns if name in columns]
        for first in range(0, len(pandas), rows):
            yield pl.from_pandas(pandas[wanted].iloc[first : first + rows].reset_index(drop=True))

    def parts(self, piece: int, first: int, rows: int) -> tuple[Part, ...]:
        """Which partition some rows are of."""
        return (Part(f"partition {piece} of {self.name}", rows, first=first),)

    def fingerprint(self) -> str:
        """Of Dask's own name of the frame, which changes with what it is made of."""
        return sha256(self.token.encode()).hexdigest()


def _graph_values(partitions: tuple[Any, ...]) -> Iterator[Any]:
    """The tasks of the first partition's graph."""
    if partitions:
        yield from dict(partitions[0].__dask_graph__()).values()
