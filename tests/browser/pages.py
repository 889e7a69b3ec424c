"""Runs made by hand, so that a page has every section and no test waits for a fit."""

from dataclasses import replace
from pathlib import Path

import numpy as np

import kdbirl as kb
from kdbirl.report.html import report_page
from kdbirl.report.run_files import Run

SECTIONS = [
    "Report card",
    "The question and the data",
    "The posterior",
    "Weights against features",
    "What is and is not informed",
    "Coverage and sensitivity",
    "What drives the answer",
    "In the world: value lost, and policies",
    "Sampler diagnostics",
    "How it was made",
]
HOSTILE = (
    "<script>window.hacked = 1</script>",
    '"><img src=x onerror="window.hacked = 2">',
    "</script><script>window.hacked = 3</script>",
    "' onmouseover='window.hacked = 4' x='",
    "שלום \u202eevil\u202c עולם",
)


def posterior(names=("w_x", "w_y", "w_z"), draws=2000, seed=0, **more):
    """Correlated normal draws of NUTS, with likelihoods of 30 rows and a bank of 6 tasks."""
    rng, q = np.random.default_rng(seed), len(names)
    values = rng.normal(size=(4, draws // 4, q))
    values[..., 1:] += 0.8 * values[..., :1]
    features = rng.normal(size=(30, 2))
    given = {
        "draws": values,
        "names": tuple(names),
        "method": "KDBIRL",
        "sampler": "NUTS",
        "seed": 3,
        "sample_stats": {"lp": rng.normal(size=values.shape[:2])},
        "prior_draws": 2 * rng.normal(size=(1000, q)),
        "log_likelihood": 0.3 * values[..., :1] * features[:, 0],
        "expert_features": features,
        "feature_names": ("x", "y"),
        "task_rewards": rng.normal(size=(6, q)),
        "task_names": tuple("abcdef"),
        "task_rows": np.full(len(more.get("task_names", "abcdef")), 20),
        "h": 0.5,
        "h_reward": 0.7,
        "bandwidth_rule": "given",
        "settings": {"prior": "normal:0,2", "features": "Identity", "versions": {"kdbirl": "0"}},
        "cards": {"support": ("red", "Few rows."), "sensitivity": ("not assessed", "Nobody looked.")},
    }
    return kb.Posterior(**given | more)


def findings(names):
    """What a diagnosis of these parameters could say."""
    q = len(names)
    shift = np.linspace(-0.4, 1.6, 2 * q).reshape(2, q)
    return {
        "identifiability": {
            "sentence": f"The tasks inform {names[0]}.",
            "informed": np.eye(q)[:1].tolist(),
            "uninformed_in_words": list(names[1:]),
        },
        "support": {"sentence": "All rows lie within."},
        "calibration": {
            "sentence": "Intervals hold.",
            "n_tasks": 6,
            "levels": [0.5, 0.9],
            "pooled": [0.4, 0.95],
            "pooled_low": [0.2, 0.7],
            "pooled_high": [0.6, 1.0],
        },
        "sensitivity": {
            "sentence": "It moves.",
            "names": list(names),
            "changes": ["h x 2", "prior width x 2"],
            "shift": shift.tolist(),
            "ratio": np.exp(shift).tolist(),
        },
        "policies": {
            "sentence": "Two kinds.",
            "parameters": list(names),
            "shares": [0.7, 0.3],
            "feature_expectations": [[1.0] * q, [0.5] * q],
        },
    }


def evaluation():
    part = {
        "mean": 1.0,
        "standard_error": 0.1,
        "interval_95": [0.8, 1.2],
        "of_mean_reward": 0.5,
        "normalised_regret": 0.1,
        "quantiles_of_draws": {"q05": 0.0, "q95": 2.0},
        "draws": 100,
    }
    return {"env": "world", "discount": 0.9, "best_value": 10.0, "random_value": 1.0, "posterior": part, "prior": part}


def model(names):
    """Fitted on the bank that the posterior names; nothing is sampled."""
    bank = posterior(names)
    rng = np.random.default_rng(1)
    states, tasks = rng.normal(size=(120, 2)), np.repeat(np.arange(6), 20)
    bank = kb.TaskBank.from_arrays(states, None, tasks, bank.task_rewards, state_names=["x", "y"])
    return kb.KDBIRL(prior=kb.Normal(0, 2), features=kb.Identity(), bandwidth=(0.5, 0.7)).fit(bank)


def bounded_run():
    """A uniform prior on [0, 1], and draws that reach both of its ends."""
    rng = np.random.default_rng(2)
    states, tasks = rng.normal(size=(120, 2)), np.repeat(np.arange(6), 20)
    bank = kb.TaskBank.from_arrays(states, None, tasks, rng.uniform(size=(6, 2)), reward_names=["w_x", "w_y"])
    fitted = kb.KDBIRL(prior=kb.Uniform(0, 1), bandwidth=(0.5, 0.7)).fit(bank)
    drawn = rng.beta(0.4, 0.4, size=(4, 500, 2))
    settings = {"prior": "uniform:0,1", "features": "Standardize"}
    made = posterior(
        ("w_x", "w_y"), draws=2000, settings=settings, prior_draws=rng.uniform(size=(1000, 2)), feature_names=("x", "y")
    )
    return Run.of(replace(made, draws=drawn), "bounded", fitted)


def full_run(names=("w_x", "w_y", "w_z"), name="full", **more):
    made = posterior(names, **more)
    manifest = {
        "written": "2026-01-01T00:00:00",
        "configuration": {"training": "t.csv", "prior": ["normal:0,2"], "seed": 3, "quiet": True, "power": None},
        "working_directory": "/data",
        "versions": {"kdbirl": "0", "jax": "1"},
        "inputs": {"t.csv": "ab12"},
    }
    return Run(name, made, model(names), manifest, findings(names), made.report_card(), evaluation())


def write(directory: Path, run: Run, name: str = "report.html", rows: bool = True) -> Path:
    path = directory / name
    path.write_text(report_page(run, rows), encoding="utf-8")
    return path
