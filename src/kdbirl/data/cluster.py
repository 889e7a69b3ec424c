"""A Dask cluster as kdbirl uses it: work on parts, in a fixed order, that a lost worker cannot change.

Two things are done on a cluster: `mapped`, a function of each item, and `merged`, the same with results put together
two by two. The order of the merges depends on the number of items alone, never on the number of workers or on which is
quicker, so that every cluster gives the same bits. Whatever workers need is part of the task that needs it, not data
that some worker holds: when a worker dies, Dask computes again what was lost. This file alone imports Dask.
"""

import re
import warnings
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, TypeVar
from uuid import uuid4

import polars as pl

from kdbirl._jax import one_core
from kdbirl.data.large import StreamedBank
from kdbirl.data.large_pass import merged, summarise_piece
from kdbirl.data.large_pieces import PieceSummary
from kdbirl.data.large_summary import BankSummary
from kdbirl.data.tables import Part
from kdbirl.errors import InputError, KDBIRLError, KDBIRLWarning, MissingDependency
from kdbirl.progress import Progress, Silent

T = TypeVar("T")

CONNECT_SECONDS = 10
ADDRESS = re.compile(r"([a-z]+://)?(\[[0-9a-fA-F:.]+\]|[^\s:/]+):\d+")
IN_FLIGHT = 3  # tasks that wait for each thread of the cluster: enough to keep it busy, few enough for its memory
ONE_THREAD = {  # of a worker with one thread: each of these libraries would start a thread for every core of its own
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "POLARS_MAX_THREADS": "1",
    "NPROC": "1",
}


def _distributed() -> Any:
    try:
        import distributed
    except ImportError:
        raise MissingDependency("A cluster needs the package distributed: pip install 'kdbirl[dask]'.") from None
    return distributed


@contextmanager
def connected(address: str, progress: Progress | None = None) -> Iterator["Cluster"]:
    """The cluster whose scheduler is at an address such as `tcp://10.0.0.1:8786`."""
    distributed = _distributed()
    if not ADDRESS.fullmatch(address):
        raise InputError(f"{address!r} is no scheduler's address; expected one such as tcp://10.0.0.1:8786.")
    shown = progress or Silent()
    shown.update("connecting", 0, 1, f"to the scheduler at {address}")
    try:
        client = distributed.Client(address, timeout=CONNECT_SECONDS, set_as_default=False)
    except (OSError, ValueError) as problem:
        raise InputError(f"There is no Dask scheduler at {address} ({problem}); start one first.") from None
    shown.update("connecting", 1, 1)
    try:
        yield Cluster.of(client)
    finally:
        client.close()


@contextmanager
def maybe_connected(address: str | None, progress: Progress | None = None) -> Iterator["Cluster | None"]:
    """The cluster at an address; None without one."""
    if address is None:
        yield None
    else:
        with connected(address, progress) as cluster:
            yield cluster


