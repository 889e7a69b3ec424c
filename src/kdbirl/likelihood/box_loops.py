"""The loops of `boxes.py`, `nodes.py` and `boxed_sums.py`, compiled by Numba.

Lengths are in bandwidths, from the corner of the grid. Every function works on one thread and lets others run. A
*place* is a box of the grid, also an empty one; places are numbered so that those of a block of 4 x 4 x 4 follow each
other; its cells of one task are a *group*.
"""

from typing import NamedTuple

import numpy as np
from numpy.polynomial import hermite_e

from kdbirl.compiled import compiled
from kdbirl.likelihood.gaussian_loops import LOOSE, exp2, total_of

ORDER = 8  # nodes along a side (nodes.py)
EPS = 2.0**-20  # of single precision: see boxed_sums.py
LARGEST_EXPONENT = 60.0  # in single precision
PER_SQUARE = -0.5 / np.log(2.0)  # exp(-square / 2) as a power of two
ROWS_MET = 2048  # at once in the second round
_HERMITE = [0.0] * ORDER + [1.0]
# The ORDER-th derivative of exp(-t^2/2) is He(t) exp(-t^2/2): where it has its extremes, and their sizes.
EXTREMES = tuple(hermite_e.hermeroots([0.0, *_HERMITE]).tolist())
EXTREME_VALUES = tuple(float(abs(hermite_e.hermeval(z, _HERMITE)) * np.exp(-0.5 * z**2)) for z in EXTREMES)


class Lattice(NamedTuple):
    """`counts (3,)` boxes along each column, of these `sides`; `per_side` is 1 / sides, 0 for a side without length.

    Rows are put into it as (row - origin) * scale.
    """

    origin: np.ndarray
    scale: float
    sides: np.ndarray
    per_side: np.ndarray
    counts: np.ndarray


class Cells(NamedTuple):
    """Cells (the rows of one task in one box) sorted by place and task, and their rows.

    first_cell `(places + 1,)`; place, task and mass, the weight of the rows, `(C,)`; first_row `(C + 1,)`; order: the
    rows of the cells.
    """

    sides: np.ndarray
    half: np.ndarray
    counts: np.ndarray
    first_cell: np.ndarray
    place: np.ndarray
    task: np.ndarray
    mass: np.ndarray
    first_row: np.ndarray
    order: np.ndarray


class Points(NamedTuple):
    """Rows, or nodes in the place of those of a full cell, in fours of one cell each, sorted as the cells.

    So a sum over a cell has no loop of its own: its length could not be foreseen by the processor. The last four of a
    cell is filled up with weights of zero. first `(places + 1,)`: the first four of each place; task `(fours,)`.
    points `(4, 4 fours)`: x, y and z relative to the middle of the box, and weights. full: the full cells, those of a
    place from `first_full (places + 1,)` on; of_nodes: the weights of the nodes of each, without signs.
    """

    first: np.ndarray
    task: np.ndarray
    points: np.ndarray
    full: np.ndarray
    first_full: np.ndarray
    of_nodes: np.ndarray


class Groups(NamedTuple):
    """Cells by task: `cells` sorted by task and place, with their places and weights.

    Groups of them, `first[g]` to `first[g + 1]`, and their weight `mass`; corner `(groups, 3)`: the first box along
    each column; middle and half `(3, groups)`: of all their boxes. of_task `(K + 1,)`: the first group of each task.
    """

    cells: np.ndarray
    place: np.ndarray
    cell_mass: np.ndarray
    first: np.ndarray
    mass: np.ndarray
    corner: np.ndarray
    middle: np.ndarray
    half: np.ndarray
    of_task: np.ndarray


@compiled()
def _place(i, j, k, counts):
    """The number of a place."""
    group = ((i >> 2) * ((counts[1] + 3) >> 2) + (j >> 2)) * ((counts[2] + 3) >> 2) + (k >> 2)
    return (group << 6) + ((i & 3) << 4) + ((j & 3) << 2) + (k & 3)


@compiled()
def extent(rows):
    """Smallest and largest values of the columns."""
    low, high = rows[0].copy(), rows[0].copy()
    for row in rows:
        for i in range(rows.shape[1]):
            low[i] = min(low[i], row[i])
            high[i] = max(high[i], row[i])
    return low, high


