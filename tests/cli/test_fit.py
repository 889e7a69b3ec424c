"""`kdbirl fit`, from files to files: what it writes, what it prints, and one sentence for every mistake."""

import gzip
import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import kdbirl as kb
from kdbirl import cli
from kdbirl.errors import KDBIRLWarning

from . import tables

FILES = ["diagnosis.json", "manifest.json", "model.npz", "posterior.nc", "report.html", "summary.csv"]
TABLES = {"--training": "training.parquet", "--rewards": "rewards.csv", "--expert": "expert.csv"}
COLUMNS = {"--state": "x,y", "--action": "action", "--prior": "uniform:0,1", "--out": "run"}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The current directory, with README's three tables in it."""
    monkeypatch.chdir(tmp_path)
    tables.write_tables(tmp_path)
    return tmp_path


def words(**changes):
    """The command of README; `state="x"` changes an option, None leaves it out, a list repeats it, True is a flag."""
    options = TABLES | COLUMNS | {f"--{name.replace('_', '-')}": value for name, value in changes.items()}
    found = ["fit"]
    for option, value in options.items():
        for one in value if isinstance(value, list) else [value]:
            found += [] if one is None else [option] if one is True else [option, str(one)]
    return found


def fit(**changes):
    """Run it in this process; the posterior that it wrote."""
    assert cli.run(words(quiet=True, **changes)) == 0
    return kb.load_posterior(Path(changes.get("out", "run")) / "posterior.nc")


def as_process(*arguments):
    return subprocess.run([sys.executable, "-m", "kdbirl", *arguments], capture_output=True, text=True, check=False)


def everything(folder):
    """Every file below a folder, hidden ones too, with its content; directories with None."""
    return {path: path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


# What it does.


@pytest.fixture(scope="module")
def whole_run(tmp_path_factory):
    """One run of the real command in a process of its own: (folder, finished process)."""
    folder = tmp_path_factory.mktemp("whole")
    tables.write_tables(folder)
    environment = os.environ | {"KDBIRL_CACHE_DIR": str(tmp_path_factory.getbasetemp() / "kdbirl-cache")}
    command = [sys.executable, "-m", "kdbirl", *words()]
    return folder, subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, env=environment)


def test_the_command_writes_a_run_directory(whole_run):
    folder, done = whole_run
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(path.name for path in folder.iterdir()) == ["expert.csv", "rewards.csv", "run", "training.parquet"]
    assert sorted(path.name for path in (folder / "run").iterdir()) == FILES


def test_the_posterior_is_that_of_the_library(whole_run, monkeypatch):
    folder, _ = whole_run
    monkeypatch.chdir(folder)
    bank = kb.read_task_bank("training.parquet", rewards="rewards.csv", state=["x", "y"], action="action")
    expert = kb.read_demonstrations("expert.csv", state=["x", "y"], action="action")
    expected = kb.KDBIRL(prior=kb.Uniform(0, 1)).fit(bank).posterior(expert, seed=0)
    assert kb.load_posterior("run/posterior.nc") == expected
    assert expected.mean()[0] > 0.6  # the expert goes right, as task b does
    assert kb.load_model("run/model.npz").posterior(expert, seed=0).draws.tobytes() == expected.draws.tobytes()


def test_the_summary_is_a_plain_table(whole_run):
    folder, _ = whole_run
    table = pl.read_csv(folder / "run" / "summary.csv")
    assert table["parameter"].to_list() == ["w_x", "w_y"]
    assert table.columns[1:] == ["mean", "sd", "q05", "median", "q95", "r_hat", "ess_bulk", "ess_tail"]


def test_an_expert_table_of_several_tasks_is_not_pooled_without_a_word(folder, capsys):
    frame = pl.read_csv("expert.csv")
    several = pl.Series(["ann", "bo"] * frame.height)[: frame.height]
    frame.with_columns(patient=several).write_csv("expert.csv")
    training = pl.read_parquet("training.parquet").rename({"task": "patient"})
    training.write_parquet("training.parquet")
    pl.read_csv("rewards.csv").rename({"task": "patient"}).write_csv("rewards.csv")
    with pytest.warns(KDBIRLWarning, match=r"expert.csv: column 'patient' names 2 tasks, .* --expert-task of kdbirl"):
        assert cli.run(words(task="patient")) == 0


