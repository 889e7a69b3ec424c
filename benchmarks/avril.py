"""(d) Training AVRIL: steps per second of the compiled loop against Python loops around the same model.

The model, the batches' size and the optimiser are the same (CartPole-sized rows: 7,500 of four numbers and two actions,
batches of 64, two layers of 64 units). The Python loops are

- `python loop`: as the authors' released program: the gradient, the update and the parameters' extraction are compiled
  each by itself, and the loop, the shuffled indices, the picking of rows and the random keys are Python's;
- `python loop, one compiled step`: the best that a loop in Python can be: one compiled call per step does all of it;
- `python loop, not compiled`: operation by operation, measured on fewer steps.

Every contender must end where the others do: each raises the objective from the same start.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from benchmarks.measuring import Spread, interleaved, rates
from kdbirl.methods.avril_elbo import RewardAndValueNetwork, Transitions, Weights, loss, objective, terms
from kdbirl.progress import BLOCK
from kdbirl.training import Schedule, State, begin, learn

ROWS, BATCH, HIDDEN, RATE = 7500, 64, (64, 64), 1e-3
SCHEDULE = Schedule(5000, RATE)
STEPS = {"kdbirl": 5000, "python loop": 500, "python loop, one compiled step": 1000, "python loop, not compiled": 5}

Train = Callable[[int], Any]  # a number of steps -> the network


def compare(quick: bool, repeats: int) -> dict[str, Any]:
    """Steps per second of each contender, and ours over theirs."""
    with jax.enable_x64(False):
        rows, weights = _rows(), Weights(*(jnp.asarray(value) for value in (1.0, 1.0, 0.99, 0.0, 1.0)))
        start = begin(RewardAndValueNetwork(4, HIDDEN, 1, 2, np.random.default_rng(0)), SCHEDULE)
        contenders = _contenders(rows, weights, start)
        _check(contenders, rows, weights, start)
        steps = {name: max(1, count // 5) if quick else count for name, count in STEPS.items()}
        times = interleaved({name: _call(contenders[name], steps[name]) for name in contenders}, repeats)
    speed = {name: rates(times[name], steps[name]) for name in contenders}
    others = [name for name in speed if name != "kdbirl"]
    return {
        "problem": {"rows": ROWS, "batch": BATCH, "hidden": list(HIDDEN), "measured_on": steps},
        "steps_per_second": {name: spread.record() for name, spread in speed.items()},
        "ratios": {f"kdbirl over {name}": _over(speed["kdbirl"], speed[name]) for name in others},
    }


def _over(ours: Spread, theirs: Spread) -> dict[str, object]:
    return ours.over(theirs).record()


def _call(train: Train, steps: int) -> Callable[[], object]:
    return lambda: jax.block_until_ready(train(steps))


def _rows() -> Transitions:
    """Rows that follow each other, whose action depends on the state, in episodes of 500."""
    rng = np.random.default_rng(0)
    state = rng.normal(size=(ROWS + 1, 4)).astype(np.float32)
    action = (state @ [0.1, 0.2, 1.0, 0.5] > 0).astype(np.int32)
    continues = np.arange(1, ROWS + 1) % 500 != 0
    parts = (state[:-1], action[:-1], state[1:], action[1:], continues, np.zeros(ROWS, dtype=bool))
    return Transitions(*(jnp.asarray(part) for part in parts))


def _contenders(rows: Transitions, weights: Weights, start: State) -> dict[str, Train]:
    return {
        "kdbirl": lambda steps: _ours(rows, weights, start, steps),
        "python loop": lambda steps: _as_released(rows, weights, start, steps),
        "python loop, one compiled step": lambda steps: _one_step(rows, weights, start, steps),
        "python loop, not compiled": lambda steps: _not_compiled(rows, weights, start, steps),
    }


def _ours(rows: Transitions, weights: Weights, training: State, steps: int) -> Any:
    rng = np.random.default_rng(1)
    for done in range(0, steps, BLOCK):
        todo = min(BLOCK, steps - done)
        batches = rng.integers(0, ROWS, (BLOCK, BATCH), dtype=np.int32)
        training, mean = learn(loss, training, (rows, weights), batches, todo, SCHEDULE)
        float(mean)  # what progress reads
    return training.network


def _loss(network: Any, rows: Transitions, weights: Weights) -> Any:
    return -jnp.mean(terms(network, rows, weights).elbo(weights.td_weight))


def _packed_loss(network: Any, pairs: Any, choices: Any, ends: Any, weights: Weights) -> Any:
    """Of rows packed as the released program packs them: states `(n, 2, d)` and actions `(n, 2)`, now and next."""
    rows = Transitions(pairs[:, 0], choices[:, 0], pairs[:, 1], choices[:, 1], ends[:, 0], ends[:, 1])
    return _loss(network, rows, weights)


ADAM = optax.adam(RATE)
_gradient = jax.jit(jax.value_and_grad(_packed_loss))
_updated = jax.jit(lambda slope, state, network: ADAM.update(slope, state, network))
_applied = jax.jit(optax.apply_updates)


def _as_released(rows: Transitions, weights: Weights, start: State, steps: int) -> Any:
    network, state, key = start.network, ADAM.init(start.network), jax.random.key(1)
    batches, order = -(-ROWS // BATCH), jnp.arange(ROWS)
    pairs, choices = jnp.stack([rows.state, rows.following], 1), jnp.stack([rows.action, rows.next_action], 1)
    ends = jnp.stack([rows.continues, rows.terminated], 1)
    for step in range(steps):
        if step % batches == 0:
            shuffled = jax.random.permutation(key, order)
        first = (step % batches) * BATCH
        chosen = shuffled[first : first + BATCH]
        key, _ = jax.random.split(key)
        _, slope = _gradient(network, pairs[chosen], choices[chosen], ends[chosen], weights)
        change, state = _updated(slope, state, network)
        network = _applied(network, change)
    return network


def _update(training: State, weights: Weights, rows: Transitions) -> State:
    """One step of Adam."""
    slope = jax.grad(_loss)(training.network, rows, weights)
    change, optimizer = optax.scale_by_adam().update(slope, training.optimizer)
    network = jax.tree.map(lambda leaf, by: leaf - RATE * by, training.network, change)
    return State(network, None, optimizer)


@jax.jit
def _whole_step(training: State, weights: Weights, rows: Transitions, key: Any) -> tuple[State, Any]:
    key, own = jax.random.split(key)
    chosen = jax.random.randint(own, (BATCH,), 0, ROWS)
    return _update(training, weights, Transitions(*(part[chosen] for part in rows))), key


def _one_step(rows: Transitions, weights: Weights, training: State, steps: int) -> Any:
    key = jax.random.key(1)
    for _ in range(steps):
        training, key = _whole_step(training, weights, rows, key)
    return training.network


def _not_compiled(rows: Transitions, weights: Weights, training: State, steps: int) -> Any:
    rng = np.random.default_rng(1)
    for _ in range(steps):
        chosen = jnp.asarray(rng.integers(0, ROWS, BATCH))
        training = _update(training, weights, Transitions(*(part[chosen] for part in rows)))
    return training.network


def _check(contenders: dict[str, Train], rows: Transitions, weights: Weights, start: State) -> None:
    """All reach the same objective after 500 steps (the slow one is the same step, and only has to rise)."""
    before = float(objective(start.network, weights, rows, ROWS))
    after = {name: float(objective(train(500), weights, rows, ROWS)) for name, train in list(contenders.items())[:3]}
    slow = float(objective(contenders["python loop, not compiled"](5), weights, rows, ROWS))
    spread = max(after.values()) - min(after.values())
    if slow <= before or min(after.values()) <= before or spread > 0.1 * (max(after.values()) - before):
        raise RuntimeError(f"The loops do not train alike ({after}, from {before}): nothing is compared.")
