"""(c) Kernel sums per second: the table S[i, k] = log sum_{j in task k} exp(-|x_i - x_j|^2 / 2h^2).

n=500 expert rows, m=1,000,000 training rows, d=3, float64.

Every contender makes the same table from the same arrays, with the bank's 20 tasks apart, and is checked against the
others before it is timed. Each is given what helps it: features scaled beforehand, blocks of a good size, both cores.
The slow ones are timed on every tenth training row: what is compared is pairs per second.

- scikit-learn: `KernelDensity` per task (a tree, exact), and `rbf_kernel` with a sum, in blocks;
- SciPy: `cdist` + `logsumexp`, in blocks, on one thread a core;
- PyKeOps: `LazyTensor`, tasks as a batch dimension, by `logsumexp` and by `exp().sum()`, which can underflow;
- the machine's limit: see `BareArithmetic`.
"""

import atexit
import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.measuring import Spread, interleaved, rates, seconds_of
from benchmarks.problem import Problem, make_problem
from kdbirl._jax import on_all_cores

CDIST_BLOCK, RBF_BLOCK = 1000, 5000  # training rows at once; each the best of 250, 1000 and 5000 here
SLOW_SHARE = 10
LARGEST_ERROR = 1e-9  # in log; contenders that expand squares lose a few digits
LIMIT = "machine's limit"
OURS = "kdbirl"
Table = Callable[[Problem], np.ndarray]


def by_kdbirl(problem: Problem) -> np.ndarray:
    """kdbirl's own, from arrays to the table: copies and logarithms included."""
    from kdbirl.likelihood.kernels import as_kernel, on_columns
    from kdbirl.likelihood.sums import task_log_sums

    names = [f"x{i}" for i in range(problem.features.shape[1])]
    kernel = on_columns(as_kernel("gaussian"), names, {})
    weights, k = np.ones(len(problem.features)), len(problem.rewards)
    return task_log_sums(problem.expert, problem.features, weights, problem.tasks, k, kernel, np.array([problem.h]))


def by_kernel_density(problem: Problem) -> np.ndarray:
    """scikit-learn's density estimator, one fit per task, on one thread a core; its tolerances are zero."""
    from sklearn.neighbors import KernelDensity

    def of_task(rows: np.ndarray) -> np.ndarray:
        constant = np.log(len(rows)) + rows.shape[1] / 2 * np.log(2 * np.pi * problem.h**2)
        return KernelDensity(bandwidth=problem.h, rtol=0, atol=0).fit(rows).score_samples(problem.expert) + constant

    return np.stack(on_all_cores(of_task, _by_task(problem)), axis=1)


def by_rbf_kernel(problem: Problem) -> np.ndarray:
    """scikit-learn's Gaussian kernel matrix, summed over blocks of rows."""
    from sklearn.metrics.pairwise import rbf_kernel
    from threadpoolctl import threadpool_limits

    def of_block(rows: np.ndarray) -> np.ndarray:
        return np.log(rbf_kernel(problem.expert, rows, gamma=0.5 / problem.h**2).sum(axis=1))

    with threadpool_limits(1):  # the blocks keep all cores busy; BLAS threads on top of them halve the speed
        return _in_blocks(of_block, problem, RBF_BLOCK)


def by_cdist(problem: Problem) -> np.ndarray:
    """SciPy's squared distances and its logsumexp, over blocks of rows."""
    from scipy.spatial.distance import cdist
    from scipy.special import logsumexp

    scale = -0.5 / problem.h**2

    def of_block(rows: np.ndarray) -> np.ndarray:
        return logsumexp(cdist(problem.expert, rows, "sqeuclidean") * scale, axis=1)

    return _in_blocks(of_block, problem, CDIST_BLOCK)


def by_keops_logsumexp(problem: Problem) -> np.ndarray:
    """PyKeOps in log space."""
    return _keops(problem).logsumexp(dim=2)[..., 0].T


def by_keops_sum(problem: Problem) -> np.ndarray:
    """PyKeOps without scaling: faster, and -inf for rows far from a task."""
    return np.log(_keops(problem).exp().sum(dim=2)[..., 0].T)


def _keops(problem: Problem) -> Any:
    """The symbolic (tasks, n, rows of a task) array -|x - y|^2/2h^2; tasks have equally many rows."""
    from pykeops.numpy import LazyTensor

    scale = np.sqrt(0.5) / problem.h
    (n, d), k = problem.expert.shape, len(problem.rewards)
    expert = LazyTensor((problem.expert * scale).reshape(1, n, 1, d))
    rows = LazyTensor((problem.features * scale).reshape(k, 1, -1, d))
    return -((expert - rows) ** 2).sum(-1)


def _by_task(problem: Problem) -> list[np.ndarray]:
    return np.split(problem.features, np.flatnonzero(np.diff(problem.tasks)) + 1)


