"""Loops that were interrupted go on, bit for bit as if they had not been."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import kdbirl as kb
from kdbirl import store as module
from kdbirl.errors import KDBIRLWarning
from kdbirl.progress import Silent
from kdbirl.store import checkpoint_of, keep_checkpoints
from kdbirl.training import AVERAGED, STEEPEST, Learner, Schedule, train


class Stopping:
    """Progress that is interrupted at the given update."""

    def __init__(self, after: int) -> None:
        self.left = after

    def update(self, name: str, done: int, total: int, note: str = "") -> None:
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt

    def close(self) -> None:
        return None


def bank(rng: np.random.Generator, tasks: int = 6) -> kb.TaskBank:
    rewards = rng.normal(size=(tasks, 2))
    of_row = np.repeat(np.arange(tasks), 8)
    states = rewards[of_row] + rng.normal(size=(8 * tasks, 2))
    return kb.TaskBank.from_arrays(states=states, actions=None, tasks=of_row, rewards=rewards)


def fitted(sampler: Any, bandwidth: Any = (1.0, 1.0), seed: int = 0) -> Callable[[Any], kb.Posterior]:
    rng = np.random.default_rng(0)
    training, expert = bank(rng), kb.Demonstrations(states=rng.normal(size=(5, 2)), actions=None)
    prior = kb.Uniform(-4, 4)

    def compute(progress: Any) -> kb.Posterior:
        model = kb.KDBIRL(prior=prior, features=kb.Identity(), bandwidth=bandwidth, sampler=sampler)
        model.fit(training)
        return model.posterior(expert, seed=seed, progress=progress)

    return compute


def draws(posterior: kb.Posterior) -> bytes:
    stats = b"".join(posterior.sample_stats[name].tobytes() for name in sorted(posterior.sample_stats))
    return posterior.draws.tobytes() + stats


def trained(progress: Any) -> kb.VAE:
    rng = np.random.default_rng(1)
    rows = kb.Demonstrations(states=rng.normal(size=(60, 4)), actions=None)
    return kb.VAE(latents=2, hidden=(5,), steps=1000, batch=16).fit(rows, progress)


def network(vae: kb.VAE) -> bytes:
    assert vae.network is not None
    layers = (*vae.network.encoder, *vae.network.decoder)
    return b"".join(layer.weight.values.tobytes() for layer in layers) + repr(vae.course).encode()


def side_by_side(progress: Any) -> list[Any]:
    """A network that climbs from 0 to 1: the first learner passes its goal and stops early, the second goes on."""
    learners = [
        Learner(
            jnp.zeros(1), jnp.float32(2.0), lambda rng: rng.normal(1, 1, (100, 4, 1)).astype(np.float32),
            np.random.default_rng(seed), lambda network, goal=goal: abs(float(network[0]) - goal), 1,
        )
        for seed, goal in enumerate((0.5, 9.0))
    ]  # fmt: skip
    schedule = Schedule(500, 0.01, 100, 1, STEEPEST, AVERAGED)
    found = train(parabola, learners, schedule, "side by side", progress)
    assert [(course.outcome, course.steps) for _, course in found] == [("stopped early", 300), ("finished", 500)]
    return found


def parabola(network: Any, data: Any, batch: Any) -> Any:
    return jnp.mean(data * (network[None] - batch) ** 2)


def results(found: list[Any]) -> bytes:
    return b"".join(np.asarray(network).tobytes() + repr(course).encode() for network, course in found)


def learnt(progress: Any) -> kb.QPolicy:
    settings = {"hidden": (4,), "environments": 4, "batch": 8, "replay": 64, "evaluation_episodes": 4}
    planner = kb.DeepQ(updates=60, evaluate_every=20, episode_length=5, **settings)
    return planner.plan(kb.Gridworld(size=2), np.array([0.0, 0.0, 0.0, 1.0]), seed=0, progress=progress)


def values(policy: kb.QPolicy) -> bytes:
    leaves = [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(policy.values.network)]
    return b"".join(leaves) + repr(policy.learning).encode()


# the first update of a posterior is of its kernel sums
LOOPS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], bytes], tuple[int, ...]]] = {
    "NUTS": (fitted(kb.NUTS(chains=2, warmup=150, draws=130)), draws, (2, 2)),
    "Metropolis": (fitted(kb.Metropolis(chains=2, warmup=120, draws=30, thin=3)), draws, (2, 2)),
    "SMC": (fitted(kb.SMC(particles=60, runs=2, moves=2)), draws, (2, 3)),
    "VAE": (trained, network, (1, 3)),
    "side by side": (side_by_side, results, (1, 3)),
    "deep Q-learning": (learnt, values, (1, 2)),
    "leave one task out": (fitted(kb.Grid(draws=50), bandwidth="loto"), draws, (2, 4)),
}


@pytest.mark.parametrize("loop", LOOPS)
def test_an_interrupted_loop_ends_in_the_same_bytes(loop: str, tmp_path: Path) -> None:
    compute, as_bytes, moments = LOOPS[loop]
    whole = as_bytes(compute(Silent()))
    for moment in moments:  # one after the other: each goes on from the one before
        with pytest.raises(KeyboardInterrupt), keep_checkpoints(tmp_path, every=1e9):
            compute(Stopping(after=moment))
        assert list(tmp_path.glob("*.checkpoint")), "the interruption kept nothing"
    with keep_checkpoints(tmp_path):
        assert as_bytes(compute(Silent())) == whole
    with keep_checkpoints(tmp_path):  # and a third time it is all there
        assert as_bytes(compute(Stopping(after=moments[-1] + 100))) == whole


def test_what_is_there_is_not_computed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from kdbirl.posterior import mcmc

    compute = LOOPS["NUTS"][0]
    with keep_checkpoints(tmp_path):
        compute(Silent())
    monkeypatch.setattr(mcmc, "_block", lambda *_: pytest.fail("a finished chain was run again"))
    with keep_checkpoints(tmp_path):
        compute(Silent())


@pytest.mark.parametrize("change", ["seed", "draws", "data"])
def test_other_work_does_not_take_over_a_checkpoint(change: str, tmp_path: Path) -> None:
    sampler = kb.NUTS(chains=1, warmup=50, draws=50)
    with keep_checkpoints(tmp_path):
        fitted(sampler)(Silent())
    other = {
        "seed": partial(fitted, sampler, seed=1),
        "draws": partial(fitted, kb.NUTS(chains=1, warmup=50, draws=60)),
        "data": partial(fitted, sampler, bandwidth=(1.0, 1.5)),
    }[change]()
    alone = draws(other(Silent()))
    with keep_checkpoints(tmp_path):
        assert draws(other(Silent())) == alone


def test_a_state_comes_back_as_it_was(tmp_path: Path) -> None:
    state = {
        "array": np.arange(6.0).reshape(2, 3),
        "nested": [{"flag": True, "none": None}, [1.5, "text", 2**100]],
        "generator": np.random.default_rng(3).bit_generator.state,
        "empty": np.zeros((0, 4), dtype=np.float32),
    }
    with keep_checkpoints(tmp_path):
        assert checkpoint_of("a loop", 1).held() is None
        checkpoint_of("a loop", 1).keep(state, last=True)
        held = checkpoint_of("a loop", 1).held()
        assert checkpoint_of("a loop", 2).held() is None
    assert held is not None
    np.testing.assert_array_equal(held["array"], state["array"])
    assert held["nested"] == state["nested"]
    assert held["generator"] == state["generator"]
    assert held["empty"].dtype == np.float32
    assert held["empty"].shape == (0, 4)


def test_states_are_written_now_and_then_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: clock[0])
    with keep_checkpoints(tmp_path, every=10.0):
        checkpoint = checkpoint_of("a loop")
        for second in range(25):
            clock[0] = float(second)
            checkpoint.keep({"second": second})
        held = checkpoint.held()
    assert held == {"second": 20}


def test_without_checkpoints_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    checkpoint = checkpoint_of("a loop", object())
    checkpoint.keep({"x": 1}, last=True)
    assert checkpoint.held() is None
    assert not list(tmp_path.iterdir())


def test_a_damaged_checkpoint_is_named_and_not_used(tmp_path: Path) -> None:
    with keep_checkpoints(tmp_path):
        checkpoint_of("a loop").keep({"x": np.arange(100)}, last=True)
        (file,) = tmp_path.glob("a-loop-*.checkpoint")
        content = bytearray(file.read_bytes())
        content[len(content) // 2] ^= 1
        file.write_bytes(content)
        with pytest.warns(KDBIRLWarning, match=f"{file.name} is damaged"):
            assert checkpoint_of("a loop").held() is None


def test_functions_are_known_by_what_they_do(tmp_path: Path) -> None:
    def power(p: float) -> Callable[[float], float]:
        return lambda x: x**p

    with keep_checkpoints(tmp_path):
        places = {checkpoint_of("a loop", function)._place for function in (power(2.0), power(3.0), len, partial(len))}
        assert len(places) == 4
        assert checkpoint_of("a loop", power(2.0))._place in places
