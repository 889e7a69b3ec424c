"""The loops of `sums.py`, compiled by Numba: sums of Gaussian kernels, scaled so that none underflows.

A kernel is 2^t. With n the integer nearest to t, 2^t = 2^n 2^(t - n): the difference is exact, 2^n is put
into the bits of the exponent, and 2^r on [-1/2, 1/2] is the polynomial through its values at Chebyshev's nodes (12 of
them: within 2e-17). All of it is vector instructions, which no library's exp is
here. Every function works on one thread and lets others run.
"""

import numpy as np

from kdbirl.compiled import compiled

BLOCK_NUMBERS = 3072  # of rows that stay in the fastest cache while all expert rows meet them
LONGEST_BLOCK, SHORTEST_BLOCK = 512, 128
LOOSE = {"reassoc", "contract", "arcp", "nsz"}  # sums in any order: what vector instructions need; no more than that
C1, C2, C3 = 0.6931471805599453, 0.24022650695910158, 0.055504108664821625
C4, C5, C6 = 0.009618129107587256, 0.001333355814640647, 0.00015403530463724353
C7, C8, C9 = 1.5252733841556773e-05, 1.3215432535912375e-06, 1.0178057087733941e-07
C10, C11 = 7.074194297288521e-09, 4.4558179083360645e-10
ROUND = 1.5 * 2.0**52  # added to a small number, it leaves the nearest integer in the last bits
MOST = 1000.0  # of an exponent: 2^-1000 is nothing, 2^1000 shows
LARGE = 2.0**60  # of the sum of a block, relative to the kernel that it is scaled by: another one is nearer


@compiled(fastmath={"contract"})
def exp2(t):
    """2^t for t within 1000 of zero; beyond, that of the bound."""
    t = min(max(t, -MOST), MOST)
    shifted = t + ROUND
    r = t - (shifted - ROUND)
    q = C11 * r + C10
    q = q * r + C9
    q = q * r + C8
    q = q * r + C7
    q = q * r + C6
    q = q * r + C5
    q = q * r + C4
    q = q * r + C3
    q = q * r + C2
    q = q * r + C1
    q = q * r + 1.0
    scale = np.float64(shifted).view(np.int64) << 52
    return np.int64(np.float64(q).view(np.int64) + scale).view(np.float64)


@compiled(fastmath=LOOSE)
def _one(x, y, out):
    for j in range(len(out)):
        a = x - y[j]
        out[j] = a * a


@compiled(fastmath=LOOSE)
def _two(x0, x1, y0, y1, out):
    for j in range(len(out)):
        a, b = x0 - y0[j], x1 - y1[j]
        out[j] = a * a + b * b


@compiled(fastmath=LOOSE)
def _three(x0, x1, x2, y0, y1, y2, out):
    for j in range(len(out)):
        a, b, c = x0 - y0[j], x1 - y1[j], x2 - y2[j]
        out[j] = a * a + b * b + c * c


@compiled(fastmath=LOOSE)
def _four_more(x0, x1, x2, x3, y0, y1, y2, y3, out):
    for j in range(len(out)):
        a, b, c, d = x0 - y0[j], x1 - y1[j], x2 - y2[j], x3 - y3[j]
        out[j] += (a * a + b * b) + (c * c + d * d)


@compiled()
def squares_to(x, y, n, out):
    """|x - y_j|^2 of the first n columns of y `(d, block)`: the columns that are over first, then four at a time."""
    over = len(x) % 4
    if over == 0:
        out[:] = 0.0
    elif over == 1:
        _one(x[0], y[0, :n], out)
    elif over == 2:
        _two(x[0], x[1], y[0, :n], y[1, :n], out)
    else:
        _three(x[0], x[1], x[2], y[0, :n], y[1, :n], y[2, :n], out)
    for c in range(over, len(x), 4):
        _four_more(x[c], x[c + 1], x[c + 2], x[c + 3], y[c, :n], y[c + 1, :n], y[c + 2, :n], y[c + 3, :n], out)


@compiled(fastmath=LOOSE)
def total_of(squares, weights, factor, near):
    """Sum of weight 2^(factor (square - near))."""
    total = 0.0
    for j in range(len(weights)):
        total += weights[j] * exp2(factor * (squares[j] - near))
    return total


@compiled()
def scaled_sums(expert, rows, weights, first, scale, factor, totals, near):
    """Fill totals and near `(n, segments)`: the sum over the rows of each segment is total 2^(factor near).

    The rows of segment s are those from first[s] on; squares are |scale (x - y)|^2. `near` is that of the first row, as
    long as no other is so much nearer that its kernel could overflow: then the smallest so far.
    """
    d = rows.shape[1]
    length = min(max(BLOCK_NUMBERS // (d + 2), SHORTEST_BLOCK), LONGEST_BLOCK)
    x, y, squares = expert * scale, np.empty((d, length)), np.empty(length)
    totals[...] = 0.0
    for s in range(len(first) - 1):
        for start in range(first[s], first[s + 1], length):
            n = min(length, first[s + 1] - start)
            for j in range(n):
                for c in range(d):
                    y[c, j] = rows[start + j, c] * scale
            own, weight = squares[:n], weights[start : start + n]
            for i in range(len(x)):
                squares_to(x[i], y, n, own)
                if start == first[s]:
                    near[i, s] = own[0]
                more = total_of(own, weight, factor, near[i, s])
                if not more < LARGE:
                    nearest = min(near[i, s], own.min())
                    totals[i, s] *= exp2(factor * (near[i, s] - nearest))
                    near[i, s] = nearest
                    more = total_of(own, weight, factor, nearest)
                totals[i, s] += more