@compiled()
def places_of(rows, lattice, n_places):
    """The place of each row, and how many rows each place has."""
    place, found = np.empty(len(rows), dtype=np.int32), np.zeros(n_places, dtype=np.int64)
    index = np.zeros(3, dtype=np.int64)
    for r in range(len(rows)):
        for i in range(rows.shape[1]):
            index[i] = _index((rows[r, i] - lattice.origin[i]) * lattice.scale, lattice, i)
        place[r] = _place(index[0], index[1], index[2], lattice.counts)
        found[place[r]] += 1
    return place, found


@compiled()
def _index(value, lattice, column):
    """The box of a coordinate along a column."""
    return min(np.int64(value * lattice.per_side[column]), lattice.counts[column] - 1)


@compiled()
def put(rows, weights, tasks, start, place, to, lattice, points, task, order):
    """Write rows from `start` on, from `to` of their `place` on: their points (see `Points`), tasks and numbers."""
    for r in range(start, start + len(place)):
        at = to[place[r - start]]
        to[place[r - start]] += 1
        for i in range(rows.shape[1]):
            value = (rows[r, i] - lattice.origin[i]) * lattice.scale
            points[i, at] = value - (_index(value, lattice, i) + 0.5) * lattice.sides[i]
        points[3, at] = weights[r]
        task[at], order[at] = tasks[r], r


@compiled()
def cells_of(first, task, weight):
    """Runs of one place and one task: their first points and the end, tasks, places, weights; and places' cells."""
    m, n_places = len(task), len(first) - 1
    n_cells = 0
    for p in range(n_places):
        for r in range(first[p], first[p + 1]):
            n_cells += r == first[p] or task[r] != task[r - 1]
    first_point, of_cell = np.empty(n_cells + 1, dtype=np.int64), np.empty(n_cells, dtype=np.int32)
    place, mass = np.empty(n_cells, dtype=np.int32), np.zeros(n_cells)
    first_cell, c = np.empty(n_places + 1, dtype=np.int64), 0
    for p in range(n_places):
        first_cell[p] = c
        for r in range(first[p], first[p + 1]):
            if r == first[p] or task[r] != task[r - 1]:
                first_point[c], of_cell[c], place[c] = r, task[r], p
                c += 1
            mass[c - 1] += weight[r]
    first_cell[n_places], first_point[n_cells] = c, m
    return first_point, of_cell, place, mass, first_cell


@compiled()
def groups_of(cells_by_place, n_tasks):
    """`Groups` of `Cells`."""
    place, task, mass, counts = cells_by_place.place, cells_by_place.task, cells_by_place.mass, cells_by_place.counts
    ends = np.zeros(n_tasks + 1, dtype=np.int64)
    for t in task:
        ends[t + 1] += 1
    for k in range(n_tasks):
        ends[k + 1] += ends[k]
    cells, to = np.empty(len(task), dtype=np.int32), ends[:-1].copy()
    for c in range(len(task)):
        cells[to[task[c]]] = c
        to[task[c]] += 1
    first, of_task = np.empty(len(task) + 1, dtype=np.int64), np.empty(n_tasks + 1, dtype=np.int64)
    total, g = np.zeros(len(task)), 0
    for k in range(n_tasks):
        of_task[k] = g
        for c in range(ends[k], ends[k + 1]):
            if c == ends[k] or place[cells[c]] >> 6 != place[cells[c - 1]] >> 6:
                first[g] = c
                g += 1
            total[g - 1] += mass[cells[c]]
    of_task[n_tasks], first[g] = g, len(task)
    deep, wide = (counts[2] + 3) >> 2, (counts[1] + 3) >> 2
    corner, middle, half = np.empty((g, 3), dtype=np.int64), np.empty((3, g)), np.empty((3, g))
    for own in range(g):
        group = place[cells[first[own]]] >> 6
        corner[own, 0], corner[own, 1], corner[own, 2] = group // (deep * wide), (group // deep) % wide, group % deep
        for i in range(3):
            corner[own, i] <<= 2
            width = min(4, counts[i] - corner[own, i])  # the edge of the grid may cut it
            middle[i, own] = (corner[own, i] + 0.5 * width) * cells_by_place.sides[i]
            half[i, own] = 0.5 * (width - 1) * cells_by_place.sides[i] + cells_by_place.half[i]
    sorted_cells = cells, place[cells], mass[cells]
    return Groups(*sorted_cells, first[: g + 1].copy(), total[:g].copy(), corner, middle, half, of_task)


