"""Kernel sums within a stated tolerance: boxes of rows that hardly matter to an expert row are not looked into.

For a Gaussian kernel and a box of total weight w, with the distance of x to the box (a), and the mean and variance of
its rows,

    w exp(-(|x - mean|^2 + variance) / 2h^2)  <=  sum of weight * K  <=  w exp(-a^2 / 2h^2)        (left: Jensen),

so the middle of the two is wrong by at most half their difference, e. With L the sum of the left sides over a task's
boxes, leaving boxes unopened whose e add up to at most (1 - exp(-tolerance)) L changes log S by at most the tolerance.
The boxes with the smallest e per row are left unopened. In the others kernels are computed in single precision relative
to the box's centre, and boxes are added in double; what that can cost (`ROUNDING`) is taken off the tolerance first.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from os import sched_getaffinity
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from kdbirl.likelihood.boxes import Boxes
from kdbirl.likelihood.kernel_sums import EXPERT_BLOCK, WIDE, padded_size, rounded_up
from kdbirl.precision import float64

LANES = 16  # expert rows that meet a box at once
PAIRS_PER_STEP = 2**18  # in a step of the scan: 1 MB in single precision
FACTORS = (64.0, 8.0, 1.0)  # of the share of the error that each row may cause; 1 always suffices
LARGEST_EXPONENTS = 60.0, 600.0  # of kernels relative to the centre's: single precision ends at 87, double at 708
ROUNDING = 1e-4  # of log S: exponents, or rows times exponents, within 2^-24 of these, and sums of up to 1024 terms
SMALLEST_TOLERANCE = 2 * ROUNDING
CLOSED, SINGLE, DOUBLE, TOO_FAR = range(4)


@float64
def boxed_log_sums(
    expert: Float[np.ndarray, "n d"], boxes: Boxes, h: float, tolerance: float
) -> tuple[Float[np.ndarray, "n K"], Bool[np.ndarray, " n"]]:
    """S within the tolerance, and which rows are so far from an open box that they must be summed exactly instead."""
    parts = [
        _block_sums(expert[first : first + EXPERT_BLOCK], boxes, h, tolerance)
        for first in range(0, len(expert), EXPERT_BLOCK)
    ]
    return np.concatenate([table for table, _ in parts]), np.concatenate([far for _, far in parts])


def _block_sums(expert: np.ndarray, boxes: Boxes, h: float, tolerance: float) -> tuple[np.ndarray, np.ndarray]:
    n = len(expert)
    padded = np.concatenate([expert, np.repeat(expert[-1:], padded_size(n) - n, axis=0)])
    share = -np.expm1(-(tolerance - ROUNDING))
    tasks = np.array_split(np.arange(len(boxes.centre)), min(_cores(), len(boxes.centre)))
    found = _on_all_cores(lambda own: _bounds(padded, boxes, own, h, share), tasks)
    kind, closed, reference, far = (np.concatenate(part) for part in zip(*found, strict=True))
    total, far = closed[:, :n].T, far[:, :n]
    for precision, dtype in ((SINGLE, jnp.float32), (DOUBLE, jnp.float64)):
        if precision == DOUBLE and not far.any():
            break
        box, row = np.divmod(np.flatnonzero(kind == precision), len(padded))
        box, row = box[row < n], row[row < n]
        if len(box):
            total = total + _opened(padded, boxes, box, row, reference, h, dtype)[:n]
    with np.errstate(divide="ignore"):
        return np.log(total) + reference[:, :n].T, np.asarray((far == TOO_FAR).any(axis=0))


def _cores() -> int:
    return len(sched_getaffinity(0))


def _on_all_cores(work: Callable[[Any], Any], parts: list[Any]) -> list[Any]:
    """XLA runs loops of small steps on one core: each part gets a thread."""
    with ThreadPoolExecutor(len(parts)) as pool:
        waiting = [pool.submit(copy_context().run, work, part) for part in parts]
        return [each.result() for each in waiting]


@float64
def _bounds(expert: np.ndarray, boxes: Boxes, tasks: np.ndarray, h: float, share: float) -> tuple[np.ndarray, ...]:
    chosen = slice(tasks[0], tasks[-1] + 1)
    fields = (boxes.centre, boxes.half, boxes.mean, boxes.variance, boxes.log_total)
    bounds = [jnp.asarray(field[chosen]) for field in fields]
    found = _bounded(jnp.asarray(expert), *bounds, jnp.asarray(h), jnp.asarray(share))
    return tuple(np.asarray(part) for part in found)


@partial(jax.jit, compiler_options=WIDE)
def _bounded(
    expert: Float[Array, "n d"],
    centre: Float[Array, "K B d"],
    half: Float[Array, "K B d"],
    mean: Float[Array, "K B d"],
    variance: Float[Array, "K B"],
    log_total: Float[Array, "K B"],
    h: Float[Array, ""],
    share: Float[Array, ""],
) -> tuple[Array, Array, Array, Array]:
    """How to open each box (K, B, n); sums over closed ones, over exp(reference), and reference (K, n); who is far."""
    scale = 0.5 / h**2

    def of_task(_: None, own: tuple[Array, ...]) -> tuple[None, tuple[Array, ...]]:
        centre, half, mean, variance, log_total = own
        nearest = jnp.zeros((len(centre), len(expert)))
        exponent, middle = nearest, nearest + variance[:, None]
        for i in range(expert.shape[1]):
            gap = jnp.abs(expert[None, :, i] - centre[:, i, None])
            nearest = nearest + jnp.maximum(gap - half[:, i, None], 0.0) ** 2
            middle = middle + (expert[None, :, i] - mean[:, i, None]) ** 2
            exponent = exponent + gap * half[:, i, None]
        upper = log_total[:, None] - scale * nearest
        reference = jnp.max(upper, axis=0)
        most, least = jnp.exp(upper - reference[None]), jnp.exp(log_total[:, None] - scale * middle - reference[None])
        error, floor = 0.5 * (most - least), jnp.sum(least, axis=0)
        weight = jnp.exp(log_total)
        budget = (share * floor)[None] * (weight / jnp.sum(weight))[:, None]
        limit = jnp.ones(len(expert))
        for factor in FACTORS[-2::-1]:
            spent = jnp.sum(jnp.where(error <= factor * budget, error, 0.0), axis=0)
            limit = jnp.where(spent <= share * floor, factor, limit)
        opened = error > limit[None] * budget
        closed = jnp.sum(jnp.where(opened, 0.0, 0.5 * (most + least)), axis=0)
        kind = sum((2 * scale * exponent > largest).astype(jnp.int8) for largest in LARGEST_EXPONENTS) + jnp.int8(1)
        kind = jnp.where(opened, kind, jnp.int8(CLOSED))
        furthest = jnp.max(kind, axis=0)
        return None, (kind, closed, reference, jnp.where(furthest >= DOUBLE, furthest, jnp.int8(0)))

    kind, closed, reference, far = jax.lax.scan(of_task, None, (centre, half, mean, variance, log_total))[1]
    return kind, closed, reference, far


def _opened(
    expert: np.ndarray,
    boxes: Boxes,
    box: Int[np.ndarray, " pairs"],
    row: Int[np.ndarray, " pairs"],
    reference: Float[np.ndarray, "K n"],
    h: float,
    dtype: Any,
) -> Float[np.ndarray, "n K"]:
    """Sums over the rows of open boxes, over exp(reference). Pairs are sorted by box, numbered over all tasks."""
    n_tasks, per_task = boxes.centre.shape[:2]
    first = np.flatnonzero(np.diff(box, prepend=-1))
    counts = np.diff(np.append(first, len(box)))
    tiles_of = -(-counts // LANES)
    place = np.arange(len(box)) - np.repeat(first, counts)
    tile = np.repeat(np.cumsum(tiles_of) - tiles_of, counts) + place // LANES
    of_tile = np.repeat(box[first], tiles_of)
    rows = np.zeros((len(of_tile), LANES), dtype=np.int64)
    rows[tile, place % LANES] = row
    parts = list(_equal_parts(of_tile, rows, boxes.rows.shape[2]))
    sums = _on_all_cores(lambda part: _part_sums(expert, boxes, part[0], part[1], reference, h, dtype), parts)
    values = np.concatenate(sums)[tile, place % LANES]
    size = len(expert) * n_tasks
    return np.bincount(row * n_tasks + box // per_task, weights=values, minlength=size).reshape(-1, n_tasks)


def _equal_parts(of_tile: np.ndarray, rows: np.ndarray, width: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The tiles in as many parts as there are cores, each padded to one of a few numbers of steps."""
    tiles = max(PAIRS_PER_STEP // (LANES * width), 1)
    steps = rounded_up(-(-len(of_tile) // (tiles * _cores())), 4)
    size = steps * tiles
    for start in range(0, len(of_tile), size):
        box, row = of_tile[start : start + size], rows[start : start + size]
        missing = size - len(box)
        box, row = np.pad(box, (0, missing)), np.pad(row, ((0, missing), (0, 0)))
        yield box.reshape(steps, tiles), row.reshape(steps, tiles, LANES)


@float64
def _part_sums(
    expert: np.ndarray, boxes: Boxes, box: np.ndarray, row: np.ndarray, reference: np.ndarray, h: float, dtype: Any
) -> Float[np.ndarray, "tiles lanes"]:
    centre, rows = boxes.on_device
    arrays = (jnp.asarray(part) for part in (reference, box, row, np.asarray(h)))
    sums = _tile_sums(jnp.asarray(expert), centre, rows, *arrays, boxes.centre.shape[1], dtype)
    return np.asarray(sums).reshape(-1, LANES)


@partial(jax.jit, static_argnames=("per_task", "dtype"), compiler_options=WIDE)
def _tile_sums(
    expert: Float[Array, "n d"],
    centre: Float[Array, "boxes d"],
    rows: Float[Array, "boxes d_and_2 W"],
    reference: Float[Array, "K n"],
    box: Int[Array, "steps tiles"],
    row: Int[Array, "steps tiles lanes"],
    h: Float[Array, ""],
    per_task: int,
    dtype: Any,
) -> Float[Array, "steps tiles lanes"]:
    """Sums of weight * K over boxes, over exp(reference): exp(u.v - |v|^2/2 + log weight) around a box's centre."""
    scale = 1.0 / h**2

    def step(_: None, tile: tuple[Array, Array]) -> tuple[None, Array]:
        b, e = tile
        u = expert[e] - centre[b][:, None]
        ones = jnp.ones((*e.shape, 1))
        left = jnp.concatenate([scale * u, -0.5 * scale * ones, ones], axis=-1).astype(dtype)
        terms = jnp.exp(jnp.einsum("tgi,tiw->tgw", left, rows[b].astype(dtype)))
        log_factor = -0.5 * scale * jnp.sum(u**2, axis=-1) - reference[b[:, None] // per_task, e]
        return None, jnp.sum(terms, axis=-1).astype(jnp.float64) * jnp.exp(log_factor)

    return jax.lax.scan(step, None, (box, row))[1]
