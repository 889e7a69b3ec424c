"""Imports go one way, heavy packages are loaded late and in one place, and importing changes nothing."""

import ast
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import kdbirl

SOURCE = Path(__file__).resolve().parents[1] / "src"
PACKAGE = SOURCE / "kdbirl"

# DESIGN 9: a folder may import itself and what stands before it. Modules directly under kdbirl/ are the foundation.
FOLDERS = (
    "data",
    "features",
    "worlds",
    "likelihood",
    "posterior",
    "trust",
    "methods",
    "evaluation",
    "report",
    "cli",
)
OPTIONAL = ("dask", "distributed", "icu_sepsis", "minari", "pandas", "pykeops", "sklearn", "stan", "torch")
HEAVY = (
    "arviz_base",
    "arviz_stats",
    "blackjax",
    "jax",
    "matplotlib",
    "numba",
    "numpy",
    "pandas",
    "polars",
    "pyarrow",
    "xarray",
)
PICKLES = ("cloudpickle", "dill", "joblib", "marshal", "pickle", "shelve")


@dataclass(frozen=True)
class Import:
    """One import statement's target, where it stands, and whether it runs when the file is imported."""

    importer: str
    target: str
    line: int
    at_import: bool

    def __str__(self) -> str:
        return f"{self.importer} (line {self.line}) imports {self.target}"


def module_name(path: Path) -> str:
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def source_files() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def targets(node: ast.Import | ast.ImportFrom, importer: str) -> list[str]:
    """Modules that a statement names; `from kdbirl import X` is resolved through the table of public names."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    assert node.level == 0, f"{importer} (line {node.lineno}): write imports in full, from kdbirl. on"
    module = node.module or ""
    if module != "kdbirl":
        return [module]
    return [kdbirl._MODULE_OF.get(alias.name, f"kdbirl.{alias.name}") for alias in node.names]


def imports_of(path: Path) -> Iterator[Import]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    importer = module_name(path)
    inside = {
        id(inner)
        for outer in ast.walk(tree)
        if isinstance(outer, ast.FunctionDef | ast.AsyncFunctionDef | ast.If)
        for inner in ast.walk(outer)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            for target in targets(node, importer):
                yield Import(importer, target, node.lineno, id(node) not in inside)


ALL_IMPORTS = [found for path in source_files() for found in imports_of(path) if path != PACKAGE / "__init__.py"]


def rank(module: str) -> int:
    """0 for the foundation, 1 for the first folder of the pipeline, and so on."""
    parts = module.split(".")
    if module == "kdbirl.__main__":
        return len(FOLDERS)
    if len(parts) > 1 and parts[1] in FOLDERS:
        return FOLDERS.index(parts[1]) + 1
    return 0


def test_every_folder_has_its_place_in_the_order():
    folders = {path.name for path in PACKAGE.iterdir() if path.is_dir() and any(path.rglob("*.py"))}
    assert folders <= set(FOLDERS)


def wrong_way(imports: Iterable[Import]) -> list[str]:
    return [str(found) for found in imports if rank(found.target) > rank(found.importer)]


def test_imports_go_one_way():
    assert sum(found.target.startswith("kdbirl.") for found in ALL_IMPORTS) > 10
    assert wrong_way(ALL_IMPORTS) == []


def test_an_import_the_wrong_way_is_found(tmp_path, monkeypatch):
    """Also inside a function, and through a public name."""
    monkeypatch.setattr(sys.modules[__name__], "SOURCE", tmp_path)
    bad = tmp_path / "kdbirl" / "features" / "bad.py"
    bad.parent.mkdir(parents=True)
    bad.write_text(
        "from kdbirl.data.demonstrations import TaskBank\nfrom kdbirl import errors\n"
        "def f():\n    from kdbirl.posterior import result\n    from kdbirl import KDBIRL\n"
    )
    assert wrong_way(imports_of(bad)) == [
        "kdbirl.features.bad (line 4) imports kdbirl.posterior",
        "kdbirl.features.bad (line 5) imports kdbirl.methods.kdbirl",
    ]


def test_only_the_last_folders_import_the_whole_package():
    whole = [found for found in ALL_IMPORTS if found.target == "kdbirl"]
    assert [str(found) for found in whole if rank(found.importer) < FOLDERS.index("cli") + 1] == []


LEARNING = {f"kdbirl.features.{name}" for name in ("vae_network", "in_jax")}


def test_data_and_features_are_numpy_only_but_for_what_learns():
    inside = [found for found in ALL_IMPORTS if found.importer.startswith(("kdbirl.data", "kdbirl.features"))]
    others = [found for found in inside if found.importer not in LEARNING]
    assert [str(found) for found in others if found.target.split(".")[0] in ("jax", "blackjax", "equinox")] == []
    assert [str(found) for found in others if found.target in LEARNING and found.at_import] == []


def test_blackjax_is_imported_only_under_posterior():
    users = {found.importer for found in ALL_IMPORTS if found.target.split(".")[0] == "blackjax"}
    assert all(user.startswith("kdbirl.posterior.") for user in users), users


@pytest.mark.parametrize("package", OPTIONAL)
def test_an_optional_package_is_imported_in_one_file_and_late(package):
    found = [one for one in ALL_IMPORTS if one.target.split(".")[0] == package]
    assert len({one.importer for one in found}) <= 1, [str(one) for one in found]
    assert [str(one) for one in found if one.at_import] == []


def test_no_pickle_and_no_evaluated_text():
    assert [str(found) for found in ALL_IMPORTS if found.target.split(".")[0] in PICKLES] == []
    assert [place for path in source_files() for place in evaluations(path)] == []


def evaluations(path: Path) -> Iterator[str]:
    """Calls that turn text or stored bytes into running code."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Call):
            continue
        called = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
        by_name = isinstance(node.func, ast.Name) and called in ("eval", "exec", "compile", "__import__")
        pickled = called in ("read_pickle", "to_pickle") or any(
            keyword.arg == "allow_pickle" and getattr(keyword.value, "value", None) is not False
            for keyword in node.keywords
        )
        dynamic = called == "import_module" and path != PACKAGE / "__init__.py"
        if by_name or pickled or dynamic:
            yield f"{module_name(path)} (line {node.lineno}) calls {called}"


