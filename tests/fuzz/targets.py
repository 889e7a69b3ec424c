"""What is fuzzed: every reader and the command line. A target takes bytes, and may return or raise a KDBIRLError."""

import contextlib
import functools
import io
import json
import os
import random
import shutil
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import mutation, seeds

Mutate = Callable[[random.Random, Sequence[bytes]], bytes]


@dataclass(frozen=True)
class Target:
    """`seeds(folder)`: good inputs; `run(data, folder)`: one input; `share`: of a campaign's inputs.

    `guarded`: users reach this code through a process of its own, which is ended where it loops or dies; so that is no
    find, but counted, and the input kept.
    """

    name: str
    seeds: Callable[[Path], Sequence[bytes]]
    run: Callable[[bytes, Path], None]
    mutate: Mutate = mutation.mutated_bytes
    share: float = 1.0
    guarded: bool = False


def _written(data: bytes, folder: Path, name: str) -> Path:
    path = folder / name
    path.write_bytes(data)
    return path


def _table(data: bytes, folder: Path, name: str) -> None:
    import kdbirl as kb
    from kdbirl.data.readers import read_rewards
    from kdbirl.errors import KDBIRLError

    path = _written(data, folder, name)
    kb.read_demonstrations(path, state=["x", "y"], action="action")
    with contextlib.suppress(KDBIRLError):
        kb.read_demonstrations(path, state="action", action=["x"], step=None, discrete_states=True)
    with contextlib.suppress(KDBIRLError):
        read_rewards(path)


def _csv(data: bytes, folder: Path) -> None:
    _table(data, folder, "table.csv")


def _parquet(data: bytes, folder: Path) -> None:
    _table(data, folder, "table.parquet")


def _model(data: bytes, folder: Path) -> None:
    from kdbirl.methods.kdbirl import load_model

    model = load_model(_written(data, folder, "model.npz"))
    model.identifiability()


def _policy(data: bytes, folder: Path) -> None:
    from kdbirl.worlds.sepsis.q_policy import load_conditioned

    load_conditioned(_written(data, folder, "policy.npz"))


def _hdf5(data: bytes, folder: Path) -> None:
    from kdbirl.archive import read_hdf5

    read_hdf5(_written(data, folder, "file.nc"), "expected a posterior")


def _posterior(data: bytes, folder: Path) -> None:
    from kdbirl.posterior.result import load_posterior

    load_posterior(_written(data, folder, "posterior.nc")).summary()


def _posterior_fields(data: bytes, folder: Path) -> None:
    """Content that HDF5 and the checksum let pass: what a forger would write."""
    from kdbirl.posterior.result import Posterior
    from kdbirl.report.terminal import posterior_text

    try:
        found = Posterior(**(vars_of(seeds.posterior()) | json.loads(data)))
    except Exception:  # as `load_posterior` has it: a damaged file
        return
    found.summary(), found.report_card(), posterior_text(found)


def vars_of(posterior: Any) -> dict[str, Any]:
    names = ("draws", "names", "method", "sampler", "seed", "sample_stats", "prior_draws", "expert_features")
    more = ("feature_names", "task_rewards", "task_names", "task_rows", "h", "h_reward", "bandwidth_rule", "settings")
    return {name: getattr(posterior, name) for name in (*names, *more)}


def _world(data: bytes, folder: Path) -> None:
    from kdbirl.worlds.named import read_world

    read_world(_written(data, folder, "world.json")).world()


def _record(data: bytes, folder: Path) -> None:
    from paper.directory import page_text

    from kdbirl.evaluation.cells import CellStore
    from kdbirl.report.run_files import card_of
    from kdbirl.report.studio.pages import listed

    for name in ("diagnosis.json", "manifest.json", "posterior.nc"):
        _written(data, folder, name)
    listed("run", folder)
    (folder / "fig1").mkdir(exist_ok=True)
    _written(data, folder / "fig1", "manifest.json")
    CellStore(folder).get({"a": 1}, lambda: {"b": 2})
    for path in folder.glob("????????????????????????.json"):
        path.write_bytes(data)
    CellStore(folder).get({"a": 1}, lambda: {"b": 2})
    card_of(folder)
    page_text(folder, ["fig1"])