@compiled(fastmath=LOOSE)
def moments(points, first, last, half, found):
    """Sums of weight T_c(z) T_b(y) T_a(x) over the points of some cells, T: Chebyshev polynomials on [-half, half]."""
    t = np.ones((3, ORDER))
    for cell in range(len(first)):
        for p in range(first[cell], last[cell]):
            for i in range(3):
                if half[i] > 0:
                    t[i, 1] = points[i, p] / half[i]
                    for q in range(2, ORDER):
                        t[i, q] = 2 * t[i, 1] * t[i, q - 1] - t[i, q - 2]
            for c in range(found.shape[1]):
                for b in range(found.shape[2]):
                    factor = points[3, p] * t[2, c] * t[1, b]
                    for a in range(found.shape[3]):
                        found[cell, c, b, a] += factor * t[0, a]


@compiled()
def put_fours(cells, points, start, stop, nodes, weights, number, first, new, task):
    """Write the points of cells from `start` to before `stop` into the fours from `first (C + 1,)` of each on.

    They are its rows' (`points`), or nodes `(nodes, 3)` with the weights `number[c]`, where that is not -1.
    """
    for c in range(start, stop):
        at, row = 4 * first[c], cells.first_row[c]
        for p in range(cells.first_row[c + 1] - row if number[c] < 0 else len(nodes)):
            for i in range(3):
                new[i, at + p] = points[i, row + p] if number[c] < 0 else nodes[p, i]
            new[3, at + p] = points[3, row + p] if number[c] < 0 else weights[number[c], p]
        task[first[c] : first[c + 1]] = cells.task[c]


@compiled(fastmath=LOOSE)
def _exp(x):
    """exp of x <= 0 in single precision, within 2^-21 of itself; e^-87 for all below. Vector instructions do it."""
    y = max(x * np.float32(1.4426950408889634), np.float32(-126.0))
    n = np.floor(y + np.float32(0.5))
    r = y - n
    q = np.float32(1.3276472e-3)  # the polynomial nearest to 2^r on [-1/2, 1/2]: within 2^-23.6 of it
    q = q * r + np.float32(9.6755410e-3)
    q = q * r + np.float32(5.5507130e-2)
    q = q * r + np.float32(0.24022120)
    q = q * r + np.float32(0.69314697)
    q = q * r + np.float32(1.0000001)
    return q * np.int32((np.int32(n) + np.int32(127)) << np.int32(23)).view(np.float32)


@compiled(fastmath=LOOSE)
def _terms(x, y, z, weight, u, v, w, out):
    """weight * exp(-distance^2/2) of some points."""
    u, v, w = np.float32(u), np.float32(v), np.float32(w)
    for p in range(len(x)):
        a, b, c = u - x[p], v - y[p], w - z[p]
        out[p] = weight[p] * _exp(np.float32(-0.5) * (a * a + b * b + c * c))


@compiled(fastmath=LOOSE)
def _sums_of_fours(term, out):
    """Of four terms each."""
    for f in range(len(out)):
        out[f] = (term[4 * f] + term[4 * f + 1]) + (term[4 * f + 2] + term[4 * f + 3])


@compiled()
def _add_to_tasks(totals, task, found):
    """Add what was found to totals `(4, K)` of its tasks, in turns: an addition need not wait for the one before."""
    for f in range(len(task)):
        totals[f & 3, task[f]] += found[f]


@compiled()
def _range(value, side, count, reach):
    """First and last box along a column whose distance may be within reach."""
    if count == 1:
        return 0, 0
    first, last = np.floor((value - reach) / side), np.floor((value + reach) / side)
    return np.int64(min(max(first, 0.0), count - 1.0)), np.int64(min(max(last, 0.0), count - 1.0))


@compiled()
def remainder(t, a):
    """The remainder of interpolation by nodes on [-a, a] over exp(-t^2/2), where t is the smallest |argument|."""
    he = np.empty(ORDER + 1)
    he[0], he[1] = 1.0, t
    scale = 2.0 * (a / 2) * (a / 2) / 2.0
    for p in range(2, ORDER + 1):
        he[p] = t * he[p - 1] - (p - 1) * he[p - 2]
        if p > 2:
            scale *= (a / 2) / p
    largest = abs(he[ORDER])
    for i in range(len(EXTREMES)):
        if t < EXTREMES[i]:
            largest = max(largest, EXTREME_VALUES[i] * np.exp(0.5 * t * t))
    return scale * largest