def test_the_text_fits_a_terminal_and_tells_every_choice(whole_run):
    folder, done = whole_run
    assert max(len(line) for line in done.stdout.splitlines()) <= 80
    for choice in ("uniform:0,1", "Standardize", "gaussian on euclidean", "median", "chosen by auto", "Grid", "seed"):
        assert choice in done.stdout
    assert [name for name in FILES if name not in done.stdout] == []
    posterior = kb.load_posterior(folder / "run" / "posterior.nc")
    assert f"{posterior.mean()[0]:.4g}" in done.stdout
    assert f"h = {posterior.h:.4g}" in done.stdout


def test_the_manifest_can_repeat_the_run(whole_run):
    folder, _ = whole_run
    manifest = json.loads((folder / "run" / "manifest.json").read_text())
    assert manifest["seed"] == 0
    assert manifest["configuration"]["bandwidth"] is None
    assert manifest["choices"]["bandwidths"] == "median"  # what came of it: three tasks are too few for loto
    assert manifest["working_directory"] == str(folder)
    assert manifest["versions"]["kdbirl"] == kb.__version__
    assert set(manifest["timings"]) == {"read", "fit", "posterior"}
    assert set(manifest["inputs"]) == set(TABLES.values())
    assert set(manifest["outputs"]) == set(FILES) - {"manifest.json", "report.html"}  # the page is written again later
    for name, digest in manifest["inputs"].items():
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == digest
    for name, digest in manifest["outputs"].items():
        assert hashlib.sha256((folder / "run" / name).read_bytes()).hexdigest() == digest


def test_the_same_seed_gives_the_same_bytes(whole_run, folder):
    other_process = kb.load_posterior(whole_run[0] / "run" / "posterior.nc")
    first, other = fit(out="first"), fit(out="other", seed=1)
    assert first.draws.tobytes() == other_process.draws.tobytes()
    assert first.draws.tobytes() != other.draws.tobytes()