def test_evaluations_are_found(tmp_path, monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "SOURCE", tmp_path)
    bad = tmp_path / "bad.py"
    bad.write_text("eval('1')\nnp.load(f, allow_pickle=True)\nimport_module('x')\nnp.load(f, allow_pickle=False)\n")
    assert len(list(evaluations(bad))) == 3


def test_public_names_are_the_same_for_python_and_for_type_checkers():
    tree = ast.parse((PACKAGE / "__init__.py").read_text(encoding="utf-8"))
    block = next(node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
    for_checkers = {
        alias.asname: node.module for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    assert for_checkers == kdbirl._MODULE_OF


@pytest.mark.parametrize("name", sorted(kdbirl._MODULE_OF))
def test_public_name_resolves(name):
    assert getattr(kdbirl, name).__name__ == name
    assert name in dir(kdbirl)


def test_an_unknown_name_suggests_the_nearest():
    with pytest.raises(AttributeError, match=r"no attribute 'KDBRL'\. Did you mean 'KDBIRL'"):
        _ = kdbirl.KDBRL


def run_fresh(program: str) -> object:
    """What `program` prints as JSON in a new Python process without settings of JAX's or of the test run's."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("JAX_", "XLA_", "KDBIRL_"))}
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=False,
        env=environment | {"PYTHONPATH": str(SOURCE)},
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return json.loads(done.stdout)


LOADED = "import json, sys; print(json.dumps(sorted({name.split('.')[0] for name in sys.modules})))"


def test_importing_the_package_loads_nothing_heavy():
    assert set(run_fresh(f"import kdbirl; {LOADED}")).isdisjoint(HEAVY)


def test_the_command_line_starts_without_heavy_packages():
    assert set(run_fresh(f"import kdbirl.cli; {LOADED}")).isdisjoint(HEAVY)


def test_data_and_features_need_only_numpy():
    loaded = run_fresh(f"import kdbirl; kdbirl.TaskBank, kdbirl.Demonstrations, kdbirl.OneHot; {LOADED}")
    assert set(loaded).isdisjoint(set(HEAVY) - {"numpy"})


def test_reading_tables_needs_neither_jax_nor_plots():
    readers = "kdbirl.read_task_bank, kdbirl.read_minari, kdbirl.write_task_bank"
    loaded = run_fresh(f"import kdbirl; {readers}; {LOADED}")
    assert set(loaded).isdisjoint(set(HEAVY) - {"numpy", "polars"})


STATE = """
import json, logging, os, sys, threading, warnings
import jax
def state():
    return [
        {key: repr(value) for key, value in jax.config.values.items()},
        [repr(handler) for handler in logging.getLogger().handlers], logging.getLogger().level,
        [thread.name for thread in threading.enumerate()], dict(os.environ), repr(warnings.filters),
        repr(sys.excepthook), repr(warnings.showwarning),
    ]
"""


def test_importing_everything_changes_nothing_in_the_process():
    """Configuration, logging, threads, environment and warning filters are the same before and after."""
    imports = """
before = state()
import numpy, polars, optax, blackjax, xarray, arviz_base, arviz_stats, matplotlib.pyplot
after_others = state()
import kdbirl
for name in kdbirl._MODULE_OF:
    try:
        getattr(kdbirl, name)
    except ModuleNotFoundError as missing:
        assert missing.name.startswith("kdbirl"), missing
import kdbirl.cli
print(json.dumps([after_others[i] == now for i, now in enumerate(state())] + [before[0] == after_others[0]]))
"""
    unchanged = run_fresh(STATE + imports)
    assert unchanged == [True] * len(unchanged)