@compiled()
def _remainder_in_box(u, v, w, half):
    """product over columns of (1 + q) - 1."""
    q = 1.0 + remainder(max(abs(u) - half[0], 0.0), half[0])
    q *= 1.0 + remainder(max(abs(v) - half[1], 0.0), half[1])
    return q * (1.0 + remainder(max(abs(w) - half[2], 0.0), half[2])) - 1.0


@compiled()
def first_round(expert, cells, points, in_all, most_fours, radius, reach):
    """Sums and their largest errors `(n, K)`: boxes within the radius are opened, in single precision."""
    n, n_tasks = len(expert), len(in_all)
    sides, half, counts = cells.sides, cells.half, cells.counts
    total, error, left_out = np.empty((n, n_tasks)), np.zeros((n, n_tasks)), np.empty(n_tasks)
    x_of, y_of, z_of, weight = points.points[0], points.points[1], points.points[2], points.points[3]
    term, sums = np.empty(4 * most_fours, dtype=np.float32), np.empty(most_fours, dtype=np.float32)
    totals = np.empty((4, n_tasks))
    for e in range(n):
        totals[...] = 0.0
        x, y, z, furthest = expert[e, 0], expert[e, 1], expert[e, 2], 0.0
        for t in range(n_tasks):
            left_out[t] = np.exp(-0.5 * reach**2) * in_all[t]
        from_i, to_i = _range(x, sides[0], counts[0], reach)
        from_j, to_j = _range(y, sides[1], counts[1], reach)
        from_k, to_k = _range(z, sides[2], counts[2], reach)
        for i in range(from_i, to_i + 1):
            u = x - (i + 0.5) * sides[0]
            near_i, far_i = max(abs(u) - half[0], 0.0) ** 2, (abs(u) + half[0]) ** 2
            for j in range(from_j, to_j + 1):
                v = y - (j + 0.5) * sides[1]
                near_j, far_j = near_i + max(abs(v) - half[1], 0.0) ** 2, far_i + (abs(v) + half[1]) ** 2
                if near_j > reach**2:
                    continue
                for k in range(from_k, to_k + 1):
                    place = _place(i, j, k, counts)
                    start, stop = cells.first_cell[place], cells.first_cell[place + 1]
                    if start == stop:
                        continue
                    w = z - (k + 0.5) * sides[2]
                    near, far = near_j + max(abs(w) - half[2], 0.0) ** 2, far_j + (abs(w) + half[2]) ** 2
                    if near > reach**2:
                        continue
                    if near > radius**2 or far > 2 * LARGEST_EXPONENT:
                        kernel = np.exp(-0.5 * near)
                        for c in range(start, stop):
                            left_out[cells.task[c]] += kernel * cells.mass[c]
                        continue
                    first, last = points.first[place], points.first[place + 1]
                    a, b = 4 * first, 4 * last
                    _terms(x_of[a:b], y_of[a:b], z_of[a:b], weight[a:b], u, v, w, term)
                    _sums_of_fours(term, sums[: last - first])
                    _add_to_tasks(totals, points.task[first:last], sums)
                    furthest = max(furthest, far)
                    if points.first_full[place] < points.first_full[place + 1]:
                        kernel, worse = np.exp(-0.5 * near), _remainder_in_box(u, v, w, half)
                        for f in range(points.first_full[place], points.first_full[place + 1]):
                            c, of_nodes = points.full[f], points.of_nodes[f] * EPS * (2.0 + 0.5 * far)
                            error[e, cells.task[c]] += kernel * (cells.mass[c] * worse + of_nodes)
        for t in range(n_tasks):
            found = (totals[0, t] + totals[1, t]) + (totals[2, t] + totals[3, t])
            total[e, t] = found + 0.5 * left_out[t]
            # Sums over nodes can be too small by their error, so those over rows are at most found + error.
            error[e, t] += EPS * (2.0 + 0.5 * furthest) * (found + error[e, t]) + 0.5 * left_out[t]
    return total, error


@compiled(fastmath=LOOSE)
def _near_groups(at, groups, start, stop, near):
    """Squared distances of a point to the nearest points of groups."""
    for g in range(start, stop):
        u = max(abs(at[0] - groups.middle[0, g]) - groups.half[0, g], 0.0)
        v = max(abs(at[1] - groups.middle[1, g]) - groups.half[1, g], 0.0)
        w = max(abs(at[2] - groups.middle[2, g]) - groups.half[2, g], 0.0)
        near[g] = u * u + v * v + w * w


@compiled()
def _box_in_group(place):
    """Where a place is among the 4 x 4 x 4 boxes of its group."""
    return (place >> 4) & 3, (place >> 2) & 3, place & 3