def test_json_is_json(folder, capsys):
    assert cli.run([*words(), "--json"]) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    content = json.loads(shown.out, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    posterior = kb.load_posterior(content["files"]["posterior.nc"])
    assert [row["mean"] for row in content["summary"]] == posterior.mean().tolist()
    assert content["report_card"]["convergence"][0] == "green"
    assert content["choices"]["prior"] == "uniform:0,1"


def test_quiet_prints_nothing(folder, capsys):
    fit()
    assert tuple(capsys.readouterr()) == ("", "")


def test_help_names_every_option_and_has_an_example(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert cli.run(["fit", "--help"]) == 0
    shown = capsys.readouterr().out
    assert max(len(line) for line in shown.splitlines()) <= 80
    assert [word for word in words(seed=0, expert_columns="", chains=1)[1::2] if word not in shown] == []
    assert "kdbirl fit --training training.csv" in shown
    panels = [shown.index(f"─ {panel} ") for panel in ("Tables", "Model", "Sampling", "Output")]
    assert panels == sorted(panels)


# Tables as people have them. The same content gives the same numbers.


def semicolons(frame, path):
    """As a spreadsheet in most of Europe writes it: BOM, semicolons, decimal commas, Windows line ends."""
    lines = [frame.columns, *frame.rows()]
    text = "".join(";".join(str(cell).replace(".", ",") for cell in line) + "\r\n" for line in lines)
    path.write_text(text, encoding="utf-8-sig", newline="")


def as_semicolons(folder):
    semicolons(tables.training(), folder / "training.csv")
    semicolons(tables.rewards(), folder / "rewards.csv")
    semicolons(tables.expert(), folder / "expert.csv")
    return {"training": "training.csv"}


def as_gzip(folder):
    (folder / "training.csv.gz").write_bytes(gzip.compress(tables.training().write_csv().encode()))
    return {"training": "training.csv.gz"}


def as_directory(folder):
    (folder / "parts").mkdir()
    for task, part in tables.training().group_by("task", maintain_order=True):
        part.write_parquet(folder / "parts" / f"{task[0]}.parquet")
    return {"training": "parts"}


def as_pattern(folder):
    return as_directory(folder) | {"training": "parts/*.parquet"}


def as_numbered_tasks(folder):
    """Integers in Parquet, text in CSV."""
    codes = {task: number for number, task in enumerate(tables.GOALS, start=1)}
    tables.training().with_columns(pl.col("task").replace_strict(codes)).write_parquet(folder / "training.parquet")
    tables.rewards().with_columns(pl.col("task").replace_strict(codes)).write_csv(folder / "rewards.csv")
    return {}


def as_other_names(folder):
    names = {"task": "patient", "x": "pos x", "y": "pos y", "action": "drug", "episode": "stay", "step": "hour"}
    tables.training().rename(names).write_parquet(folder / "training.parquet")
    tables.rewards().rename({"task": "patient"}).write_csv(folder / "rewards.csv")
    tables.expert().rename({"x": "X", "episode": "stay", "step": "hour", "action": "drug"}).write_csv(
        folder / "expert.csv"
    )
    return {
        "task": "patient",
        "state": "pos x,pos y",
        "action": "drug",
        "episode": "stay",
        "step": "hour",
        "expert_columns": "pos x=X, pos y=y",
    }


def as_more_columns(folder):
    tables.rewards().with_columns(note=pl.lit("a remark")).write_csv(folder / "rewards.csv")
    return {"reward": "w_x,w_y"}


SHAPES = [as_semicolons, as_gzip, as_directory, as_pattern, as_numbered_tasks, as_other_names, as_more_columns]


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.__name__)
def test_the_same_tables_in_another_shape_give_the_same_draws(shape, folder, whole_run):
    plain = kb.load_posterior(whole_run[0] / "run" / "posterior.nc")
    assert fit(**shape(folder)).draws.tobytes() == plain.draws.tobytes()


def test_every_file_of_a_directory_is_in_the_manifest(folder):
    fit(**as_directory(folder))
    inputs = json.loads(Path("run/manifest.json").read_text())["inputs"]
    assert sorted(inputs) == ["expert.csv", "parts/a.parquet", "parts/b.parquet", "parts/c.parquet", "rewards.csv"]


def test_discrete_states(folder):
    cell = (pl.col("x") * 4).floor().cast(pl.Int64).alias("cell")
    tables.training().with_columns(cell).write_parquet("training.parquet")
    tables.expert().with_columns(cell).write_csv("expert.csv")
    posterior = fit(state="cell", discrete_states=True, features="grid:4x1+onehot-actions")
    assert posterior.feature_names[:3] == ("x", "y", "action=left")


def test_vector_actions(folder):
    for frame, name in ((tables.training(), "training.parquet"), (tables.expert(), "expert.parquet")):
        noise = np.random.default_rng(2).normal(size=(frame.height, 2))
        frame.with_columns(fx=noise[:, 0], fy=noise[:, 1]).write_parquet(name)
    posterior = fit(action="fx,fy", expert="expert.parquet", conditional="action", task_weights="equal")
    assert posterior.feature_names == ("x", "y", "fx", "fy")
    assert posterior.settings["conditional"] == "action"


def test_states_alone(folder):
    assert fit(action=None).feature_names == ("x", "y")


# Choices.


def test_a_prior_for_each_parameter(folder):
    posterior = fit(prior=["w_y=truncated-normal:0,1,0,0.5", "w_x=uniform:0,1"])
    assert posterior.settings["prior"] == "uniform:0,1 x truncated-normal:0,1,0,0.5"
    assert posterior.flat[:, 1].max() <= 0.5 < posterior.flat[:, 0].max()


def test_a_prior_for_one_parameter_and_another_for_the_rest(folder):
    posterior = fit(prior=["uniform:0,1", "w_y=uniform:0,0.5"])
    assert posterior.settings["prior"] == "uniform:0,1 x uniform:0,0.5"


@pytest.mark.parametrize("sampler", ["nuts", "grid", "auto"])
def test_chains_and_draws(sampler, folder):
    steps = {"warmup": 100} if sampler != "grid" else {}
    posterior = fit(sampler=sampler, chains=2, draws=100, **steps)
    assert posterior.draws.shape == (2, 100, 2)


def test_numbers_as_bandwidths(folder):
    posterior = fit(bandwidth="0.7,0.4", power=0.5, kernel="laplace", reward_distance="manhattan")
    assert (posterior.h, posterior.h_reward, posterior.power, posterior.bandwidth_rule) == (0.7, 0.4, 0.5, "given")


# Mistakes: one sentence, exit code 2, nothing written.


def refused(folder, capsys, **changes):
    """The sentence with which the command refuses."""
    before = everything(folder)
    assert cli.run(words(**changes)) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.count("\n") == 1, shown.err
    assert "Traceback" not in shown.err
    assert everything(folder) == before
    return shown.err.removeprefix("kdbirl: ").rstrip("\n")


def change(name, column, row, value):
    """One cell of a table, in the file of that name."""
    frame = {"training": tables.training, "rewards": tables.rewards, "expert": tables.expert}[name]()
    cells = frame[column].to_list()
    cells[row] = value
    frame = frame.with_columns(pl.Series(column, cells, strict=False))
    frame.write_parquet("training.parquet") if name == "training" else frame.write_csv(f"{name}.csv")


def lines(name, change):
    path = Path(name)
    path.write_text("\n".join(change(path.read_text().splitlines())) + "\n")


WRONG_CELLS = {
    "NaN in training": (("training", "y", 6, float("nan")), "row 7 of training.parquet, column 'y' is missing"),
    "infinite in training": (("training", "x", 0, float("inf")), "row 1 of training.parquet, column 'x' is infinite"),
    "empty in expert": (("expert", "x", 2, None), "row 3 (line 4) of expert.csv, column 'x' is missing"),
    "infinite in rewards": (("rewards", "w_x", 1, float("inf")), "row 2 (line 3) of rewards.csv, column 'w_x' is inf"),
    "empty task": (("training", "task", 3, None), "row 4 of training.parquet, column 'task' is empty"),
    "task without a reward": (("training", "task", 3, "d"), "task 'd' is in training.parquet without a reward in rew"),
    "task spelled otherwise": (("rewards", "task", 2, "C "), "task 'C' is in rewards.csv without rows in training.pa"),
    "repeated task": (("rewards", "task", 2, "a"), "row 3 (line 4) of rewards.csv, column 'task': task 'a' is there "),
}


@pytest.mark.parametrize("case", WRONG_CELLS)
def test_a_wrong_cell(case, folder, capsys):
    cell, sentence = WRONG_CELLS[case]
    change(*cell)
    assert sentence in refused(folder, capsys)


WRONG_LINES = {
    "text for a number": ("expert.csv", "0,0,north,0.2,left", "row 1 (line 2) of expert.csv, column 'x' is 'north'"),
    "a reward too few": ("rewards.csv", "a,0.1", "row 1 (line 2) of rewards.csv, column 'w_y' is missing"),
    "a reward too many": ("rewards.csv", "a,0.1,0.2,0.3", "rewards.csv: line 2 has 4 fields, but the header has 3"),
    "text for a reward": ("rewards.csv", "a,high,0.2", "row 1 (line 2) of rewards.csv, column 'w_x' is 'high'"),
}


@pytest.mark.parametrize("case", WRONG_LINES)
def test_a_wrong_line(case, folder, capsys):
    name, line, sentence = WRONG_LINES[case]
    lines(name, lambda found: [found[0], line, *found[2:]])
    assert sentence in refused(folder, capsys)


WRONG_OPTIONS = {
    "state column": ({"state": "x,yy"}, "training.parquet has no column 'yy'. Did you mean 'y'?"),
    "action column": ({"action": "acton"}, "training.parquet has no column 'acton'. Did you mean 'action'?"),
    "task column": ({"task": "tsk"}, "has no column 'tsk'. Did you mean 'task'?"),
    "reward column": ({"reward": "w_z"}, "rewards.csv has no column 'w_z'. Did you mean"),
    "episode column": ({"episode": "episod"}, "training.parquet has no column 'episod'. Did you mean 'episode'?"),
    "no state column": ({"state": ","}, "state: give at least one column"),
    "state twice": ({"state": "x,x"}, "each only once"),
    "expert column": ({"expert_columns": "x=pos"}, "expert.csv has no column 'pos'."),
    "expert pair": ({"expert_columns": "x"}, "names 'x' should read ours=theirs, such as x=pos_x."),
    "another expert column": ({"expert_columns": "z=x"}, "columns: 'z' is not a column that was asked for."),
    "missing file": ({"expert": "exprt.csv"}, "exprt.csv: there is no such file. Did you mean 'expert.csv'?"),
    "missing pattern": ({"training": "*.tsv"}, "*.tsv: no file matches this pattern."),
    "missing option": ({"rewards": None}, "Where are the known rewards? Give their table"),
    "unknown option": ({"sampling": "nuts"}, "No such option: --sampling"),
    "declared actions": ({"n_actions": 2}, "has 3 different labels, but 2 were declared"),
    "declared labels": ({"actions": "left,right"}, "column 'action' is 'stay', outside the declared set."),
    "empty declared set": ({"actions": ","}, "actions: the declared set is empty"),
    "no declared actions": ({"n_actions": 0}, "has 3 different labels, but 0 were declared"),
    "zero bandwidth": ({"bandwidth": "0,1"}, "The bandwidth h = 0 must be a positive, finite number"),
    "negative bandwidth": ({"bandwidth": "1,-0.4"}, "The bandwidth h_reward = -0.4 must be a positive, finite number"),
    "bandwidth that is none": ({"bandwidth": "nan,1"}, "The bandwidth h = nan must be a positive, finite number"),
    "one bandwidth": ({"bandwidth": "0.5"}, "The bandwidth '0.5' is neither a rule nor two numbers h,h_reward"),
    "bandwidth rule": ({"bandwidth": "medan"}, "Did you mean 'median'?"),
    "prior elsewhere": ({"prior": "uniform:5,6"}, "The prior uniform:5,6 excludes every training reward: for example"),
    "prior's name": ({"prior": "unifrm:0,1"}, "There is no prior called 'unifrm'. Did you mean 'uniform'?"),
    "prior's numbers": ({"prior": "normal:0"}, "The prior 'normal:0' should read normal:mean,sd with a number for"),
    "prior's order": ({"prior": "uniform:1,0"}, "low must lie below high"),
    "prior of nothing": ({"prior": "laplace:nan,1"}, "mean must be finite"),
    "prior of another": ({"prior": ["w_z=normal:0,1", "normal:0,1"]}, "'w_z', which is not among the reward param"),
    "prior of one only": ({"prior": "w_x=normal:0,1"}, "The reward parameter 'w_y' has no prior; add w_y=uniform:0,1"),
    "two priors of one": ({"prior": ["w_x=normal:0,1", "w_x=normal:0,2"]}, "'w_x' has two priors"),
    "two priors of all": ({"prior": ["normal:0,1", "normal:0,2"]}, "There are 2 priors without a parameter's name"),
    "no kernel": ({"kernel": "gausian"}, "There is no kernel called 'gausian'. Did you mean 'gaussian'?"),
    "no distance": ({"distance": "euclid"}, "Did you mean 'euclidean'?"),
    "no sampler": ({"sampler": "nut"}, "There is no sampler called 'nut'. Did you mean 'nuts'?"),
    "no chains": ({"sampler": "nuts", "chains": 0}, "NUTS(chains=0): a whole number of at least 1"),
    "warm-up of a grid": ({"sampler": "grid", "warmup": 5}, "The sampler 'grid' has no warmup to choose"),
    "words for chains": ({"chains": "four"}, "Invalid value for '--chains'"),
    "no features": ({"features": "pixels"}, "There are no features called 'pixels'."),
    "features' choice": ({"features": "onehot:3"}, "The features 'onehot:3' take nothing after the name"),
    "features of a grid": ({"features": "grid:big"}, "grid:big should give the grid's side, such as grid:5"),
    "features of columns": ({"features": "columns:"}, "columns: should name at least one column"),
    "features elsewhere": ({"features": "columns:q"}, "There is no column 'q' among the training rows'"),
    "no conditional": ({"conditional": "states"}, 'should be "state-action" (the paper) or "action"'),
    "no task weights": ({"task_weights": "same"}, 'should be "rows" (the paper) or "equal"'),
    "no power": ({"power": 0}, "power=0.0 should be a positive number"),
    "negative seed": ({"seed": -1}, "seed=-1 should be a whole number from 0 to 4294967295."),
    "labels for numbers": ({"state": "task,x"}, "row 1 of training.parquet, column 'task' is 'a', which is not a num"),
}


@pytest.mark.parametrize("case", WRONG_OPTIONS)
def test_a_wrong_option(case, folder, capsys):
    changes, sentence = WRONG_OPTIONS[case]
    assert sentence in refused(folder, capsys, **changes)


def test_an_empty_table(folder, capsys):
    lines("expert.csv", lambda found: found[:1])
    assert refused(folder, capsys) == "expert.csv: the table has no rows; at least one is needed."
    Path("expert.csv").write_text("")
    assert "expert.csv: the file is empty" in refused(folder, capsys)
    tables.write_tables(folder)
    tables.training().clear().write_parquet("training.parquet")
    assert refused(folder, capsys) == "training.parquet: the table has no rows; at least one is needed."


def test_a_reward_for_a_task_without_rows(folder, capsys):
    lines("rewards.csv", lambda found: [*found, "d,0.5,0.5"])
    sentence = "task 'd' is in rewards.csv without rows in training.parquet; every task needs both."
    assert refused(folder, capsys) == sentence


def test_a_bank_of_one_task(folder, capsys):
    tables.training().filter(pl.col("task") == "a").write_parquet("training.parquet")
    lines("rewards.csv", lambda found: found[:2])
    assert "The bank has one task. One task cannot say how" in refused(folder, capsys)


def test_an_expert_with_vectors_of_another_width(folder, capsys):
    for frame, columns, name in ((tables.training(), "xy", "training"), (tables.expert(), "xyx", "expert")):
        frame.with_columns(pl.concat_list(*columns).alias("where")).write_parquet(f"{name}.parquet")
    sentence = refused(folder, capsys, state="where", expert="expert.parquet")
    assert "3" in sentence
    assert "2" in sentence


def test_an_expert_without_actions(folder, capsys):
    tables.expert().drop("action").write_csv("expert.csv")
    assert "expert.csv has no column 'action'." in refused(folder, capsys)


def test_an_action_of_the_expert_outside_the_declared_set(folder, capsys):
    change("expert", "action", 3, "jump")
    assert "row 4 (line 5) of expert.csv, column 'action' is 'jump', outside the declared set." in refused(
        folder, capsys, actions="left,right,stay"
    )


def test_an_action_code_outside_the_declared_set(folder, capsys):
    codes = pl.col("action").replace_strict({"left": 0, "right": 1, "stay": 2})
    tables.training().with_columns(codes).write_parquet("training.parquet")
    tables.expert().with_columns(codes.replace(1, 7)).write_csv("expert.csv")
    sentence = refused(folder, capsys, n_actions=3)
    assert "of expert.csv, column 'action' is 7, outside the declared set" in sentence


@pytest.mark.parametrize("kernel", ["uniform", "triangular", "epanechnikov"])
def test_a_compact_kernel_without_a_training_row_in_reach(kernel, folder, capsys):
    change("expert", "x", 4, 55.0)
    sentence = refused(folder, capsys, kernel=kernel, bandwidth="3,1")
    assert "row 5" in sentence
    assert "reach" in sentence


def test_damaged_and_foreign_files(folder, capsys):
    content = Path("training.parquet").read_bytes()
    Path("training.parquet").write_bytes(content[: len(content) // 2])
    assert "training.parquet: the Parquet file is damaged or cut short" in refused(folder, capsys)
    Path("training.parquet").write_text("task,x\na,1\n")
    assert "training.parquet: the name says Parquet, but its content is something else" in refused(folder, capsys)
    tables.write_tables(folder)
    Path("expert.csv.gz").write_bytes(gzip.compress(Path("expert.csv").read_bytes())[:-20])
    assert "the gzip file is damaged or cut short" in refused(folder, capsys, expert="expert.csv.gz")
    Path("rewards.csv").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(100))
    assert refused(folder, capsys) == "rewards.csv: this is a PNG image, not a table."


@pytest.mark.parametrize(
    ("out", "sentence"),
    [
        ("expert.csv", "expert.csv already exists and is a file"),
        ("expert.csv/run", "there is no directory"),
        ("nowhere/run", "there is no directory"),
        ("/proc/run", "you cannot write to /proc"),
    ],
)
def test_a_place_that_cannot_be_written(out, sentence, folder, capsys):
    assert sentence in refused(folder, capsys, out=out)


def test_a_run_is_never_overwritten(whole_run, capsys, monkeypatch):
    monkeypatch.chdir(whole_run[0])
    sentence = refused(whole_run[0], capsys)
    assert sentence == "run already exists and is not empty; choose another directory for this run."


def test_an_empty_directory_may_be_there_already(folder):
    Path("run").mkdir()
    fit()
    assert sorted(path.name for path in Path("run").iterdir()) == FILES


def test_a_mistake_in_the_real_command(folder):
    done = as_process(*words(state="x,yy"))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "kdbirl: training.parquet has no column 'yy'. Did you mean 'y'?\n"
    assert sorted(path.name for path in folder.iterdir()) == ["expert.csv", "rewards.csv", "training.parquet"]