@contextmanager
def local_client(workers: int, threads: int = 1, **options: Any) -> Iterator[Any]:
    """A Dask client of a cluster of `workers` processes on this machine, each with so many threads, and no more.

    The limits of JAX, BLAS and Polars must be in a process's environment before it starts; Dask's `env=` comes later.
    """
    distributed = _distributed()
    from dask import config

    limits = {name: str(threads) for name in ONE_THREAD if name != "XLA_FLAGS"}
    settings = {"distributed.nanny.pre-spawn-environ": ONE_THREAD if threads == 1 else limits}
    given = {"processes": True, "dashboard_address": ":0", **options}
    with (
        config.set(settings),
        distributed.LocalCluster(n_workers=workers, threads_per_worker=threads, **given) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        yield client


@dataclass(frozen=True)
class Cluster:
    """A Dask client, and the two ways in which it is used."""

    client: Any

    @classmethod
    def of(cls, client: Any) -> "Cluster":
        """Of a `distributed.Client` (or a `Cluster`, as it is)."""
        if isinstance(client, Cluster):
            return client
        if not isinstance(client, _distributed().Client):
            raise InputError(f"client: expected a distributed.Client, not {type(client).__name__}.")
        if client.asynchronous:
            raise InputError("client: an asynchronous Dask client cannot be used here; leave asynchronous=True out.")
        return cls(client)

    def mapped(
        self,
        function: Callable[..., T],
        items: Iterable[Any],
        shared: tuple[Any, ...] = (),
        progress: Progress | None = None,
        job: str = "cluster",
    ) -> list[T]:
        """function(item, *shared) of each item, in their order; a few at a time are on their way."""
        items, kept = list(items), self._kept(shared)
        progress, results, waiting = progress or Silent(), list[T](), deque[Any]()
        most = self._in_flight()
        for item in items:
            waiting.append(self._submit(function, item, *kept))
            if len(waiting) > most:
                results.append(self._result(waiting.popleft()))
                progress.update(job, len(results), len(items), "on the cluster")
        while waiting:
            results.append(self._result(waiting.popleft()))
            progress.update(job, len(results), len(items), "on the cluster")
        return results

    def merged(
        self,
        function: Callable[..., T],
        items: Iterable[Any],
        merge: Callable[[T, T], T],
        shared: tuple[Any, ...] = (),
        progress: Progress | None = None,
        job: str = "cluster",
    ) -> T:
        """The results of `mapped` put together by `merge`, neighbours first: ((1 2) (3 4)) ((5 6) 7).

        The workers merge; what has been merged is let go, so that the cluster holds a few results at a time.
        """
        items, kept = list(items), self._kept(shared)
        progress, waiting, most = progress or Silent(), deque[Any](), self._in_flight()
        stack: list[tuple[int, Any]] = []  # neighbouring parts of falling sizes: how many items, and their future
        for number, item in enumerate(items):
            leaf = self._submit(function, item, *kept)
            stack.append((1, leaf))
            waiting.append(leaf)
            while len(stack) > 1 and stack[-1][0] == stack[-2][0]:
                self._merge_last(stack, merge)
            if len(waiting) > most:
                self._wait(waiting.popleft())
                progress.update(job, number + 1 - len(waiting), len(items), "on the cluster")
        while len(stack) > 1:
            self._merge_last(stack, merge)
        while waiting:
            self._wait(waiting.popleft())
            progress.update(job, len(items) - len(waiting), len(items), "on the cluster")
        result: T = self._result(stack[0][1])
        return result

    def _merge_last(self, stack: list[tuple[int, Any]], merge: Callable[..., Any]) -> None:
        (more, second), (size, first) = stack.pop(), stack.pop()
        stack.append((size + more, self._submit(merge, first, second)))

    def _kept(self, shared: tuple[Any, ...]) -> list[Any]:
        """Values that every task gets, sent once. They are results of tasks, so that a lost one is sent again."""
        return [self._submit(_itself, value) for value in shared]

    def _submit(self, function: Callable[..., Any], *arguments: Any) -> Any:
        # Dask expects tasks of one name to take equally long
        key = f"{getattr(function, '__name__', 'work').strip('_')}-{uuid4().hex}"
        return self.client.submit(_on_one_core, function, *arguments, key=key, pure=False)

    def _in_flight(self) -> int:
        threads = sum(self.client.nthreads().values())
        if not threads:  # not an error: some clusters start workers when there is work
            warnings.warn(
                f"The cluster has no workers yet, and work waits for one: dask worker {self.client.scheduler.address}",
                KDBIRLWarning,
                stacklevel=4,
            )
        return IN_FLIGHT * max(threads, 1)

    def _wait(self, future: Any) -> None:
        if future.exception() is not None:  # which waits, and moves no result
            self._result(future)

    def _result(self, future: Any) -> Any:
        distributed = _distributed()
        try:
            return future.result()
        except distributed.KilledWorker as problem:
            raise KDBIRLError(
                "Several workers of the cluster died at the same piece of work, usually for want of memory: give them "
                f"more memory, or the bank smaller row groups ({problem})."
            ) from problem


def _on_one_core(function: Callable[..., T], *arguments: Any) -> T:
    """A task of a cluster has one core to itself: a worker does as many tasks at once as it has threads."""
    with one_core():
        return function(*arguments)


def _itself(value: T) -> T:
    return value


# A Dask DataFrame as the rows of a streamed bank: each partition is a piece, read where it is needed.
#
# Nothing of Dask is imported: a frame says itself what its partitions are.


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


# The one pass over a streamed bank, made by a cluster.


def summarise_on(cluster: Cluster, bank: StreamedBank, seed: int, progress: Progress | None = None) -> BankSummary:
    """As `summarise(bank, seed)`: each worker summarises whole pieces, summaries are merged by a tree."""
    if seed not in bank._summaries:
        pieces, shared = range(bank.source.n_pieces), (bank, seed)
        found = cluster.merged(_summary, pieces, merged, shared, progress, "reading")
        bank._summaries[seed] = BankSummary.of(bank, found)
    return bank._summaries[seed]


def _summary(piece: int, bank: StreamedBank, seed: int) -> PieceSummary | None:
    return summarise_piece(bank, piece, seed)
