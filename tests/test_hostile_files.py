"""Files that mean harm, or are broken: bombs, absurd shapes, loops, pipes, tricks in names. One sentence each."""

import contextlib
import gzip
import io
import json
import os
import resource
import sys
import time
import zipfile
import zlib
from pathlib import Path

import h5py
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import kdbirl as kb
from kdbirl import cli
from kdbirl import errors as limits
from kdbirl.archive import read_arrays, read_hdf5, read_json
from kdbirl.cli.terminal import printable
from kdbirl.data.csv_text import guarded, guarded_frame, unguarded
from kdbirl.errors import FileProblem, InputError, did_you_mean
from kdbirl.worlds.named import read_world

GIBIBYTE = 2**30
STATE = {"state": ["x", "y"], "action": "action"}


@pytest.fixture(autouse=True)
def _memory_stays_bounded():
    """No test here may take more than half a gibibyte, whatever its file claims."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < GIBIBYTE / 2 / 1024


@pytest.fixture
def small(monkeypatch):
    """Limits at which a bomb is a small file."""
    monkeypatch.setenv("KDBIRL_MAX_MEMORY_BYTES", str(2**20))


def npz(path: Path, **entries: bytes) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in entries.items():
            archive.writestr(f"{name}.npy", data)
    return path


def npy(shape: tuple[int, ...], data: bytes = b"", dtype: str = "<f8") -> bytes:
    """An array file whose header says `shape`, whatever there is."""
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, {"descr": dtype, "fortran_order": False, "shape": shape})
    return stream.getvalue() + data


# limits


def test_a_limit_has_a_name_that_the_sentence_gives(tmp_path, monkeypatch):
    path = npz(tmp_path / "a.npz", a=npy((2**18,), bytes(2**21)))
    assert read_arrays(path, "expected a model")["a"].shape == (2**18,)
    monkeypatch.setenv("KDBIRL_MAX_MEMORY_BYTES", str(2**20))
    with pytest.raises(
        FileProblem, match=r"a\.npz unpacks to too much: 2 MiB.*limit is 1 MiB.*KDBIRL_MAX_MEMORY_BYTES"
    ):
        read_arrays(path, "expected a model")


@pytest.mark.parametrize("value", ["many", "-1", "0", "1.5", "9" * 30])
def test_a_limit_that_is_no_number_is_said(monkeypatch, value):
    monkeypatch.setenv("KDBIRL_MAX_JSON_BYTES", value)
    with pytest.raises(InputError, match=r"KDBIRL_MAX_JSON_BYTES=.* should be a whole number of bytes, at least 1"):
        _ = limits.JSON_BYTES.value


def test_every_limit_is_documented(repository):
    page = (repository / "docs" / "reliability.md").read_text(encoding="utf-8")
    every = [value for value in vars(limits).values() if isinstance(value, limits.Limit)]
    assert len(every) >= 6
    assert [limit.variable for limit in every if limit.variable not in page] == []


# npz: models, policies, starting states


@pytest.mark.parametrize("shape", [(10**12,), (2**62, 4), (10**6, 10**6), (3,)])
def test_an_array_that_claims_more_than_it_has(tmp_path, shape):
    path = npz(tmp_path / "model.npz", record=npy(shape, bytes(16)))
    for read in (kb.load_model, kb.load_conditioned):
        with pytest.raises(
            FileProblem, match=r"model\.npz cannot be read as an npz file \(an array of shape .* has 16"
        ):
            read(path)


def test_a_zip_bomb_is_not_unpacked(tmp_path, small):
    path = npz(tmp_path / "model.npz", record=npy((2**21,), bytes(2**24)))
    assert path.stat().st_size < 2**16
    with pytest.raises(FileProblem, match="unpacks to too much: 16 MiB"):
        kb.load_model(path)


def test_an_archive_of_very_many_arrays(tmp_path, monkeypatch):
    monkeypatch.setenv("KDBIRL_MAX_ARRAYS", "3")
    path = npz(tmp_path / "model.npz", **{name: npy((), bytes(8)) for name in "abcd"})
    with pytest.raises(FileProblem, match=r"has too many arrays: 4 arrays.*KDBIRL_MAX_ARRAYS"):
        kb.load_model(path)


def test_objects_are_never_unpickled(tmp_path):
    class Evil:
        def __reduce__(self):
            return os.system, (f"touch {tmp_path}/owned",)

    np.savez(tmp_path / "model.npz", record=np.array([Evil()], dtype=object), allow_pickle=True)
    with pytest.raises(FileProblem, match="holds Python objects, which are never read"):
        kb.load_model(tmp_path / "model.npz")
    assert not (tmp_path / "owned").exists()


def test_a_policy_of_absurd_layers(tmp_path):
    record = {
        "kind": "kdbirl.ConditionedQ",
        "version": 2,
        "limit": None,
        "observation_names": ["x"],
        "feature_names": ["u"],
    }
    record |= {"n_actions": 2, "hidden": [10**9, 10**9], "horizon": 5.0, "learning": {}}
    np.savez(tmp_path / "policy.npz", record=np.array(json.dumps(record)))
    with pytest.raises(FileProblem, match="holds no weight-conditioned policy"):
        kb.load_conditioned(tmp_path / "policy.npz")


# HDF5: posteriors


def h5(path: Path) -> h5py.File:
    return h5py.File(path, "w")


def test_an_absurd_shape_in_hdf5(tmp_path):
    with h5(tmp_path / "p.nc") as file:
        file.create_dataset("posterior/reward", shape=(10**6, 10**6), chunks=(10, 10), dtype="f8")
    assert (tmp_path / "p.nc").stat().st_size < 10_000
    with pytest.raises(FileProblem, match=r"p\.nc unpacks to too much.*KDBIRL_MAX_MEMORY_BYTES"):
        kb.load_posterior(tmp_path / "p.nc")


def test_zeros_that_zlib_packs_700_times_are_still_read(tmp_path):
    with h5(tmp_path / "p.nc") as file:
        file.create_dataset("zeros", data=np.zeros((2**14, 2**9)), chunks=(2**14, 2**8), compression="gzip")
    assert 2**26 / (tmp_path / "p.nc").stat().st_size > 700
    assert read_hdf5(tmp_path / "p.nc", "expected a posterior")[1]["zeros"].size == 2**23


def test_links_that_lead_out_of_the_file_are_not_followed(tmp_path):
    (tmp_path / "secret.bin").write_bytes(b"secret!!" * 4)
    with h5(tmp_path / "other.h5") as file:
        file["a"] = np.arange(3.0)
    with h5(tmp_path / "p.nc") as file:
        file["outside"] = h5py.ExternalLink(str(tmp_path / "other.h5"), "/a")
        file["soft"] = h5py.SoftLink("/nowhere")
        file["itself"] = file["/"]
    attributes, arrays = read_hdf5(tmp_path / "p.nc", "expected a posterior")
    assert (list(attributes), arrays) == ([""], {})
    with h5(tmp_path / "p.nc") as file:
        file.create_dataset("a", shape=(4,), dtype="i8", external=[(str(tmp_path / "secret.bin"), 0, 32)])
    with pytest.raises(FileProblem, match="its data are in another file"):
        read_hdf5(tmp_path / "p.nc", "expected a posterior")


def test_a_posterior_that_claims_a_huge_likelihood(tmp_path):
    from .fuzz.seeds import posterior

    posterior().save(tmp_path / "p.nc")
    with h5py.File(tmp_path / "p.nc", "r+") as file:
        file.attrs["kdbirl_log_likelihood_shape"] = json.dumps([10**5, 10**5, 10**5])
    with pytest.raises(FileProblem, match="damaged or was changed"):
        kb.load_posterior(tmp_path / "p.nc")


def test_posteriors_of_many_tasks_that_are_none(tmp_path, small):
    from kdbirl.methods.posteriors import StoredPosteriors

    path = tmp_path / "posteriors.nc"
    path.write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(100))
    with pytest.raises(FileProblem, match="cannot be read as netCDF"):
        StoredPosteriors(path)
    records = {
        b"{}": "is damaged",
        b"[]": "is damaged",
        b"[" * 10**5: "is damaged",
        bytes(2**21): "unpacks to too much",
    }
    for record, words in records.items():
        with h5(path) as file:
            file.attrs["kdbirl_many_format"] = 1
            file["rows_of_task"] = np.arange(2)
            file["record"] = np.frombuffer(zlib.compress(record), np.uint8)
        with pytest.raises(FileProblem, match=words):
            StoredPosteriors(path)


# tables


def test_a_gzip_bomb_is_not_unpacked(tmp_path, small):
    path = tmp_path / "bomb.csv.gz"
    path.write_bytes(gzip.compress(b"x,y,action\n" + b"1,2,3\n" * 2**20))
    assert path.stat().st_size < 2**16
    with pytest.raises(FileProblem, match="unpacks to too much"):
        kb.read_demonstrations(path, **STATE)


def test_a_parquet_file_of_few_bytes_and_very_many_rows(tmp_path, small):
    ones = pa.DictionaryArray.from_arrays(pa.array(np.zeros(10**6, np.int32)), pa.array([1.0])).cast(pa.float64())
    pq.write_table(pa.table({"x": ones, "y": ones, "action": ones}), tmp_path / "t.parquet", compression="zstd")
    assert (tmp_path / "t.parquet").stat().st_size < 2**16
    with pytest.raises(FileProblem, match=r"unpacks to too much: 22\.89 MiB"):
        kb.read_demonstrations(tmp_path / "t.parquet", **STATE)


def test_a_header_of_very_many_columns(tmp_path, monkeypatch):
    path = tmp_path / "wide.csv"
    path.write_text(",".join(f"c{i}" for i in range(200_000)) + "\n1\n")
    with pytest.raises(FileProblem, match=r"wide\.csv has too many columns: 199,999 columns.*KDBIRL_MAX_COLUMNS"):
        kb.read_demonstrations(path, **STATE)
    path.write_text(",".join(["x"] * 50_000) + "\n1\n")  # found again in no time, though there are many
    with pytest.raises(InputError, match="'x' is there more than once"):
        kb.read_demonstrations(path, **STATE)


def test_a_cell_longer_than_pythons_reader_takes(tmp_path):
    path = tmp_path / "long.csv"
    path.write_text(f"x,y,{'a' * 200_000}\n1,2,3\n")
    with pytest.raises(FileProblem, match="the header cannot be read"):
        kb.read_demonstrations(path, **STATE)


def test_a_search_of_half_the_disk_ends_with_a_sentence(tmp_path, monkeypatch, capfd):
    monkeypatch.setenv("KDBIRL_MAX_ENTRIES", "50")
    for i in range(60):
        (tmp_path / f"{i}.txt").touch()
    for source in (tmp_path, tmp_path / "**" / "*.parquet", f"{tmp_path}/*"):
        with pytest.raises(FileProblem, match="KDBIRL_MAX_ENTRIES"):
            kb.read_demonstrations(str(source), **STATE)
    words = [
        "fit",
        "--training",
        "/",
        "--rewards",
        "r.csv",
        "--expert",
        "e.csv",
        "--state",
        "x",
        "--prior",
        "uniform:0,1",
    ]
    assert cli.run([*words, "--out", str(tmp_path / "run")]) == 2
    assert capfd.readouterr().err.startswith("kdbirl: / is too large a place to look for tables")


@pytest.mark.parametrize("place", ["/dev/zero", "pipe"])
def test_pipes_and_devices_are_refused(tmp_path, place):
    if place == "pipe":
        os.mkfifo(tmp_path / "pipe")
    path = tmp_path / place
    reads = [
        lambda: kb.read_demonstrations(str(path), **STATE),
        lambda: kb.load_posterior(path),
        lambda: kb.load_model(path),
        lambda: read_world(path),
    ]
    for read in reads:
        with pytest.raises(FileProblem, match="is a pipe or a device, not a file"):
            read()


def test_a_panic_of_the_parquet_reader_is_a_sentence(tmp_path, repository):
    """A find: Polars panics at this file, which is no Exception in Python."""
    path = tmp_path / "t.parquet"
    path.write_bytes((repository / "tests" / "fuzz" / "corpus" / "parquet" / "panic").read_bytes())
    with pytest.raises(FileProblem, match="damaged or cut short"):
        kb.read_demonstrations(path, **STATE)


# JSON


@pytest.mark.parametrize(
    "content",
    [b"[" * 10**6, b"{" * 5, b"\xff", b'{"a": ' + b"9" * 5000 + b"}", b"[]", b"", b'{"a": NaN'],
)  # fmt: skip
def test_json_that_is_none(tmp_path, content):
    (tmp_path / "a.json").write_bytes(content)
    with pytest.raises(FileProblem, match=r"a\.json (cannot be read as JSON|holds no JSON object)"):
        read_json(tmp_path / "a.json", "expected something else")


def test_json_that_is_too_large(tmp_path, monkeypatch):
    monkeypatch.setenv("KDBIRL_MAX_JSON_BYTES", "100")
    (tmp_path / "a.json").write_text('"' + "x" * 100)
    with pytest.raises(FileProblem, match=r"a\.json is too large: 101 bytes.*KDBIRL_MAX_JSON_BYTES"):
        read_json(tmp_path / "a.json", "expected something else")


def world(**changes: object) -> dict[str, object]:
    names = [f"cell {i}" for i in range(4)]
    given = {"env": "gridworld:2", "discount": 0.9, "planning_horizon": None, "horizon": 5, "reward_parameters": names}
    return {**given, "true_reward": [0, 0, 0, 1], **changes}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"discount": 10**400}, "'discount' a number"),
        ({"discount": float("nan")}, "'discount' a number"),
        ({"true_reward": [10**400]}, "list of numbers"),
        ({"horizon": True}, "'horizon' is missing or of the wrong kind"),
        ({"made": [1]}, "'made' is of the wrong kind"),
        ({"env": "gridworld:100000"}, "too large a table.*KDBIRL_MAX_MEMORY_BYTES"),
        ({"env": "gridworld:" + "9" * 5000}, "should give the cells on a side"),
        ({"env": "no_such_module:World-v0"}, "a file does not choose what is imported"),
    ],
)
def test_a_world_of_absurd_values(tmp_path, changes, words):
    (tmp_path / "world.json").write_text(json.dumps(world(**changes)))
    with pytest.raises(InputError, match=words):
        read_world(tmp_path).world()


def test_a_world_file_imports_nothing(tmp_path, monkeypatch):
    (tmp_path / "evil_module.py").write_text(f"open({str(tmp_path / 'owned')!r}, 'w')")
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "world.json").write_text(json.dumps(world(env="evil_module:Evil-v0")))
    with pytest.raises(InputError, match="names a world of the Python module 'evil_module'"):
        read_world(tmp_path).world()
    assert not (tmp_path / "owned").exists()
    assert "evil_module" not in sys.modules


def test_a_registered_name_is_no_way_to_an_import(tmp_path, monkeypatch):
    """What stands before a colon is a world, and then features follow; or a module: a file beside the world.json."""
    (tmp_path / "FrozenLake-v1.py").write_text(f"open({str(tmp_path / 'owned')!r}, 'w')")
    monkeypatch.syspath_prepend(tmp_path)
    for env in (
        "FrozenLake-v1:Evil-v0:next-state",
        " FrozenLake-v1:Evil-v0:state ",
        "FrozenLake-v1:Evil-v0:env-reward",
    ):
        (tmp_path / "world.json").write_text(json.dumps(world(env=env)))
        with pytest.raises(InputError, match="names a world of the Python module 'FrozenLake-v1'"):
            read_world(tmp_path).world()
    assert not (tmp_path / "owned").exists()
    names = [f"state {i}" for i in range(16)]  # what such a name is for
    (tmp_path / "world.json").write_text(json.dumps(world(env="FrozenLake-v1:next-state", reward_parameters=names)))
    assert read_world(tmp_path).world().feature_names == tuple(names)


# places, addresses and modules


def _model(folder: Path) -> Path:
    from .fuzz.seeds import bank

    kb.KDBIRL(prior=kb.Uniform(0, 1), bandwidth=(0.7, 0.6), features=kb.PCA(1)).fit(bank()).save(folder / "model.npz")
    return folder / "model.npz"


def _use_model(path: Path) -> None:
    kb.load_model(path).log_likelihood(kb.Demonstrations(np.zeros((2, 2)), np.zeros(2, int)), np.zeros((1, 2)))


def _policy(folder: Path) -> Path:
    from .fuzz.seeds import policies

    policies(folder)
    return folder / "policy.npz"


def _posterior(folder: Path) -> Path:
    from .fuzz.seeds import posterior

    features = kb.PCA(1).fit(kb.Demonstrations(np.eye(3)))
    posterior(reward_features=features).save(folder / "posterior.nc")
    return folder / "posterior.nc"


def _use_posterior(path: Path) -> None:
    found = kb.load_posterior(path)
    found.summary(), found.report_card()


def _world(folder: Path) -> Path:
    (folder / "world.json").write_text(json.dumps(world(made={"policy": "x", "training": "y"})))
    return folder / "world.json"


def _manifest(folder: Path) -> Path:
    from kdbirl.report.run import write_run

    from .fuzz.seeds import bank, posterior

    model = kb.KDBIRL(prior=kb.Uniform(0, 1), bandwidth=(0.7, 0.6)).fit(bank())
    write_run(folder / "run", posterior(), model, [], {"training": "t.csv", "out": "run", "scheduler": None}, {})
    return folder / "run" / "manifest.json"


def _use_manifest(path: Path) -> None:
    from kdbirl.report.html import write_report
    from kdbirl.report.studio.server import Studio

    studio = Studio(path.parents[1])
    studio.answer("/"), studio.answer("/report?run=run")
    write_report(path.parent)


def _comparison(folder: Path) -> Path:
    from kdbirl.report.directories import ComparisonDirectory

    ComparisonDirectory(folder / "c", "gridworld:2").cells.get({"a": 1}, lambda: {"path": "x", "rows": ["y"]})
    (folder / "c" / "manifest.json").write_text(json.dumps({"configuration": {"env": "gridworld:2", "out": "c"}}))
    return folder / "c" / "manifest.json"


def _use_comparison(path: Path) -> None:
    from kdbirl.report.directories import ComparisonDirectory

    ComparisonDirectory(path.parent, "gridworld:2").cells.get({"a": 1}, dict)


def _strings(value: object) -> list[tuple[object, ...]]:
    """The path to each text in nested JSON, to each None, and to a key that nobody knows, in each dictionary."""
    if isinstance(value, dict):
        inner = [(key, *path) for key, part in value.items() for path in _strings(part)]
        return [*inner, ("checkpoint",), ("scheduler",)]
    if isinstance(value, list):
        return [(i, *path) for i, part in enumerate(value) for path in _strings(part)]
    return [()] if isinstance(value, str) or value is None else []


def _replaced(value: object, path: tuple[object, ...], new: str) -> object:
    if not path:
        return new
    if isinstance(value, list):
        return [_replaced(part, path[1:], new) if i == path[0] else part for i, part in enumerate(value)]
    assert isinstance(value, dict)
    return value | {path[0]: _replaced(value.get(path[0]), path[1:], new)}


def _record_of(path: Path) -> object:
    if path.suffix == ".npz":
        with np.load(path) as file:
            record = file["record"]
        return json.loads(record.tobytes() if record.dtype == np.uint8 else str(record))
    if path.suffix == ".nc":
        with h5py.File(path) as file:
            texts = {name: value for name, value in file.attrs.items() if isinstance(value, str)}
        return {name: json.loads(value) for name, value in texts.items() if value[:1] in '{["n'}
    return json.loads(path.read_text())


def _write_record(path: Path, record: object) -> None:
    text = json.dumps(record)
    if path.suffix == ".npz":
        with np.load(path) as file:
            arrays = {name: file[name] for name in file.files}
        plain = arrays["record"].dtype == np.uint8
        arrays["record"] = np.frombuffer(text.encode(), np.uint8) if plain else np.array(text)
        np.savez(path, **arrays)
    elif path.suffix == ".nc":
        assert isinstance(record, dict)
        with h5py.File(path, "r+") as file:
            file.attrs.update({name: json.dumps(value) for name, value in record.items()})
    else:
        path.write_text(text)


ARCHIVES = {  # how one is made and used, and how many of its texts are tried, by the time that it takes
    "model": (_model, _use_model, 16),
    "policy": (_policy, kb.load_conditioned, 16),
    "posterior": (_posterior, _use_posterior, 6),
    "world": (_world, lambda path: read_world(path).world(), 16),
    "manifest": (_manifest, _use_manifest, 3),
    "comparison": (_comparison, _use_comparison, 16),
}


@pytest.mark.parametrize("kind", ARCHIVES)
def test_no_text_in_an_archive_is_a_place_an_address_or_a_module(tmp_path, monkeypatch, kind):
    """Each text in turn becomes a path, an address and a module: nothing is written, called or imported."""
    import socket

    make, use, most = ARCHIVES[kind]
    (tmp_path / "archive").mkdir()
    (tmp_path / "here").mkdir()
    (tmp_path / "evil_module.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path / "here")
    path = make(tmp_path / "archive")
    calls: list[object] = []
    monkeypatch.setattr(socket.socket, "connect", lambda self, address: calls.append(address))
    good = _record_of(path)
    use(path)
    before = {place.relative_to(tmp_path) for place in tmp_path.rglob("*")}
    evils = (str(tmp_path / "owned" / "x"), "owned", "tcp://127.0.0.1:9", "evil_module:Evil-v0", "evil_module")
    places = _strings(good)
    assert len(places) >= 5
    places = [places[i] for i in np.random.default_rng(0).permutation(len(places))[:most]]
    for i, place in enumerate(places):
        _write_record(path, _replaced(good, place, evils[i % len(evils)]))
        with contextlib.suppress(FileProblem, InputError):
            use(path)
    assert {place.relative_to(tmp_path) for place in tmp_path.rglob("*")} == before
    assert calls == []
    assert "evil_module" not in sys.modules


def test_a_link_in_a_directory_is_no_place_to_write(tmp_path, capfd):
    """Archives of directories hold links, too: none leads the files that we write out of the directory."""
    from kdbirl.store import resumable, sole_user

    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / ".kept.unfinished").write_text("of somebody else")
    path = _manifest(tmp_path)
    for name, words in {
        "diagnosis.unfinished": ["diagnose", str(path.parent)],
        "anything": ["report", str(path.parent)],
    }.items():
        (path.parent / name).symlink_to(elsewhere)
        assert cli.run(words) == 2
        assert f"run/{name} is a link to {elsewhere}, where files would be written" in capfd.readouterr().err
        (path.parent / name).unlink()
    deeper = tmp_path / "reproduction" / "fig1"
    deeper.mkdir(parents=True)
    (deeper / "cells").symlink_to(elsewhere)
    with pytest.raises(FileProblem, match="fig1/cells is a link to"), sole_user(deeper.parent, below=True):
        pass
    (tmp_path / "new.unfinished").symlink_to(elsewhere)
    with pytest.raises(FileProblem, match=r"new\.unfinished is a link to"), resumable(tmp_path / "new", {}):
        pass
    assert [file.name for file in elsewhere.iterdir()] == [".kept.unfinished"]


def test_posteriors_of_many_tasks_are_read_from_their_own_file_alone(tmp_path):
    """The file is opened by h5py itself, which follows links: to a pipe, for ever."""
    from kdbirl.methods.posteriors import StoredPosteriors

    with h5(tmp_path / "p.nc") as file:
        file.attrs["kdbirl_many_format"] = 1
        file["rows_of_task"] = np.arange(2)
        file["record"] = np.frombuffer(zlib.compress(b'{"tasks": {"a": {}}}'), np.uint8)
        file["reward"] = h5py.ExternalLink(str(tmp_path / "other.h5"), "/a")
    with pytest.raises(FileProblem, match="it has a link to another file"):
        StoredPosteriors(tmp_path / "p.nc")


# names


TRICKS = ["=1+1", "+x", "-x", "@SUM(A1)", "'=x", "=HYPERLINK(\"http://x\")", "a'=b", "x"]  # fmt: skip


@pytest.mark.parametrize("text", [*TRICKS, "-1", "+2.5e3", "", "''", "'", "＝1", "'-1"])  # noqa: RUF001
def test_a_guarded_cell_comes_back(text):
    written = guarded(text)
    assert unguarded(written) == text
    assert written[:1] not in set("=+@＝") or written == "+2.5e3"  # noqa: RUF001
    assert written[:1] != "-" or float(written) < 0
    assert guarded_frame(pl.DataFrame({text or "c": [text]})).row(0)[0] == written


@pytest.mark.parametrize("suffix", ["csv", "tsv", "parquet"])
def test_labels_like_formulas_come_back_and_run_nowhere(tmp_path, suffix):
    rewards = {name: [float(i)] for i, name in enumerate(TRICKS)}
    tasks = np.repeat(np.arange(len(TRICKS)), 2)
    bank = kb.TaskBank.from_arrays(
        states=np.arange(2.0 * len(TRICKS))[:, None], actions=np.array(["=l", "r"] * len(TRICKS)), tasks=tasks,
        rewards=np.array(list(rewards.values())), names=TRICKS, state_names=["=x"], reward_names=["@w"],
    )  # fmt: skip
    rows, table = tmp_path / f"rows.{suffix}", tmp_path / f"rewards.{suffix}"
    kb.write_task_bank(bank, rows, table)
    if suffix != "parquet":
        separator = "," if suffix == "csv" else "\t"
        cells = [cell.strip('"') for line in rows.read_text().splitlines() for cell in line.split(separator)]
        assert [cell for cell in cells if cell[:1] in set("=+@") or cell[:2] == "-x"] == []
    again = kb.read_task_bank(rows, rewards=table, state="=x", action="action")
    assert again.names == bank.names
    assert again.reward_names == ("@w",)
    assert again.demonstrations.action_labels == ("=l", "r")


def test_names_are_never_file_names(tmp_path):
    """Task and parameter names that are paths make no file: the same files as with any other names."""
    from kdbirl.report.run import FILES, write_run

    from .fuzz.seeds import bank, posterior

    model = kb.KDBIRL(prior=kb.Uniform(0, 1), bandwidth=(0.7, 0.6)).fit(bank())
    names = ("../../owned", "/tmp/owned")
    tricky = posterior(names=names, task_names=("..", "a/b", "<script>alert(1)</script>"))
    write_run(tmp_path / "run", tricky, model, [], {}, {})
    assert {path.name for path in (tmp_path / "run").iterdir()} == set(FILES)
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
    assert "<script>alert(1)</script>" not in (tmp_path / "run" / "report.html").read_text()


def test_codes_for_a_terminal_are_written_out(capfd):
    assert printable("a\x1b[2Jb\u202ec\x07") == "a\\u001b[2Jb\\u202ec\\u0007"
    assert printable("\x1b[1;32mgreen\x1b[0m\n") == "\x1b[1;32mgreen\x1b[0m\n"  # colours are our own
    assert cli.run(["report", "\x1b]0;owned\x07"]) == 2
    said = capfd.readouterr().err
    assert "\x1b" not in said
    assert "\\u001b]0;owned\\u0007" in said


def test_a_home_that_nobody_has(capfd):
    for words in (["report", "~nobody-at-all/run"], ["studio", "~nobody-at-all"]):
        assert cli.run(words) == 2
        assert "there is no such user on this machine" in capfd.readouterr().err


@pytest.mark.parametrize("words", [["--draws", "1000000000000"], ["--chains", "99999999", "--draws", "99999"]])
def test_draws_that_fit_nowhere(tmp_path, capfd, words):
    tables = [
        "--training",
        "t.csv",
        "--rewards",
        "r.csv",
        "--expert",
        "e.csv",
        "--state",
        "x",
        "--prior",
        "uniform:0,1",
    ]
    assert cli.run(["fit", *tables, "--sampler", "nuts", *words, "--out", str(tmp_path / "run")]) == 2
    assert "so many draws do not fit" in capfd.readouterr().err


def test_a_model_file_whose_numbers_cannot_be_computed_with(tmp_path):
    from .fuzz.seeds import bank

    kb.KDBIRL(prior=kb.Uniform(0, 1), bandwidth=(0.7, 0.6)).fit(bank()).save(tmp_path / "model.npz")
    with np.load(tmp_path / "model.npz") as file:
        good = {name: file[name] for name in file.files}
    for name, bad in {
        "h_reward": np.array(0.0), "h": -good["h"], "weights": good["weights"] * 0, "tasks": good["tasks"] + 1,
        "rows": good["rows"] * np.nan, "task_rewards": good["task_rewards"][:1],
    }.items():  # fmt: skip
        np.savez(tmp_path / "bad.npz", **{**good, name: bad})
        with pytest.raises(FileProblem, match="is damaged or is not a model"):
            kb.load_model(tmp_path / "bad.npz")


def test_a_suggestion_without_spread_divides_by_nothing():
    """A find: a prior without spread along the new direction made `suggest_task` divide by zero."""
    from kdbirl.likelihood.distances import DISTANCES
    from kdbirl.trust.next_task import suggest_task

    rewards = np.array([[0.0, 0.5], [1.0, 0.5]])
    draws = np.full((20, 2), 0.5)
    found = suggest_task(
        rewards, np.array([[0.0, 1.0]]), kb.Uniform(0, 1).for_parameters(2, ("x", "y")), draws,
        DISTANCES["euclidean"], 0.5, ("x", "y"),
    )  # fmt: skip
    assert found.gain == 0.0
    assert np.isfinite(found.direction).all()


def test_a_name_as_long_as_a_book_is_compared_in_no_time():
    start = time.process_time()
    said = did_you_mean("x" * 20_000, (f"{i}" + "x" * 20_000 for i in range(20_000)))
    assert time.process_time() - start < 5
    assert len(said) < 1000
