"""The table S[i, k] = log sum over the rows j of task k of weight_j K_h(x_i, x_j): everything the data say.

Training rows are laid out in *tiles* of one task each, padded with rows of weight zero, and tiles are summed in a scan
whose working set stays in the cache. A table is a sum over rows, so tables of parts merge with `logaddexp`.

Three ways, equal to rounding:
- `_scaled_tiles`: each tile's sum is scaled by its largest term. Any kernel, any bandwidth; the slowest.
- `_plain_tiles`: the same sum unscaled, in one pass.
- `_product_tiles`: for the Gaussian on Euclidean distance, -|x-y|^2/2h^2 is one matrix product, with the weights folded
  in. Used where expanding the square loses nothing (`_safe_centre`).
Rows whose unscaled sums come near the ends of the range of doubles are computed again with scaling.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from kdbirl.errors import InputError
from kdbirl.likelihood.kernels import PairKernel
from kdbirl.precision import float64
from kdbirl.progress import Progress, Silent

PAIRS_PER_STEP = 2**17  # pairs in flight in one step of the scan: 1 MB of float64, which stays in the cache
TILE = 256  # rows of one task summed at once
ROWS_PER_CALL = 2**17  # training rows per compiled call: progress can be shown, and buffers can be reused
EXPERT_BLOCK = 512  # expert rows per compiled call
SMALLEST_SAFE_SUM = 1e-290  # below this, terms may have underflowed: XLA's exp is zero from 2e-308 (e^-708) down
SMALLEST_SINGLE_SUM = 1e-26  # the same for terms in single precision, which is zero from e^-87 down
SINGLE_ERROR = 1e-5  # of log S with terms in single precision: exponents down to -87 within 2^-24, and exp within 2^-22
LARGEST_SAFE_SUM = 1e290  # above this, terms of a user's kernel may have overflowed
WIDE = {"xla_cpu_prefer_vector_width": 512}  # XLA's default is 256: 1.7 times slower where the processor has AVX-512
LARGEST_SAFE_RADIUS = 100.0  # |x|/h up to which expanding the square costs less than 1e-11 in log K


Part = tuple[np.ndarray, np.ndarray, np.ndarray, int]  # rows, weights, tasks and the width of their tiles


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
    first_row = np.concatenate([[0], np.flatnonzero(np.diff(tasks)) + 1])
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
    single: bool = False,
) -> Float[np.ndarray, "n {n_tasks}"]:
    """S (n, K) for expert rows against training rows that are sorted by task. Costs n*m kernel evaluations.

    `single`: where the kernel is one matrix product, terms in single precision, added in double: within `SINGLE_ERROR`.
    """
    progress = progress or Silent()
    centre = _safe_centre(expert, rows, float(h[0])) if kernel.squared_exponential else None
    table = np.full((len(expert), n_tasks), -np.inf)
    width = tile_width(len(rows), n_tasks)
    done = 0
    for start in range(0, len(rows), ROWS_PER_CALL):
        stop = min(start + ROWS_PER_CALL, len(rows))
        part = rows[start:stop], weights[start:stop], tasks[start:stop], width
        for here, block in _blocks(expert):
            size = here.stop - here.start
            sums = _block_sums(block, part, n_tasks, kernel, h, centre, single)[:size]
            if not (sums < np.inf).all():
                raise InputError(
                    "The kernel gives NaN or infinity for a pair of an expert row and a training row: it, and the "
                    "distance in it, must give a finite number for every pair."
                )
            table[here] = np.logaddexp(table[here], sums)
            done += (stop - start) * size
            progress.update("kernel sums", done, len(rows) * len(expert))
    return table


def _safe_centre(expert: np.ndarray, rows: np.ndarray, h: float) -> np.ndarray | None:
    """Centre of a ball around all points, if it is so small that expanding |x - y|^2 loses nothing; else None."""
    columns = [(expert[:, i], rows[:, i]) for i in range(rows.shape[1])]  # column by column: much faster than by axis
    low = np.array([min(a.min(), b.min()) for a, b in columns])
    high = np.array([max(a.max(), b.max()) for a, b in columns])
    radius = math.hypot(*(high - low)) / 2  # unlike a sum of squares it does not overflow
    return (low + high) / 2 if radius <= LARGEST_SAFE_RADIUS * h else None


def _blocks(expert: np.ndarray) -> Iterator[tuple[slice, np.ndarray]]:
    """Where each block of expert rows is, and the block padded to one of a few sizes: few programs are compiled."""
    for first in range(0, len(expert), EXPERT_BLOCK):
        here = slice(first, min(first + EXPERT_BLOCK, len(expert)))
        block = expert[here]
        missing = rounded_up(len(block), 4) - len(block)
        yield here, np.concatenate([block, np.repeat(block[-1:], missing, axis=0)])


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


def _block_sums(
    block: np.ndarray,
    part: Part,
    n_tasks: int,
    kernel: PairKernel,
    h: np.ndarray,
    centre: np.ndarray | None,
    single: bool = False,
) -> np.ndarray:
    """(len(block), K) log sums over a part of the training rows; with a centre, by the matrix product."""
    tiles = tiled(*part, len(block))
    sums = _plain(block, tiles, kernel, h) if centre is None else _product(block, tiles, float(h[0]), centre, single)
    smallest = SMALLEST_SINGLE_SUM if single and centre is not None else SMALLEST_SAFE_SUM
    first = np.concatenate([[0], np.flatnonzero(np.diff(tiles.tasks)) + 1])
    present = tiles.tasks[first]
    totals = np.add.reduceat(sums, first, axis=0).T
    table = np.full((len(block), n_tasks), -np.inf)
    with np.errstate(divide="ignore"):  # an empty or underflowed sum
        table[:, present] = np.log(totals)
    for where, again in _out_of_range(block, totals, kernel, smallest):
        scaled = _scaled(again, tiled(*part, len(again)), kernel, h)
        table[np.ix_(where, present)] = np.logaddexp.reduceat(scaled, first, axis=0).T[: len(where)]
    return table


def _out_of_range(
    block: np.ndarray, totals: np.ndarray, kernel: PairKernel, smallest: float
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Blocks of the rows of which some sum may have lost terms. A sum of compact kernels is never just small."""
    if all(part.kernel.compact for part in kernel.parts):
        return
    lost = np.flatnonzero(((totals < smallest) | (totals > LARGEST_SAFE_SUM)).any(axis=1))
    for here, again in _blocks(block[lost]):
        yield lost[here], again


