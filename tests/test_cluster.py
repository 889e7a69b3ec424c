"""A real cluster of two worker processes: the same numbers as here, whatever becomes of a worker."""

import os
import signal
import time
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import kdbirl as kb
from kdbirl import cli
from kdbirl._jax import cores
from kdbirl.data.cluster import Cluster, DaskRows, connected, local_client
from kdbirl.data.large_pass import summarise
from kdbirl.data.large_reader import stream_task_bank
from kdbirl.data.large_summary import BankSummary
from kdbirl.errors import InputError, KDBIRLWarning
from kdbirl.evaluation.cells import CellStore
from kdbirl.evaluation.comparison import Comparison
from kdbirl.evaluation.contenders import Budget
from kdbirl.likelihood import large_sums as cluster_rows
from kdbirl.likelihood.kernels import as_kernel, on_columns
from kdbirl.likelihood.large_sums import ClusterRows, StreamedRows
from kdbirl.likelihood.sums import task_log_sums

from .likelihood import direct_sum
from .methods.banks import continuous
from .methods.streamed import CONTINUOUS, expert, table, written

# Python 3.12 warns of fork in a process with threads; the workers are spawned by a fork server
pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


@pytest.fixture(scope="module")
def client():
    """Two worker processes of one thread each."""
    with local_client(2, memory_limit=0) as client:
        yield client


@pytest.fixture(scope="module")
def parquet(tmp_path_factory) -> Path:
    return written(tmp_path_factory.mktemp("bank"), table(1200), files=6, row_group=100)


@pytest.fixture
def on_disk(monkeypatch):
    """Small banks are kept whole; as large ones, they stay where they are."""
    made = BankSummary.of
    monkeypatch.setattr(BankSummary, "of", lambda bank, found: replace(made(bank, found), exact=False))


def streamed(parquet: Path, source=None) -> kb.StreamedBank:
    """A bank of many small pieces that is not kept whole in memory."""
    return stream_task_bank(parquet if source is None else source, **CONTINUOUS)


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch):
    monkeypatch.setattr("kdbirl.data.large_rows.PIECE_ROWS", 100)


MODEL = {"prior": kb.Uniform(0, 1), "bandwidth": (0.5, 0.4), "sampler": kb.Grid(draws=50, chains=2)}


def fitted(bank, **client):
    """Fitted with kernel sums over all rows, as for banks whose distinct rows do not fit into memory."""
    return kb.KDBIRL(**MODEL).fit(bank, **client)


class Slow:
    """Rows whose sums take a while: time to kill a worker."""

    def __init__(self, rows):
        self.rows, self.rows_per_task = rows, rows.rows_per_task

    def piece_log_sums(self, piece, *question):
        time.sleep(0.15)
        return self.rows.piece_log_sums(piece, *question)


def worker_pid(_: int) -> int:
    return os.getpid()


def double(value: int, by: int) -> int:
    return value * by


def joined(first: str, second: str) -> str:
    return f"({first} {second})"


def text(value: int) -> str:
    return str(value)


def test_a_cluster_without_workers_is_said():
    """It is no error: some start workers when there is work."""
    with local_client(0) as empty, pytest.warns(KDBIRLWarning, match="no workers yet, .* dask worker tcp://127.0.0.1:"):
        assert Cluster.of(empty)._in_flight() == 3


def test_workers_are_other_processes_with_one_thread_each(client):
    pids = set(Cluster(client).mapped(worker_pid, range(20)))
    assert len(pids) == 2
    assert os.getpid() not in pids
    assert set(client.nthreads().values()) == {1}
    limits = client.run(lambda: {name: os.environ.get(name) for name in ("XLA_FLAGS", "OMP_NUM_THREADS")})
    assert all("multi_thread_eigen=false" in own["XLA_FLAGS"] for own in limits.values())


def slow_pid_and_cores(_: int, shared: str) -> tuple[int, int]:
    time.sleep(0.1)
    return os.getpid(), cores()