@compiled()
def second_round(expert, given, row, task, below, share, cells, groups, in_all, rows, weights, scale):
    """Log sums of some expert rows over a task each, in double precision, too small by half their share at most.

    expert: in bandwidths from the corner of the grid; given: as they are. Rows are subtracted from these, because a
    corner far away would leave few digits.
    """
    found, near, near_box = np.empty(len(row)), np.empty(len(groups.mass)), np.empty((3, 4))
    met = np.empty((2, ROWS_MET))
    for e in range(len(row)):
        at, x, logs = expert[row[e]], given[row[e]], (np.log(0.5 * share), np.log(in_all[task[e]]))
        found[e] = _log_sum(at, x, task[e], below[e], logs, cells, groups, near, near_box, met, rows, weights, scale)
    return found


@compiled()
def _log_sum(at, x, task, below, logs, cells, groups, near_group, near_box, met, rows, weights, scale):
    """One of them: boxes are opened whose kernel may be more than this share of the sum, and others left out.

    logs: of the share, and of the weight of the task; met: room for squared distances of rows and their weights, so
    that many kernels are computed at once.
    """
    start, stop = groups.of_task[task], groups.of_task[task + 1]
    if start == stop:
        return -np.inf
    _near_groups(at, groups, start, stop, near_group)
    lower = below
    if np.isinf(lower):
        lower = _lower_bound(at, start + np.argmin(near_group[start:stop]), lower, cells, groups)
        for g in range(start, stop):
            if logs[1] - 0.5 * near_group[g] > lower and np.log(groups.mass[g]) - 0.5 * near_group[g] > lower:
                lower = _lower_bound(at, g, lower, cells, groups)
    smallest = logs[0] - logs[1] + lower  # also below the log of the largest kernel, which is that of a row that is met
    total, nearest, n = 0.0, np.inf, 0  # of the rows met, over exp(-nearest / 2); not yet added
    for g in range(start, stop):
        if -0.5 * near_group[g] <= smallest:
            continue
        _near_boxes(at, groups.corner[g], cells, near_box)
        for c in range(groups.first[g], groups.first[g + 1]):
            i, j, k = _box_in_group(groups.place[c])
            if -0.5 * (near_box[0, i] + near_box[1, j] + near_box[2, k]) <= smallest:
                continue
            cell = groups.cells[c]
            for p in range(cells.first_row[cell], cells.first_row[cell + 1]):
                r, square = cells.order[p], 0.0
                for q in range(rows.shape[1]):
                    square += ((x[q] - rows[r, q]) * scale) ** 2
                met[0, n], met[1, n] = square, weights[r]
                n += 1
                if n == met.shape[1]:
                    total, nearest = _added(total, nearest, met[0], met[1])
                    n = 0
    total, nearest = _added(total, nearest, met[0, :n], met[1, :n])
    if total == 0:  # so far away that distances within a box are lost in their rounding
        return lower
    return np.log(total) - 0.5 * nearest


@compiled()
def _near_boxes(at, corner, cells, near):
    """Squared distances of a point to the nearest points of the four boxes of a group along each column."""
    for axis in range(3):
        for box in range(4):
            middle = (corner[axis] + box + 0.5) * cells.sides[axis]
            near[axis, box] = max(abs(at[axis] - middle) - cells.half[axis], 0.0) ** 2


@compiled()
def _added(total, nearest, squares, weights):
    """A sum over exp(-nearest / 2), and `nearest`, with more rows in it."""
    if len(squares) == 0:
        return total, nearest
    least = min(nearest, squares.min())
    total *= exp2(PER_SQUARE * (nearest - least))
    return total + total_of(squares, weights, PER_SQUARE, least), least


@compiled()
def _lower_bound(at, group, lower, cells, groups):
    """The largest of logs below the sum: if all rows of a cell were in its furthest corner."""
    most = np.log(groups.mass[group])
    for c in range(groups.first[group], groups.first[group + 1]):
        box, far = _box_in_group(groups.place[c]), 0.0
        for axis in range(3):
            middle = (groups.corner[group, axis] + box[axis] + 0.5) * cells.sides[axis]
            far += (abs(at[axis] - middle) + cells.half[axis]) ** 2
        if most - 0.5 * far > lower:  # else it is not worth a logarithm
            lower = max(lower, np.log(groups.cell_mass[c]) - 0.5 * far)
    return lower