def _scaled(block: np.ndarray, tiles: Tiles, kernel: PairKernel, h: np.ndarray) -> np.ndarray:
    rows, log_weights = jnp.asarray(tiles.rows), jnp.asarray(tiles.log_weights)
    return _by_tile(_scaled_tiles(jnp.asarray(block), rows, log_weights, jnp.asarray(h), kernel), tiles)


def _plain(block: np.ndarray, tiles: Tiles, kernel: PairKernel, h: np.ndarray) -> np.ndarray:
    rows, log_weights = jnp.asarray(tiles.rows), jnp.asarray(tiles.log_weights)
    return _by_tile(_plain_tiles(jnp.asarray(block), rows, log_weights, jnp.asarray(h), kernel), tiles)


def _product(block: np.ndarray, tiles: Tiles, h: float, centre: np.ndarray, single: bool) -> np.ndarray:
    scaled = (block - centre) / h
    left = np.concatenate([scaled, -0.5 * np.sum(scaled**2, axis=1, keepdims=True), np.ones((len(block), 1))], axis=1)
    rows, log_weights = jnp.asarray(tiles.rows), jnp.asarray(tiles.log_weights)
    sums = _product_tiles(jnp.asarray(left), rows, log_weights, jnp.asarray(centre), jnp.asarray(h), single)
    return _by_tile(sums, tiles)


def _by_tile(sums: Float[Array, "steps n group"], tiles: Tiles) -> Float[np.ndarray, "tiles n"]:
    """(steps, n, group) -> (tiles, n), without the padding."""
    return np.swapaxes(np.asarray(sums), 1, 2).reshape(-1, sums.shape[1])[: len(tiles.tasks)]


@partial(jax.jit, static_argnames="single", compiler_options=WIDE)
def _product_tiles(
    left: Float[Array, "n p"],
    rows: Float[Array, "steps group width d"],
    log_weights: Float[Array, "steps group width"],
    centre: Float[Array, " d"],
    h: Float[Array, ""],
    single: bool,
) -> Float[Array, "steps n group"]:
    """Sums of weight * K over each tile: exp of [x, -|x|^2/2, 1] . [y, 1, log weight - |y|^2/2], in units of h."""
    group, width, d = rows.shape[1:]

    def step(carry: None, tile: tuple[Array, Array]) -> tuple[None, Array]:
        y = (tile[0].reshape(group * width, d) - centre[None]) / h
        last = tile[1].reshape(group * width, 1) - 0.5 * jnp.sum(y**2, axis=1, keepdims=True)
        right = jnp.concatenate([y, jnp.ones_like(last), last], axis=1)
        exponents = left @ right.T
        terms = jnp.exp(exponents.astype(jnp.float32) if single else exponents)
        return carry, terms.reshape(-1, group, width).sum(axis=-1, dtype=left.dtype)

    return jax.lax.scan(step, None, (rows, log_weights))[1]


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
    total = jnp.sum(jnp.exp(terms - largest), axis=axis)
    positive = total > 0
    logs = jnp.log(jnp.where(positive, total, 1.0)) + jnp.squeeze(largest, axis)
    return jnp.where(positive, logs, -jnp.inf)