def _minari(data: bytes, folder: Path) -> None:
    from kdbirl.data.minari import read_minari

    place = next(folder.rglob("metadata.json"))
    place.write_bytes(data)
    read_minari(place.parent)


def _texts(data: bytes, folder: Path) -> None:
    """The small languages of the command line: priors, features, bandwidths, rewards, pairs."""
    from kdbirl.data.tables import pairs
    from kdbirl.errors import KDBIRLError
    from kdbirl.features.named import named_features
    from kdbirl.likelihood.bandwidths import parse_bandwidth
    from kdbirl.posterior.product_prior import parse_priors
    from kdbirl.worlds.gridworld import Gridworld
    from kdbirl.worlds.named import parse_reward

    text = data.decode("utf-8", "replace")
    readers: list[Callable[[str], Any]] = [
        lambda word: parse_priors([word]).for_parameters(2, ("x", "y")),
        named_features, parse_bandwidth, pairs, lambda word: parse_reward(word, _grid(Gridworld)),
    ]  # fmt: skip
    for read in readers:
        with contextlib.suppress(KDBIRLError):
            read(text)


@functools.cache
def _grid(kind: Any) -> Any:
    return kind(2)


TEXTS = [
    *("uniform:0,1", "normal:0,1", "truncated-normal:0,1,-1,1", "beta:1,2,0,1", "laplace:0,1", "x=normal:0,1"),
    *(
        "grid:5+onehot-actions",
        "columns:x,y",
        "vae:3",
        "pca:2",
        "0.5,0.5",
        "0.1 0.2,0.5",
        "loto",
        "cell 3=1",
        "0,0,0,1",
    ),
]


class Reached(Exception):
    """The work itself would begin here: the command line was accepted."""


def _stop(*_: Any, **__: Any) -> None:
    raise Reached


@contextlib.contextmanager
def _without_the_work() -> Iterator[None]:
    """Verbs read and check everything, and stop where hours of computing could begin."""
    from unittest.mock import patch

    places = ["kdbirl.methods.kdbirl.KDBIRL.fit", "kdbirl.worlds.rollouts.make_bank", "kdbirl.worlds.planning.plan"]
    places += ["kdbirl.evaluation.comparison.Comparison.run", "paper.experiment.Experiment.reproduce"]
    places += ["kdbirl.evaluation.diagnose.diagnose", "kdbirl.report.studio.server.studio_server"]
    places += ["kdbirl.installation.inspect_installation", "kdbirl.worlds.sepsis.deep_q.policies_of"]
    places += ["kdbirl.evaluation.judgement.judge", "kdbirl.report.html.report_page"]
    with contextlib.ExitStack() as stack:
        for place in places:
            stack.enter_context(patch(place, _stop))
        yield


def _line(*words: str) -> list[str]:
    return list(words)


LINES = [
    _line("fit", "--training", "table.csv", "--rewards", "rewards.csv", "--expert", "table.csv", "--state", "x,y",
          "--action", "action", "--prior", "uniform:0,1", "--sampler", "nuts", "--chains", "2", "--out", "run"),
    _line("demos", "--env", "gridworld:2", "--one-per-state", "--true-reward", "0,0,0,1", "--out", "demos"),
    _line("demos", "--env", "gridworld-xy:3", "--random-rewards", "3", "--true-reward", "x=1", "--out", "demos"),
    _line("compare", "--env", "gridworld:2", "--methods", "prior,kdbirl", "--rows", "10", "--seeds", "1", "--out", "c"),
    _line("diagnose", "given", "--calibrate", "--plan"),
    _line("evaluate", "given", "--world", "world.json"),
    _line("report", "given", "--no-rows", "--out", "page.html"),
    _line("studio", ".", "--port", "0"),
    _line("doctor", "--json"),
]  # fmt: skip
OPTIONS = sorted({word for line in LINES for word in line if word.startswith("--")} | {
    *("--features", "--bandwidth", "--kernel", "--distance", "--reward-distance", "--power", "--draws", "--seed"),
    *("--n-states", "--n-actions", "--actions", "--episode", "--step", "--task", "--reward", "--expert-columns"),
    *("--discount", "--horizon", "--episodes", "--temperature", "--noise", "--policy", "--planning-horizon", "--steps"),
})  # fmt: skip


