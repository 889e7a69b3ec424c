"""Inputs that once did harm, replayed: accepted, or refused in a sentence. And a short campaign with fresh ones."""

import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from . import mutation, seeds
from .campaign import campaign, outcome, rng_of
from .targets import TARGETS, Target

CORPUS = Path(__file__).with_name("corpus")
FINDS = sorted(path for path in CORPUS.rglob("*") if path.is_file())


def test_the_corpus_is_there_and_small():
    assert len(FINDS) > 2
    assert {path.parent.name for path in FINDS} <= set(TARGETS)
    assert sum(path.stat().st_size for path in FINDS) < 500_000


@pytest.mark.parametrize("path", FINDS, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_a_find_does_no_harm_any_more(path, tmp_path, monkeypatch):
    monkeypatch.setenv("KDBIRL_MAX_MEMORY_BYTES", str(2**26))
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    target = TARGETS[path.parent.name]
    if target.name in ("command", "request", "minari"):  # these look at files beside the input
        target.seeds(tmp_path)
    kind, said = outcome(target, path.read_bytes(), tmp_path)
    assert kind in ("accepted", "refused"), said


QUICK = ("csv", "parquet", "world", "text")


@settings(max_examples=40)
@given(seed=st.integers(0, 2**32), name=st.sampled_from(QUICK))
def test_fresh_inputs_are_accepted_or_refused(seed, name, tmp_path_factory):
    target = TARGETS[name]
    data = target.mutate(random.Random(seed), target.seeds(Path()))
    kind, said = outcome(target, data, tmp_path_factory.getbasetemp())
    assert kind in ("accepted", "refused"), (said, data)


@settings(max_examples=60)
@given(data=st.binary(max_size=300), name=st.sampled_from((*QUICK, "hdf5", "policy", "model")))
def test_any_bytes_are_accepted_or_refused(data, name, tmp_path_factory):
    kind, said = outcome(TARGETS[name], data, tmp_path_factory.getbasetemp())
    assert kind in ("accepted", "refused"), (said, data)


def test_an_outcome_that_is_no_sentence_is_a_find(tmp_path):
    from kdbirl.errors import InputError

    def run(data: bytes, folder: Path) -> None:
        raise {b"a": InputError("A sentence."), b"b": InputError(""), b"c": ZeroDivisionError()}[data]

    target = Target("broken", lambda _: [], run)
    assert [outcome(target, data, tmp_path)[0] for data in (b"a", b"b", b"c")] == ["refused", "find", "find"]


def test_the_same_seed_makes_the_same_inputs():
    good = seeds.tables()
    once, again = ([mutation.mutated_bytes(rng_of(7, "csv", i), good) for i in range(50)] for _ in range(2))
    assert once == again
    assert len(set(once)) > 45


@pytest.mark.long
@pytest.mark.parametrize("name", list(TARGETS))
def test_a_campaign_finds_nothing(name, tmp_path, repository, monkeypatch):
    monkeypatch.chdir(repository)
    found = campaign(name, 11, 100 if name in ("posterior", "minari", "command") else 1000, tmp_path / "w", tmp_path)
    assert found.get("find", 0) == 0, found
