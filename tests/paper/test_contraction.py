"""Lemma 4.1 and Theorem 4.2: a small run is repeatable and resumable, and its claims are decided both ways."""

import copy
import json

import numpy as np
import pytest
from paper.theory import FULL, QUICK, Contraction, claims, run
from paper.theory_lemma import RADII, LemmaCell, SamplePath, TheoremCell, expert
from paper.theory_world import BankPath

from kdbirl.errors import InputError
from kdbirl.evaluation.cells import CellStore
from kdbirl.progress import Silent
from paper import theory_lemma as lemma_4_1
from paper import theory_lemma as theorem_4_2

SMALL = Contraction(rows=(32, 64), expert_rows=(4, 8), seeds=2)


class Counted(Silent):
    """What progress was told."""

    def __init__(self):
        self.seen = []

    def update(self, name, done, total, note=""):
        self.seen.append((done, total))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("cells")


@pytest.fixture(scope="module")
def numbers(folder):
    return run(SMALL, CellStore(folder))


def test_every_path_size_and_seed_is_there(numbers):
    lemma, theorem = numbers["lemma_4_1"], numbers["theorem_4_2"]
    assert set(lemma["paths"]) == {"every-row", "root", "few-tasks", "paper-rule"}
    for path in lemma["paths"].values():
        table = np.asarray(path["error"])
        assert table.shape == (2, 2)
        assert ((table > 0) & (table < 2)).all()
        assert path["mean"]["number"] == pytest.approx(table.mean(axis=0))
    for path in theorem["paths"].values():
        mass = np.asarray(path["mass"])
        assert mass.shape == (2, 2, len(RADII))
        assert (np.diff(mass, axis=2) >= 0).all()  # larger balls hold more
        assert np.asarray(path["draws"]).shape == (2, 250, 2)
    assert lemma["paths"]["every-row"]["tasks"] == [32, 64]
    assert theorem["paths"]["growing"]["m"] == [64, 128]
    assert theorem["paths"]["fixed-64"]["m"] == [64, 64]


@pytest.mark.parametrize(("size", "seed"), [(0, 1), (1, 0)])
def test_each_number_is_that_of_its_own_cell(numbers, size, seed):
    """Nothing is transposed: the cell of a path, a size and a seed, computed alone, stands at its place."""
    for path in lemma_4_1.PATHS:
        alone = LemmaCell(SMALL.world, path, SMALL.rows[size], seed).run()
        found = numbers["lemma_4_1"]["paths"][path.name]
        assert (found["error"][seed][size], found["squared_error"][seed][size]) == (alone["l1"], alone["squared"])
    for path in theorem_4_2.THEOREM_PATHS:
        alone = TheoremCell(SMALL.world, path, SMALL.expert_rows[size], seed).run()
        found = numbers["theorem_4_2"]["paths"][path.bank.name]
        assert [found[name][seed][size] for name in ("mass", "error", "sd", "scale_sd", "covered")] == [
            alone[name] for name in ("mass", "error", "sd", "scale_sd", "covered")
        ]


def test_an_interrupted_run_goes_on_with_identical_numbers(numbers, folder):
    """Half of the cells are gone: only they are computed, and the result is the same to the last digit."""
    cells = sorted(folder.glob("*.json"))
    assert len(cells) == 32
    for cell in cells[::2]:
        cell.unlink()
    kept = {cell: cell.stat().st_mtime_ns for cell in cells[1::2]}
    progress = Counted()
    again = run(SMALL, CellStore(folder), progress)
    assert json.dumps(again, sort_keys=True) == json.dumps(numbers, sort_keys=True)
    assert {cell: cell.stat().st_mtime_ns for cell in kept} == kept
    assert progress.seen[-1] == (32, 32)


def constructed(numbers, seeds=12, converging=True):
    """Numbers as they would be if every path converged and contracted, or none."""
    made = copy.deepcopy(numbers)
    m = np.array([256.0, 1024, 4096, 16384, 65536])
    rng = np.random.default_rng(0)
    made["configuration"]["quick"] = False
    made["lemma_4_1"]["m"] = m.tolist()
    for path in made["lemma_4_1"]["paths"].values():
        curve = m**-0.25 if converging else 0.3 + m**-1.0
        path["error"] = (curve * np.exp(0.01 * rng.standard_normal((seeds, 5)))).tolist()
        path["mean"] = {"number": curve.tolist()}
    for path in made["theorem_4_2"]["paths"].values():
        path["mass"] = np.full((seeds, 2, 3), 0.99 if converging else 0.3).tolist()
        path["error"] = path["sd"] = path["scale_sd"] = np.full((seeds, 2), 0.01).tolist()
    return made


@pytest.mark.parametrize("converging", [True, False])
def test_claims_are_decided_both_ways(numbers, converging):
    found = {(row.name, row.variant): row.verdict for row in claims(constructed(numbers, converging=converging))}
    positive, negative = ("holds", "does not hold") if converging else ("does not hold", "holds")
    assert found == {
        ("lemma-4.1", "ours"): positive,
        ("lemma-4.1-rate", "ours"): positive,
        ("lemma-4.1", "printed"): positive,
        ("lemma-4.1-repeated-rewards", "ours"): positive,
        ("lemma-4.1-cover", "ours"): negative,
        ("theorem-4.2", "ours"): positive,
        ("theorem-4.2", "printed"): positive,
        ("theorem-4.2-n-alone", "ours"): negative,
        ("theorem-4.2-n-alone-64", "ours"): negative,
    }


def test_the_drawn_seed_is_the_typical_one(numbers):
    theorem = numbers["theorem_4_2"]
    ends = [np.asarray(theorem["paths"][name]["distance"])[:, -1] for name in ("fixed-1024", "fixed-64")]
    shown = int(np.argmin(np.mean(ends, axis=0)))  # the lower median of two
    assert theorem["shown_seed"] == shown
    truth, _ = expert(SMALL.world, 4, shown)
    assert theorem["shown_truth"] == truth.tolist()
    for path in theorem_4_2.THEOREM_PATHS:
        alone = TheoremCell(SMALL.world, path, SMALL.expert_rows[1], shown).run()
        assert theorem["paths"][path.bank.name]["draws"][1] == alone["draws"]


def test_few_seeds_and_quick_runs_decide_nothing(numbers):
    assert {row.verdict for row in claims(numbers)} == {"cannot be decided"}
    assert {row.seeds for row in claims(numbers)} == {2}
    quick = copy.deepcopy(numbers)
    quick["configuration"]["quick"] = True
    assert {row.verdict for row in claims(quick)} == {"not decided (quick)"}


def test_named_settings():
    assert FULL.seeds >= 10
    assert not FULL.quick
    assert QUICK.quick


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Contraction(seeds=1), "at least 2"),
        (lambda: Contraction(rows=(64,)), "two or more growing sizes"),
        (lambda: Contraction(expert_rows=(8, 4)), "two or more growing sizes"),
        (lambda: SamplePath(BankPath("p", "p", "root")), "one of factor"),
    ],
)
def test_wrong_settings_are_refused(make, sentence):
    with pytest.raises(InputError, match=sentence):
        make()