def _command(data: bytes, folder: Path) -> None:
    """In this process, as `main` runs it."""
    from kdbirl.cli import run

    words = [word.encode("utf-8", "surrogatepass").decode("utf-8", "surrogatepass") for word in json.loads(data)]
    words = [word.replace("\0", "") for word in words]
    before, out, error = Path.cwd(), io.StringIO(), io.StringIO()
    os.chdir(folder)
    try:
        with _without_the_work(), contextlib.redirect_stdout(out), contextlib.redirect_stderr(error):
            code = run(words)
    finally:
        os.chdir(before)
        for name in ("run", "demos", "c", "r"):
            shutil.rmtree(folder / name, ignore_errors=True)
    said = error.getvalue()
    reached = "fault in kdbirl (Reached" in said
    if not reached and (code not in (0, 2) or "fault in kdbirl" in said or "Traceback" in said + out.getvalue()):
        raise AssertionError(f"exit code {code}: {said[-500:]}")


def _command_seeds(folder: Path) -> list[bytes]:
    (folder / "table.csv").write_bytes(seeds.ROWS.encode())
    (folder / "rewards.csv").write_text("task,w_x,w_y\na,1,0\nb,0,1\n")
    (folder / "world.json").write_bytes(seeds.worlds()[0])
    (folder / "given").mkdir(exist_ok=True)
    seeds.posterior().save(folder / "given" / "posterior.nc")
    (folder / "given" / "model.npz").write_bytes(b"damaged")
    return [json.dumps(line).encode() for line in LINES]


def _mutated_command(rng: random.Random, given: Sequence[bytes]) -> bytes:
    return json.dumps(mutation.mutated_words(rng, [json.loads(line) for line in given], OPTIONS)).encode()


def _request(data: bytes, folder: Path) -> None:
    """A target of the studio's pages."""
    from kdbirl.report.studio.server import Studio

    Studio(folder).answer(data.decode("latin-1"))


def _request_seeds(folder: Path) -> list[bytes]:
    (folder / "first").mkdir(exist_ok=True)
    (folder / "first" / "posterior.nc").write_bytes(b"damaged")
    return [b"/", b"/report?run=first", b"/compare?one=first&other=../x", b"/%2e%2e/", b"http://[::1]/", b"//x/"]


TARGETS = {
    target.name: target
    for target in (
        Target("csv", lambda _: seeds.tables(), _csv, share=13),
        Target("parquet", lambda _: seeds.parquets(), _parquet, share=12),
        Target("model", seeds.models, _model, mutation.mutated_npz, share=9),
        Target("policy", seeds.policies, _policy, mutation.mutated_npz, share=2),
        Target("hdf5", seeds.posteriors, _hdf5, share=12, guarded=True),
        Target("posterior", seeds.posteriors, _posterior, share=0.3),
        Target("posterior-fields", lambda _: [_fields()], _posterior_fields, mutation.mutated_json, share=1),
        Target("world", lambda _: seeds.worlds(), _world, mutation.mutated_json, share=12),
        Target("record", lambda _: seeds.records(), _record, mutation.mutated_json, share=6),
        Target("minari", seeds.minari_metadata, _minari, mutation.mutated_json, share=0.3),
        Target("text", lambda _: [text.encode() for text in TEXTS], _texts, share=16),
        Target("command", _command_seeds, _command, _mutated_command, share=3),
        Target("request", _request_seeds, _request, share=14),
    )
}


def _fields() -> bytes:
    given = vars_of(seeds.posterior())
    plain = {name: getattr(value, "tolist", lambda value=value: value)() for name, value in given.items()}
    plain["sample_stats"] = {name: array.tolist() for name, array in given["sample_stats"].items()}
    return json.dumps(plain).encode()


def prepared() -> None:
    """What `kdbirl.cli.main` does for its process, and small limits, so that a bomb is one at any size."""
    warnings.simplefilter("ignore")
    sys.setrecursionlimit(1000)
    os.environ |= {"KDBIRL_MAX_MEMORY_BYTES": str(2**26), "KDBIRL_MAX_ENTRIES": "2000", "JAX_PLATFORMS": "cpu"}
