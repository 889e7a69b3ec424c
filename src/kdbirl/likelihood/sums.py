"""The table S[i, k] = log sum over the rows j of task k of weight_j K_h(x_i, x_j): everything the data say.

A table is a sum over rows, so tables of parts merge with `logaddexp`. The Gaussian on Euclidean distance has loops of
its own (`gaussian_loops.py`). For any other kernel, and on a GPU, XLA compiles what one pair of points says: rows are
laid out in *tiles* of one task each, padded with rows of weight zero, and summed in a scan whose working set stays in
the cache, in two ways that are equal to rounding:
- `_plain_tiles`: the sum as it is, in one pass;
- `_scaled_tiles`: each tile's sum is scaled by its largest term. For rows whose plain sums come near the ends of the
  range of doubles.
"""

import math
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from kdbirl._jax import cores, float64, on_all_cores, refuse_fork
from kdbirl.errors import InputError
from kdbirl.likelihood.kernels import PairKernel
from kdbirl.progress import Progress, Silent
from kdbirl.random_streams import stream

# Sums of Gaussian kernels on Euclidean distance, on this machine's cores: the loops of `gaussian_loops.py`.
#
# -|x - y|^2 / 2h^2 = factor |2^k (x - y)|^2 in powers of two, where 2^k is next to 1/h: multiplying by a power of two
# is exact, so the differences are those of the rows as they are. Nothing is centred and no square is expanded: no digit
# is lost far from zero. Every sum is scaled by one of its larger terms, so none underflows. What an expert row gets
# does not depend on the other rows beside it, nor on the number of cores.

LARGEST = 1e150  # of a coordinate in bandwidths: squares of differences stay in range
PAIRS_OF_A_THREAD = 2**19  # fewer, and starting a thread would take longer than it saves
EXPERT_ROWS = 128  # that a thread takes at once, at most


def in_range(values: Float[np.ndarray, "rows d"], h: float) -> bool:
    """Whether squares of these rows, in bandwidths, are finite numbers; False if a value is not a number."""
    scale, ends = _scale(h), (float(values.min(initial=0.0)), float(values.max(initial=0.0)))
    return scale < math.inf and all(abs(end) * scale < LARGEST for end in ends)


