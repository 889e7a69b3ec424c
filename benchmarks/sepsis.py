"""(g) Sepsis: environment steps per second of `SepsisSim`, beside the `GymSepsis` step and a plain Gymnasium loop.

A step is four hours of one patient under a random treatment, with phi, hazards and 46 covariates computed. `SepsisSim`
plays PATIENTS side by side in a compiled loop on both cores, without the original's memory of ten rows unless the name
says so. `GymSepsis` runs random weights in the layout of the original's files (its own may not be passed on): the same
arithmetic, three LSTMs over ten rows for each step. The loops of Gymnasium step one patient at a time.
"""

import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import jax
import numpy as np

import kdbirl as kb
from benchmarks.measuring import interleaved, rates
from kdbirl.errors import KDBIRLWarning
from kdbirl.worlds.sepsis.gym_sepsis import FILES

PATIENTS, STEPS = 4096, 180
GYM_PATIENTS, GYM_STEPS = 1024, 18
LOOP_STEPS = 100


def compare(quick: bool, repeats: int) -> dict[str, Any]:
    """Steps per second of each contender, and ratios to `SepsisSim`."""
    size = 4 if quick else 1
    simulators = {
        "SepsisSim": (kb.SepsisSim(memory=False), PATIENTS // size, STEPS // size),
        "SepsisSim with memory": (kb.SepsisSim(), PATIENTS // size, STEPS // size),
        "GymSepsis": (_gym_sepsis(), GYM_PATIENTS // size, GYM_STEPS),
    }
    runs: dict[str, Callable[[], object]] = {name: _rolling(*given) for name, given in simulators.items()}
    amounts = {name: patients * steps for name, (_, patients, steps) in simulators.items()}
    for name in ("SepsisSim", "GymSepsis"):
        runs[f"Gymnasium loop of {name}"] = _gymnasium_loop(simulators[name][0])
        amounts[f"Gymnasium loop of {name}"] = LOOP_STEPS
    times = interleaved(runs, repeats)
    speed = {name: rates(times[name], amounts[name]) for name in runs}
    return {
        "problem": {"patients": PATIENTS // size, "steps": STEPS // size, "precision": "float32"},
        "steps_per_second": {name: spread.record() for name, spread in speed.items()},
        "ratios": {
            f"SepsisSim over {name}": speed["SepsisSim"].over(speed[name]).record()
            for name in speed
            if name != "SepsisSim"
        },
    }


def _rolling(simulator: Any, patients: int, steps: int) -> Callable[[], object]:
    """A compiled loop of random treatments; what a planner would look at is summed, so that nothing is left out."""
    state, _ = simulator.reset(jax.random.key(0), patients)

    def step(state: Any, key: Any) -> tuple[Any, Any]:
        choose, on = jax.random.split(key)
        outcome = simulator.step(state, jax.random.randint(choose, (patients,), 0, simulator.n_actions), on)
        return outcome.state, (outcome.features.sum(), outcome.observation.sum(), outcome.terminated.sum())

    roll = jax.jit(lambda state, key: jax.lax.scan(step, state, jax.random.split(key, steps)))
    return lambda: jax.block_until_ready(roll(state, jax.random.key(1)))


def _gymnasium_loop(simulator: Any) -> Callable[[], object]:
    environment = kb.as_gymnasium(simulator, "terminal")
    actions = np.random.default_rng(0).integers(simulator.n_actions, size=LOOP_STEPS)

    def loop() -> None:
        environment.reset(seed=0)
        for action in actions:
            *_, terminated, truncated, _ = environment.step(action)
            if terminated or truncated:
                environment.reset()

    return loop


def _gym_sepsis() -> kb.GymSepsis:
    """Random weights of the size of trained ones, in the layout that Keras 2.1.6 wrote."""
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        for name, (inputs, outputs) in zip(FILES, ((47, 46), (48, 2), (48, 2)), strict=True):
            _write_keras(Path(folder) / name, inputs, outputs, rng)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", KDBIRLWarning)  # the starts are synthetic, as they should be here
            return kb.GymSepsis(folder)


def _write_keras(path: Path, inputs: int, outputs: int, rng: np.random.Generator) -> None:
    layers = {
        "lstm_1": {"kernel": (inputs, 200), "recurrent_kernel": (50, 200), "bias": (200,)},
        "dense_1": {"kernel": (50, 128), "bias": (128,)},
        "dense_2": {"kernel": (128, outputs), "bias": (outputs,)},
    }
    with h5py.File(path, "w") as file:
        weights = file.create_group("model_weights")
        weights.attrs["layer_names"] = np.array(list(layers), dtype="S")
        for layer, shapes in layers.items():
            group = weights.create_group(layer)
            names = [f"{layer}/{part}:0" for part in shapes]
            group.attrs["weight_names"] = np.array(names, dtype="S")
            for name, shape in zip(names, shapes.values(), strict=True):
                group[name] = rng.normal(0, 0.1, shape).astype(np.float32)