def test_all_workers_get_work_that_shares_a_value_and_each_task_has_one_core(client):
    found = Cluster(client).mapped(slow_pid_and_cores, range(16), ("a value that one worker holds",))
    times = Counter(pid for pid, _ in found)
    assert len(times) == 2
    assert min(times.values()) >= 4
    assert {own for _, own in found} == {1}


def test_the_order_of_results_and_merges_is_fixed(client):
    cluster = Cluster(client)
    assert cluster.mapped(double, range(30), (3,)) == [3 * value for value in range(30)]
    assert cluster.merged(text, range(1, 8), joined) == "(((1 2) (3 4)) ((5 6) 7))"
    assert cluster.merged(text, [5], joined) == "5"


def test_a_posterior_from_parquet_is_the_same(client, parquet, on_disk):
    rows, bank = expert(table(1200)), streamed(parquet)
    assert bank.source.n_pieces > 5
    here, there = fitted(streamed(parquet)), fitted(bank, client=client)
    assert isinstance(there.fitted.ckde.all_rows, ClusterRows)
    at = np.random.default_rng(0).random((20, 2))
    np.testing.assert_allclose(there.log_likelihood(rows, at), here.log_likelihood(rows, at), rtol=1e-12)
    one, other = here.posterior(rows, seed=1), there.posterior(rows, seed=1)
    np.testing.assert_allclose(other.draws, one.draws, atol=1e-9)
    assert other.cards["support"] == one.cards["support"]


def test_the_command_line_on_a_bank_that_stays_on_disk(client, parquet, on_disk, tmp_path, monkeypatch):
    """With a relative path, although the workers are elsewhere; and the page is written while there is a cluster."""
    monkeypatch.chdir(parquet.parent)
    frame = table(1200).filter(pl.col("task") == "t1").head(15)
    frame.select("episode", "step", "x", "y", "action").write_csv(tmp_path / "expert.csv")
    rewards = pl.DataFrame([{"task": name, "w_x": w[0], "w_y": w[1]} for name, w in CONTINUOUS["rewards"].items()])
    rewards.write_csv(tmp_path / "rewards.csv")
    files = ["--training", parquet.name, "--rewards", f"{tmp_path}/rewards.csv", "--expert", f"{tmp_path}/expert.csv"]
    columns = ["--state", "x,y", "--action", "action", "--prior", "uniform:0,1", "--bandwidth", "median", "--quiet"]
    address = client.scheduler.address
    for name, more in (("here", []), ("there", ["--scheduler", address])):
        assert cli.run(["fit", *files, *columns, "--stream", *more, "--out", str(tmp_path / name)]) == 0
    one, other = (kb.load_posterior(tmp_path / name / "posterior.nc") for name in ("here", "there"))
    np.testing.assert_allclose(other.draws, one.draws, atol=1e-9)
    assert (tmp_path / "there" / "report.html").is_file()


@pytest.mark.parametrize("address", ["foo", "tcp://10.0.0.1", "10.0.0.1:port", ""])
def test_what_is_no_address_is_said_at_once(address):
    with (
        pytest.raises(InputError, match=r"no scheduler's address; expected one such as tcp://10\.0\.0\.1:8786"),
        connected(address),
    ):
        pass


def test_a_killed_worker_changes_nothing(client, parquet):
    """One of two processes is killed while tables are on their way; its nanny starts another for the next test."""
    bank = streamed(parquet)
    model = fitted(bank)
    rows = StreamedRows(summarise(bank, 0).coded, model.fitted.features)
    asked = model.fitted.features(expert(table(1200))), model.fitted.ckde.kernel, np.array([0.5])
    columns = tuple(range(asked[0].shape[1]))
    here = rows.task_log_sums(*asked, columns)
    cluster = Cluster.of(client)
    quiet = ClusterRows(rows, bank.source.n_pieces, cluster).task_log_sums(*asked, columns)
    np.testing.assert_allclose(quiet, here, rtol=1e-12, atol=1e-12)
    victim, killed = cluster.mapped(worker_pid, [0])[0], []

    class Killer:
        def update(self, name, done, total, note=""):
            if done >= 2 and not killed:
                os.kill(victim, signal.SIGKILL)
                killed.append(done)

        def close(self):
            return None

    table_after = ClusterRows(Slow(rows), bank.source.n_pieces, cluster).task_log_sums(*asked, columns, Killer())
    assert killed
    assert killed[0] < bank.source.n_pieces
    np.testing.assert_array_equal(table_after, quiet)