def gaussian_log_sums(
    expert: Float[np.ndarray, "n d"],
    rows: Float[np.ndarray, "m d"],
    weights: Float[np.ndarray, " m"],
    first: Int[np.ndarray, " ends"],
    h: float,
) -> Float[np.ndarray, "n segments"]:
    """log sums over the rows of each segment: from first[s] to before first[s + 1], and none is empty."""
    from kdbirl.likelihood.gaussian_loops import scaled_sums

    # in one layout and writable, since each other one would be compiled anew
    given = [np.require(array, np.float64, ("C", "W")) for array in (expert, rows, weights)]
    scale = _scale(h)
    factor = -0.5 / math.log(2) / (h * scale) ** 2
    totals, near = np.empty((2, len(expert), len(first) - 1))

    def of_part(part: slice) -> None:
        scaled_sums(given[0][part], *given[1:], first, scale, factor, totals[part], near[part])

    if len(expert) * len(rows) < PAIRS_OF_A_THREAD:
        of_part(slice(None))
    else:
        size = min(EXPERT_ROWS, -(-len(expert) // cores()))
        on_all_cores(of_part, [slice(i, i + size) for i in range(0, len(expert), size)])
    return np.log(totals) + (factor * math.log(2)) * near


def _scale(h: float) -> float:
    """The power of two next to 1/h, from above; infinite where doubles end."""
    try:
        return math.ldexp(1.0, 1 - math.frexp(h)[1])
    except OverflowError:
        return math.inf


PAIRS_PER_STEP = 2**17  # pairs in flight in one step of the scan: 1 MB of float64, which stays in the cache
TILE = 256  # rows of one task summed at once
ROWS_PER_CALL = 2**17  # training rows per compiled call: progress can be shown, and buffers can be reused
EXPERT_BLOCK = 512  # expert rows per compiled call
SMALLEST_SAFE_SUM = 1e-290  # below this, terms may have underflowed: XLA's exp is zero from 2e-308 (e^-708) down
LARGEST_SAFE_SUM = 1e290  # above this, terms of a user's kernel may have overflowed
WIDE = {"xla_cpu_prefer_vector_width": 512}  # XLA's default is 256: 1.7 times slower where the processor has AVX-512


Part = tuple[np.ndarray, np.ndarray, np.ndarray]  # rows, weights and tasks


@dataclass(frozen=True)
class Tiles:
    """Training rows in tiles of one task each, grouped into equal scan steps; padding has log weight -inf.

    `tasks` has the task of every tile that is not padding; the tiles of a task are neighbours.
    """

    rows: Float[np.ndarray, "steps group width d"]
    log_weights: Float[np.ndarray, "steps group width"]
    tasks: Int[np.ndarray, " tiles"]


def tile_width(n_rows: int, n_tasks: int) -> int:
    """A power of two, at most an eighth of the rows of a typical task, so that padding wastes little."""
    typical = max(n_rows // max(n_tasks, 1) // 8, 1)
    return int(min(TILE, 2 ** int(np.log2(typical))))


def tiled(
    rows: Float[np.ndarray, "m d"], weights: Float[np.ndarray, " m"], tasks: Int[np.ndarray, " m"], width: int, n: int
) -> Tiles:
    """Lay rows, sorted by task, out in tiles; n expert rows will meet them."""
    first_row = _starts(tasks)
    counts = np.diff(np.concatenate([first_row, [len(tasks)]]))
    tiles_of = -(-counts // width)
    count = int(tiles_of.sum())
    group = max(1, min(count, PAIRS_PER_STEP // (n * width)))
    steps = rounded_up(-(-count // group), 6)
    laid = np.zeros((steps * group * width, rows.shape[1]))
    log_weights = np.full(len(laid), -np.inf)
    own = np.log(weights)
    place = (np.cumsum(tiles_of) - tiles_of) * width
    if len(counts) * 64 < len(rows):  # few tasks: whole pieces are copied several times faster than single rows
        for row, size, to in zip(first_row, counts, place, strict=True):
            laid[to : to + size] = rows[row : row + size]
            log_weights[to : to + size] = own[row : row + size]
    else:
        position = np.arange(len(rows)) + np.repeat(place - first_row, counts)
        laid[position], log_weights[position] = rows, own
    shape = (steps, group, width)
    return Tiles(laid.reshape(*shape, rows.shape[1]), log_weights.reshape(shape), np.repeat(tasks[first_row], tiles_of))


@float64
def task_log_sums(
    expert: Float[np.ndarray, "n d"],
    rows: Float[np.ndarray, "m d"],
    weights: Float[np.ndarray, " m"],
    tasks: Int[np.ndarray, " m"],
    n_tasks: int,
    kernel: PairKernel,
    h: Float[np.ndarray, " parts"],
    progress: Progress | None = None,
) -> Float[np.ndarray, "n {n_tasks}"]:
    """S (n, K) of expert rows over training rows of positive weights, sorted by task. Costs n*m kernel evaluations."""
    progress = progress or Silent()
    looped = _looped(expert, rows, kernel, h)
    width = tile_width(len(rows), n_tasks)
    table = np.full((len(expert), n_tasks), -np.inf)
    done = 0
    for start in range(0, len(rows), ROWS_PER_CALL):
        stop = min(start + ROWS_PER_CALL, len(rows))
        part = rows[start:stop], weights[start:stop], tasks[start:stop]
        present = slice(int(part[2][0]), int(part[2][-1]) + 1)
        for first in range(0, len(expert), EXPERT_BLOCK):
            block = expert[first : first + EXPERT_BLOCK]
            sums = _loop_sums(block, part, h) if looped else _tile_sums(block, part, width, kernel, h)
            if not (sums < np.inf).all():
                raise InputError(
                    "The kernel gives NaN or infinity for a pair of an expert row and a training row: it, and the "
                    "distance in it, must give a finite number for every pair."
                )
            own = table[first : first + len(block), present]
            np.logaddexp(own, sums, out=own)
            done += (stop - start) * len(block)
            progress.update("kernel sums", done, len(rows) * len(expert))
    return table


def _looped(expert: np.ndarray, rows: np.ndarray, kernel: PairKernel, h: np.ndarray) -> bool:
    """Whether the loops of the Gaussian serve; XLA does where it has a better device than this processor."""
    ours = kernel.squared_exponential and jax.default_backend() == "cpu"
    return ours and in_range(expert, float(h[0])) and in_range(rows, float(h[0]))


def _loop_sums(block: np.ndarray, part: Part, h: np.ndarray) -> np.ndarray:
    """(len(block), tasks) log sums over a part of the training rows, of all tasks from its first to its last one."""
    rows, weights, tasks = part
    starts = _starts(tasks)
    table = np.full((len(block), int(tasks[-1] - tasks[0]) + 1), -np.inf)
    ends = np.append(starts, len(rows))
    table[:, tasks[starts] - tasks[0]] = gaussian_log_sums(block, rows, weights, ends, float(h[0]))
    return table


def _starts(tasks: np.ndarray) -> np.ndarray:
    """Where each task begins, of tasks that are sorted."""
    return np.concatenate([[0], np.flatnonzero(np.diff(tasks)) + 1])


def _padded(block: np.ndarray) -> np.ndarray:
    """Expert rows, the last one repeated up to one of a few sizes: few programs are compiled."""
    missing = rounded_up(len(block), 4) - len(block)
    return np.concatenate([block, np.repeat(block[-1:], missing, axis=0)])


def padded_size(n: int) -> int:
    """The next of 8, 12, 16, 24, 32, 48, ...: at most half as many again."""
    power = 8
    while power < n:
        if power * 3 // 2 >= n:
            return power * 3 // 2
        power *= 2
    return power


def rounded_up(n: int, bits: int) -> int:
    """n rounded up to a number of so many leading bits: few sizes, each at most 2^(1 - bits) too large."""
    grain = 1 << max(n.bit_length() - bits, 0)
    return -(-n // grain) * grain


def _tile_sums(block: np.ndarray, part: Part, width: int, kernel: PairKernel, h: np.ndarray) -> np.ndarray:
    """The same as `_loop_sums`, of any kernel, by tiles of this width."""
    tasks, padded = part[2], _padded(block)
    tiles = tiled(*part, width, len(padded))
    first = _starts(tiles.tasks)
    table = np.full((len(block), int(tasks[-1] - tasks[0]) + 1), -np.inf)
    present = tiles.tasks[first] - tasks[0]
    totals = np.add.reduceat(_plain(padded, tiles, kernel, h), first, axis=0).T[: len(block)]
    with np.errstate(divide="ignore"):  # an empty or underflowed sum
        table[:, present] = np.log(totals)
    lost = _out_of_range(totals, kernel)
    if len(lost):
        again = _padded(block[lost])
        table[np.ix_(lost, present)] = _scaled(again, tiled(*part, width, len(again)), kernel, h)[: len(lost)]
    return table


def _out_of_range(totals: np.ndarray, kernel: PairKernel) -> np.ndarray:
    """The rows of which some sum may have lost terms. A sum of compact kernels is never just small."""
    if all(part.kernel.compact for part in kernel.parts):
        return np.array([], dtype=int)
    return np.flatnonzero(((totals < SMALLEST_SAFE_SUM) | (totals > LARGEST_SAFE_SUM)).any(axis=1))


def _plain(block: np.ndarray, tiles: Tiles, kernel: PairKernel, h: np.ndarray) -> Float[np.ndarray, "tiles n"]:
    rows, log_weights = jnp.asarray(tiles.rows), jnp.asarray(tiles.log_weights)
    return _by_tile(_plain_tiles(jnp.asarray(block), rows, log_weights, jnp.asarray(h), kernel), tiles)


def _scaled(block: np.ndarray, tiles: Tiles, kernel: PairKernel, h: np.ndarray) -> Float[np.ndarray, "n present"]:
    """Log sums of each task that is present."""
    rows, log_weights = jnp.asarray(tiles.rows), jnp.asarray(tiles.log_weights)
    sums = _by_tile(_scaled_tiles(jnp.asarray(block), rows, log_weights, jnp.asarray(h), kernel), tiles)
    return np.logaddexp.reduceat(sums, _starts(tiles.tasks), axis=0).T


def _by_tile(sums: Float[Array, "steps n group"], tiles: Tiles) -> Float[np.ndarray, "tiles n"]:
    """(steps, n, group) -> (tiles, n), without the padding."""
    return np.swapaxes(np.asarray(sums), 1, 2).reshape(-1, sums.shape[1])[: len(tiles.tasks)]


def _log_terms(block: Array, rows: Array, log_weights: Array, h: Array, kernel: PairKernel) -> Array:
    """log(weight * K) (n, group, width) of every expert row and every row of some tiles."""
    log_kernel = jax.vmap(jax.vmap(jax.vmap(kernel.log, (None, 0, None)), (None, 0, None)), (0, None, None))
    return log_kernel(block, rows, h) + log_weights[None]


@partial(jax.jit, static_argnames="kernel", compiler_options=WIDE)
def _plain_tiles(
    block: Float[Array, "n d"],
    rows: Float[Array, "steps group width d"],
    log_weights: Float[Array, "steps group width"],
    h: Float[Array, " parts"],
    kernel: PairKernel,
) -> Float[Array, "steps n group"]:
    """Sums (not logs) of weight * K over each tile."""

    def step(carry: None, tile: tuple[Array, Array]) -> tuple[None, Array]:
        return carry, jnp.exp(_log_terms(block, *tile, h, kernel)).sum(axis=-1)

    return jax.lax.scan(step, None, (rows, log_weights))[1]


@partial(jax.jit, static_argnames="kernel", compiler_options=WIDE)
def _scaled_tiles(
    block: Float[Array, "n d"],
    rows: Float[Array, "steps group width d"],
    log_weights: Float[Array, "steps group width"],
    h: Float[Array, " parts"],
    kernel: PairKernel,
) -> Float[Array, "steps n group"]:
    """Log sums of weight * K over each tile, scaled by the largest term."""

    def step(carry: None, tile: tuple[Array, Array]) -> tuple[None, Array]:
        return carry, log_sum_exp(_log_terms(block, *tile, h, kernel), axis=-1)

    return jax.lax.scan(step, None, (rows, log_weights))[1]


def log_sum_exp(terms: Float[Array, "..."], axis: int) -> Float[Array, "..."]:
    """log sum exp along an axis; -inf, with gradient zero, where every term is -inf."""
    largest = jnp.max(terms, axis=axis, keepdims=True)
    largest = jax.lax.stop_gradient(jnp.where(jnp.isfinite(largest), largest, 0.0))
    scaled = terms - largest
    total = jnp.sum(jnp.exp(scaled), axis=axis)
    positive = total > 0
    logs = jnp.log(jnp.where(positive, total, 1.0)) + jnp.squeeze(largest, axis)
    return jnp.where(positive, logs, -jnp.inf)


# Identical rows collapsed: equal rows have equal kernels, so one row with a weight stands for all of them.


def distinct_rows(rows: Float[np.ndarray, "n d"]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Distinct rows (u, d) in sorted order, the index (n,) of each row among them, and their counts (u,)."""
    values, index, counts = np.unique(rows + 0.0, axis=0, return_inverse=True, return_counts=True)  # + 0.0: -0 is 0
    return values, index.reshape(-1), counts.astype(np.float64)


def collapse_by_task(
    rows: Float[np.ndarray, "u d"], tasks: Int[np.ndarray, " m"], index: Int[np.ndarray, " m"] | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Distinct rows of each task, their weights and their tasks, sorted by task.

    Row j of the bank is `rows[index[j]]`, or `rows[j]` without an index: rows known to repeat need not be written out.
    """
    index = np.arange(len(rows)) if index is None else index
    pairs, counts = np.unique(tasks.astype(np.int64) * len(rows) + index, return_counts=True)
    of_task, of_row = np.divmod(pairs, len(rows))
    return weighted_by_task(rows, of_task, of_row, counts.astype(np.float64))


def weighted_by_task(
    rows: Float[np.ndarray, "u d"],
    of_task: Int[np.ndarray, " m"],
    of_row: Int[np.ndarray, " m"],
    weights: Float[np.ndarray, " m"],
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The same of rows `rows[of_row]` that have weights already."""
    import polars as pl

    refuse_fork("Polars")
    names = [f"x{i}" for i in range(rows.shape[1])]
    columns = [pl.Series("task", of_task), pl.Series("weight", weights)]
    frame = pl.from_numpy(rows[of_row] + 0.0, schema=names, orient="row").with_columns(columns)
    groups = frame.group_by(["task", *names], maintain_order=True).agg(pl.col("weight").sum())
    groups = groups.sort("task", maintain_order=True)
    return (
        np.ascontiguousarray(groups.select(names).to_numpy(), dtype=np.float64),
        groups["weight"].to_numpy().astype(np.float64),
        groups["task"].to_numpy().astype(np.int64),
    )


def order_by_content(
    rows: Float[np.ndarray, "m d"], rewards: Float[np.ndarray, "m q"], seed: int
) -> Int[np.ndarray, " m"]:
    """Rows along a random direction: seeded samples of rows in this order do not depend on the order of tasks and rows.

    Sums of each row by itself, since a matrix product may round equal rows differently.
    """
    rng = np.random.default_rng(stream(seed, "direction of rows"))
    along, by_reward = (np.sum(table * rng.normal(size=table.shape[1]), axis=1) for table in (rows, rewards))
    return np.lexsort((by_reward, along))