def _in_blocks(of_block: Callable[[np.ndarray], np.ndarray], problem: Problem, size: int) -> np.ndarray:
    """Log sums of each task's blocks, merged."""
    blocks, of_task = [], []
    for task, rows in enumerate(_by_task(problem)):
        parts = np.array_split(rows, max(1, len(rows) // size))
        blocks += parts
        of_task += [task] * len(parts)
    sums = np.stack(on_all_cores(of_block, blocks), axis=1)
    return np.logaddexp.reduceat(sums, np.flatnonzero(np.diff(of_task, prepend=-1)), axis=1)


@dataclass(frozen=True)
class BareArithmetic:
    """The machine's own limit: per pair, the d multiply-adds, the exponential and the addition, and nothing else.

    JAX in float64, compiled as one loop over a block of `shape` numbers that stays in the cache, on both cores. There
    is no table to lay out, no matrix product to write and read again, no task to keep apart. The loop's scalar changes
    with every step, so that no step can be left out.
    """

    shape: tuple[int, int]
    d: int
    pairs: int
    with_products: bool = True

    def __call__(self) -> float:
        """Go through `pairs` pairs."""
        import jax

        with jax.enable_x64(True):
            return float(_bare_loop(self.shape, self.d if self.with_products else 0, self._steps)())

    @property
    def _steps(self) -> int:
        return max(1, self.pairs // (self.shape[0] * self.shape[1]))

    @property
    def done(self) -> int:
        """The pairs that a call really goes through."""
        return self._steps * self.shape[0] * self.shape[1]


_LOOPS: dict[tuple[tuple[int, int], int, int], Callable[[], Any]] = {}


def _bare_loop(shape: tuple[int, int], products: int, steps: int) -> Callable[[], Any]:
    """The compiled loop, made once."""
    if (shape, products, steps) not in _LOOPS:
        import jax
        import jax.numpy as jnp

        block = jnp.asarray(-np.random.default_rng(0).random(shape))

        def step(factor: Any, _: None) -> tuple[Any, None]:
            exponent = block * factor if products == 0 else block
            for _product in range(products):
                exponent = exponent * factor + block
            return 1.0 + 1e-300 * jnp.exp(exponent).sum(axis=0).sum(), None

        from kdbirl.likelihood.sums import WIDE

        loop = lambda: jax.lax.scan(step, jnp.ones((), dtype=float), None, length=steps)[0]  # noqa: E731
        _LOOPS[shape, products, steps] = jax.jit(loop, compiler_options=WIDE)
    return _LOOPS[shape, products, steps]


SHAPES = ((64, 1024), (256, 1024), (512, 1024), (500, 2048), (2048, 512))


def fastest_bare(d: int, pairs: int, with_products: bool = True) -> BareArithmetic:
    """The block shape that this machine likes best: a limit is the best that can be done."""
    trials = [BareArithmetic(shape, d, pairs, with_products) for shape in SHAPES]
    for trial in trials:
        trial()  # compiles
    return min(trials, key=lambda trial: min(seconds_of(trial) for _ in range(3)) / trial.done)


def compare(quick: bool, repeats: int) -> dict[str, Any]:
    """The record of pairs per second, and of kdbirl's ratios to the fastest competitor and to the limit."""
    _private_keops_cache()
    problem = make_problem(n=500, m=100_000 if quick else 1_000_000, n_tasks=20, seed=0)
    part = _thinned(problem, SLOW_SHARE)
    on: dict[str, tuple[Table, Problem]] = {
        OURS: (by_kdbirl, problem),
        "pykeops logsumexp": (by_keops_logsumexp, problem),
        "pykeops sum": (by_keops_sum, problem),
        "scipy cdist + logsumexp": (by_cdist, part),
        "sklearn rbf_kernel": (by_rbf_kernel, part),
        "sklearn KernelDensity": (by_kernel_density, _thinned(part, SLOW_SHARE)),
    }
    errors = _check(on)
    (n, d), m = problem.expert.shape, len(problem.features)
    limits = {LIMIT: fastest_bare(d, n * m), "exponentials alone": fastest_bare(d, n * m, with_products=False)}
    actions: dict[str, Callable[[], object]] = {name: _bound(table, of) for name, (table, of) in on.items()}
    seconds = interleaved(actions | limits, repeats)
    pairs = {name: n * len(of.features) for name, (_, of) in on.items()}
    pairs |= {name: limit.done for name, limit in limits.items()}
    return _record(problem, pairs, {name: rates(seconds[name], pairs[name]) for name in seconds}, errors)


def _private_keops_cache() -> None:
    """Compile afresh. PyKeOps reads these when it is first imported, and writes to the folder as the process ends."""
    directory = tempfile.mkdtemp(prefix="kdbirl-keops-")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)  # registered before PyKeOps' own, so it runs after
    os.environ.setdefault("KEOPS_CACHE_FOLDER", directory)
    os.environ.setdefault("PYKEOPS_VERBOSE", "0")


def _bound(table: Table, problem: Problem) -> Callable[[], object]:
    return lambda: table(problem)


def _thinned(problem: Problem, every: int) -> Problem:
    rows = slice(None, None, every)
    return Problem(**vars(problem) | {"features": problem.features[rows], "tasks": problem.tasks[rows]})


def _check(on: dict[str, tuple[Table, Problem]]) -> dict[str, float]:
    """Largest difference of every contender's table from SciPy's, on the smallest problem of all."""
    smallest = min((of for _, of in on.values()), key=lambda of: len(of.features))
    reference = by_cdist(smallest)
    errors = {name: float(np.abs(table(smallest) - reference).max()) for name, (table, _) in on.items()}
    wrong = {name: error for name, error in errors.items() if not error < LARGEST_ERROR}
    if wrong:
        raise RuntimeError(f"These do not compute the table of kernel sums: {wrong}.")
    return errors


def _record(
    problem: Problem, pairs: dict[str, int], per_second: dict[str, Spread], errors: dict[str, float]
) -> dict[str, Any]:
    limits = (LIMIT, "exponentials alone")
    competitors = {name: spread for name, spread in per_second.items() if name not in (OURS, *limits)}
    fastest = max(competitors, key=lambda name: competitors[name].median)
    return {
        "problem": problem.sizes | {"h": problem.h},
        "pairs_per_second": {
            name: spread.record() | {"pairs_timed": pairs[name]} for name, spread in per_second.items()
        },
        "largest_error_of_log_sum": errors,
        "fastest_competitor": fastest,
        "ratios": {
            f"{OURS} over {name}": per_second[OURS].over(other).record()
            for name, other in per_second.items()
            if name != OURS
        },
    }