def test_a_bank_in_memory_and_loto_over_tasks(client, monkeypatch):
    monkeypatch.setattr("kdbirl.likelihood.large_sums.PIECE_BYTES", 2000)
    bank, rows = continuous(tasks=8, rows=20)
    settings = kb.LotoSettings(h_factors=(0.25, 0.5), h_reward_factors=(0.5, 1.0), powers=(1.0, 0.25))
    choices = {"prior": kb.Uniform(-1, 1), "features": kb.Identity(), "bandwidth": settings}
    here, there = kb.KDBIRL(**choices).fit(bank, n=10), kb.KDBIRL(**choices).fit(bank, n=10, client=client)
    one, other = (model.fitted.choices.for_rows(10).loto for model in (here, there))
    np.testing.assert_allclose(other.means, one.means, rtol=1e-12)
    np.testing.assert_allclose(
        [other.h[0], other.h_reward, other.power], [one.h[0], one.h_reward, one.power], rtol=1e-9
    )
    at = np.random.default_rng(0).uniform(-1, 1, (9, 2))
    assert there.fitted.ckde.all_rows.n_pieces > 1
    few = rows.take(slice(0, 10))
    np.testing.assert_allclose(there.log_likelihood(few, at), here.log_likelihood(few, at), rtol=1e-12)


