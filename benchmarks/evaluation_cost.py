"""(b) What one evaluation of the log likelihood and its gradient costs as the bank grows from 1,000 to 1,000,000 rows.

The likelihood is the object that samplers see, built from n=500 expert rows and 20 tasks. Evaluations follow one
another in one compiled loop, each at a point that depends on the one before, as in a sampler. The banks take turns.
The table of kernel sums, which does grow with m, is built once before, and its time is recorded too.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.measuring import Spread, interleaved, seconds_of
from benchmarks.problem import Problem, make_problem

SIZES = (1_000, 10_000, 100_000, 1_000_000)
EVALUATIONS = 2_000


def compare(quick: bool, repeats: int) -> dict[str, Any]:
    """The record of seconds per evaluation, and its ratio to that at m = 1,000."""
    sizes = SIZES[:3] if quick else SIZES
    built: dict[str, float] = {}
    actions: dict[str, Callable[[], object]] = {}
    for m in sizes:
        problem = make_problem(n=500, m=m, n_tasks=20, seed=0)
        _likelihood(problem)  # compiles
        built[str(m)] = seconds_of(lambda problem=problem: _likelihood(problem))  # type: ignore[misc]
        actions[str(m)] = _evaluations(_likelihood(problem), problem.held_out)
    seconds = interleaved(actions, repeats)
    each = {m: Spread(tuple(value / EVALUATIONS for value in spread.values)) for m, spread in seconds.items()}
    smallest = str(sizes[0])
    return {
        "problem": make_problem(n=500, m=sizes[0], n_tasks=20, seed=0).sizes | {"m": list(sizes)},
        "seconds_per_evaluation": {m: spread.record() for m, spread in each.items()},
        "seconds_to_build_table": built,
        "ratios": {f"m={m} over m={smallest}": each[m].over(each[smallest]).record() for m in each if m != smallest},
    }


def _likelihood(problem: Problem) -> Any:
    """kdbirl's likelihood of the expert rows as a function of the reward, as its samplers get it."""
    import jax

    from kdbirl.likelihood.ckde import CKDE
    from kdbirl.likelihood.kernels import as_kernel, on_columns

    names = [f"x{i}" for i in range(problem.features.shape[1])]
    kernel, reward_kernel = on_columns(as_kernel("gaussian"), names, {}), as_kernel("gaussian")
    box = (np.full(problem.rewards.shape[1], -5.0), np.full(problem.rewards.shape[1], 5.0))
    with jax.enable_x64(True):
        ckde = CKDE.from_rows(problem.features, problem.tasks, problem.rewards, kernel, reward_kernel)  # type: ignore[arg-type]
        return ckde.likelihood(problem.expert, np.array([problem.h]), problem.h_reward, box)


def _evaluations(likelihood: Any, start: np.ndarray) -> Callable[[], object]:
    """A call that evaluates the log likelihood and its gradient EVALUATIONS times, one after the other."""
    import jax
    import jax.numpy as jnp

    @jax.jit
    def loop(likelihood: Any, reward: Any) -> Any:
        def step(reward: Any, _: None) -> tuple[Any, Any]:
            value, gradient = jax.value_and_grad(lambda r: likelihood(r))(reward)
            return reward + 1e-9 * gradient, value

        return jax.lax.scan(step, reward, None, length=EVALUATIONS)

    def call() -> object:
        with jax.enable_x64(True):
            return jax.block_until_ready(loop(likelihood, jnp.asarray(start)))

    return call