def test_a_table_that_is_asked_for_again_is_not_made_again(client, monkeypatch):
    """As the page of a run does it; another question is another table."""
    rng = np.random.default_rng(0)
    held = cluster_rows.RowsInMemory(rng.normal(size=(60, 2)), np.ones(60), np.arange(60) // 20, 3)
    rows = ClusterRows(held, held.n_pieces, Cluster.of(client))
    kernel, expert_rows = on_columns(as_kernel("gaussian"), ["x", "y"], {}), rng.normal(size=(5, 2))
    first = rows.task_log_sums(expert_rows, kernel, np.array([0.7]), (0, 1))
    made, merged = [], Cluster.merged
    monkeypatch.setattr(Cluster, "merged", lambda *given: made.append(1) or merged(*given))
    np.testing.assert_array_equal(rows.task_log_sums(expert_rows, kernel, np.array([0.7]), (0, 1)), first)
    assert not made
    assert (rows.task_log_sums(expert_rows, kernel, np.array([0.6]), (0, 1)) != first).all()
    assert made


def test_the_pieces_of_rows_in_memory_add_up_to_all_rows(monkeypatch):
    """As the workers sum them, of some columns: with 40 rows in a piece, and fewer in the last."""
    monkeypatch.setattr(cluster_rows, "PIECE_BYTES", 40 * 8 * (3 + 2))
    rng = np.random.default_rng(0)
    rows, weights, tasks = rng.normal(size=(150, 3)), rng.integers(1, 4, 150).astype(float), np.arange(150) // 50
    whole, columns, h = cluster_rows.RowsInMemory(rows, weights, tasks, 3), (0, 2), np.array([0.7])
    kernel = on_columns(as_kernel("gaussian"), ["x", "z"], {})
    question = (rng.normal(size=(5, 2)), kernel, h, columns)
    assert whole.n_pieces == 4
    expected = task_log_sums(question[0], rows[:, columns], weights, tasks, 3, kernel, h)
    parts = [cluster_rows._sums_of_part(whole.part(piece), question) for piece in range(4)]
    pieces = [cluster_rows._sums_of_piece(piece, whole, question) for piece in range(4)]
    for tables in (parts, pieces):
        np.testing.assert_allclose(np.logaddexp.reduce(tables), expected, rtol=1e-12)
    np.testing.assert_array_equal(whole.rows_per_task, np.bincount(tasks, weights))


def test_a_dask_frame_is_a_bank(client, parquet, on_disk):
    frames = pytest.importorskip("dask.dataframe")
    frame = frames.read_parquet(str(parquet), split_row_groups=True)
    rows, at = expert(table(1200)), np.random.default_rng(0).random((5, 2))
    expected = fitted(streamed(parquet)).log_likelihood(rows, at)
    found = fitted(streamed(parquet, frame), client=client)
    np.testing.assert_allclose(found.log_likelihood(rows, at), expected, rtol=1e-12)
    with pytest.raises(InputError, match="is persisted"):
        DaskRows.of(client.persist(frame))


def uneven_partitions():
    """A frame of 150 rows in no order, and its partitions: some empty, one of a single row, and types that differ.

    Tasks and episodes go on from one partition to the next; the rarest action is in one of them only.
    """
    pandas, rng = pytest.importorskip("pandas"), np.random.default_rng(0)
    tasks = rng.integers(4, size=150)
    whole = pandas.DataFrame(
        {
            "task": [f"t{k}" for k in tasks],
            "episode": rng.integers(0, 12, 150),
            "step": rng.permutation(150),
            "x": rng.normal(tasks, 1.0),
            "y": rng.integers(0, 4, 150),
            "action": np.where(np.arange(150) == 60, "jump", rng.choice(["left", "up"], 150)),
        }
    )
    cuts = [0, 0, 7, 7, 60, 61, 149, 150, 150]
    parts = [whole[first:last] for first, last in pairwise(cuts)]
    kinds = [{}, {"y": float}, {}, {"y": "float32"}, {"x": float}, {"y": "Int64"}, {"y": "int8"}, {"y": float}]
    return whole, [part.astype(kind) for part, kind in zip(parts, kinds, strict=True)]


@pytest.mark.parametrize("counted", [True, False])
def test_uneven_partitions_against_a_direct_sum(client, on_disk, monkeypatch, counted):
    """The table of kernel sums and the likelihood are those of a double loop over the rows of the whole frame.

    So they are where the first pass (then made here) samples rows, since too many of them are distinct.
    """
    frames, dask = pytest.importorskip("dask.dataframe"), pytest.importorskip("dask")
    whole, parts = uneven_partitions()
    lazy = frames.from_delayed([dask.delayed(part) for part in parts], meta=whole[:0], verify_meta=False)
    columns = {"state": ["x", "y"], "action": "action"}
    rewards = np.random.default_rng(1).random((4, 2))
    vectors = {f"t{k}": reward for k, reward in enumerate(rewards)}
    bank = stream_task_bank(lazy, rewards=vectors, **columns)
    together = kb.read_task_bank(whole, rewards=vectors, **columns)
    if not counted:
        monkeypatch.setattr("kdbirl.data.large_pieces.DISTINCT_KEPT", 5)
        summarise(bank, 0)
    features = kb.Columns(["x", "y"]) + kb.OneHotActions()
    there = kb.KDBIRL(**MODEL, features=features, kernel="gaussian").fit(bank, client=client)
    here = kb.KDBIRL(**MODEL, features=features, kernel="gaussian").fit(together)
    assert isinstance(there.fitted.ckde.all_rows, ClusterRows)

    shown = kb.read_demonstrations(whole[55:65], **columns)
    actions = (whole["action"].to_numpy()[:, None] == ["jump", "left", "up"]).astype(float)
    phi, tasks = np.column_stack([whole["x"], whole["y"], actions]), whole["task"].str[1:].astype(int).to_numpy()
    kernel, at = direct_sum.radial("gaussian", "euclidean", 0.5), np.random.default_rng(2).random((6, 2))
    sums = [[direct_sum.log_sum([kernel(x, y) for y in phi[tasks == k]]) for k in range(4)] for x in phi[55:65]]
    ckde = there.fitted.ckde
    found = ckde.all_rows.task_log_sums(phi[55:65], ckde.kernel, np.array([0.5]), tuple(range(5)))
    np.testing.assert_allclose(found, sums, rtol=1e-12, atol=1e-12)
    reward_kernel = direct_sum.radial("gaussian", "euclidean", 0.4)
    slow = [direct_sum.log_likelihood(phi[55:65], phi, tasks, rewards, R, kernel, reward_kernel) for R in at]
    np.testing.assert_allclose(there.log_likelihood(shown, at), slow, rtol=1e-12)
    one, other = here.posterior(shown, seed=1), there.posterior(shown, seed=1)
    np.testing.assert_allclose(other.draws, one.draws, atol=1e-9)
    assert summarise(bank, 0).plays.fingerprint() == together.fingerprint()


@pytest.mark.parametrize("distinct_kept", [2**18, 5])
def test_a_column_of_text_in_some_partitions_only_is_refused(monkeypatch, distinct_kept):
    """It was read as labels while distinct rows were few, and else a TypeError of Python's own."""
    frames, dask = pytest.importorskip("dask.dataframe"), pytest.importorskip("dask")
    monkeypatch.setattr("kdbirl.data.large_pieces.DISTINCT_KEPT", distinct_kept)
    _, parts = uneven_partitions()
    parts = [part.assign(action=part["y"].astype(str if len(part) == 88 else int)) for part in parts]
    lazy = frames.from_delayed([dask.delayed(part) for part in parts], meta=parts[1][:0], verify_meta=False)
    bank = stream_task_bank(lazy, state="x", action="action", rewards={f"t{k}": [float(k)] for k in range(4)})
    with pytest.raises(InputError, match="Column 'action' holds text in piece 5 of the table"):
        summarise(bank, 0)


def test_evd_over_draws(client, monkeypatch):
    monkeypatch.setattr("kdbirl.evaluation.planned_draws.DRAWS_AT_ONCE", 7)
    world, draws = kb.Gridworld(3, features="xy"), np.random.default_rng(0).uniform(-1, 1, (40, 2))
    one, other = kb.evd(draws, world, [1.0, -0.5]), kb.evd(draws, world, [1.0, -0.5], client=client)
    np.testing.assert_allclose(other.per_draw, one.per_draw, rtol=1e-12, atol=1e-12)
    assert other.of_mean == pytest.approx(one.of_mean, rel=1e-12, abs=1e-12)


def test_compare_over_seeds(client, tmp_path):
    study = Comparison("gridworld:2", ("prior",), rows=(5,), seeds=2, training_tasks=3, budget=Budget(draws=20))
    here = study.run(CellStore(tmp_path / "here"))
    there = study.run(CellStore(tmp_path / "there"), client=client)
    timed = ("seconds", "fit_seconds")
    for one, other in zip(here, there, strict=True):
        assert {k: v for k, v in one.items() if k not in timed} == {k: v for k, v in other.items() if k not in timed}


def test_an_error_of_a_worker_is_the_users_sentence(client, parquet, tmp_path):
    frame = table(1200)
    bank = streamed(written(tmp_path / "gone", frame, files=6))
    (tmp_path / "gone/part-3.parquet").unlink()
    with pytest.raises(kb.errors.FileProblem, match=r"part-3\.parquet"):
        fitted(bank, client=client)


def test_what_is_no_cluster_is_refused(monkeypatch):
    monkeypatch.setattr("kdbirl.data.cluster.CONNECT_SECONDS", 1)
    bank, _ = continuous()
    with pytest.raises(InputError, match=r"expected a distributed\.Client, not str"):
        kb.KDBIRL(prior=kb.Uniform(-1, 1)).fit(bank, client="tcp://127.0.0.1:1")
    with pytest.raises(InputError, match="There is no Dask scheduler at"), connected("tcp://256.0.0.1:99"):
        pass
