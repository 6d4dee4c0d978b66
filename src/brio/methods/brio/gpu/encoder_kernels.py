# mypy: disallow-untyped-defs=False
"""Triton kernels of the signed encoder; :mod:`.encoder` calls them.

In here u are rows of a graph G, v its columns and i the numbers of a row of H; r is the run, b the graph of the run and
g its place among those of all runs. One program works on ROWS rows of one graph of one run. Programs that follow each
other share a graph, then the connectome of other runs' graphs, so that it is still in the cache.

Every tensor is contiguous, except that runs which see the same scans share one copy of A and live: A_run and live_run
are the steps from run to run, or 0. Blocks need sizes that are powers of two, D for d; what is beyond P or d is zero.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language import constexpr

from ....training.gpu.random_numbers_kernels import dot

# fmt: off


@triton.jit
def _here(A, live, mean, S, root, A_run, live_run, R, P: constexpr, ROWS: constexpr):
    """The program's graph (as pointers), its D^(-1/2), rows u, run and place."""
    blocks: constexpr = (P + ROWS - 1) // ROWS
    program = tl.program_id(0)
    u = program % blocks * ROWS + tl.arange(0, ROWS)
    r, b = (program // blocks % R).to(tl.int64), (program // blocks // R).to(tl.int64)
    g = r * (tl.num_programs(0) // blocks // R) + b
    live += r * live_run + b * P
    every: constexpr = triton.next_power_of_2(P)
    v = tl.arange(0, every)
    whole = tl.min(tl.load(live + v, mask=v < P, other=1).to(tl.int32), 0)  # 0 if some ROI has no signal
    return (A + r * A_run + b * P * P, live, whole, mean + r * P * P, S + r * P * P), root + g * 2 * P, u, r, g


@triton.jit
def _block(graph, u, v, P: constexpr):
    """Rows u and columns v of G = S * A, Eq. (4), and of S. Edges of ROIs without signal are those of the mean."""
    A, live, whole, mean, S = graph
    at, inside = u[:, None] * P + v[None, :], (u < P)[:, None] & (v < P)[None, :]
    supported = tl.load(S + at, mask=inside, other=0) != 0
    G = tl.where(supported, tl.load(A + at, mask=inside, other=0.0), 0.0)
    if whole == 0:
        dead_u, dead_v = tl.load(live + u, mask=u < P, other=1) == 0, tl.load(live + v, mask=v < P, other=1) == 0
        dead = supported & (dead_u[:, None] | dead_v[None, :])
        G = tl.where(dead, tl.load(mean + at, mask=dead, other=0.0), G)
    return G, supported


@triton.jit
def _messages(F, graph, root, u, P: constexpr, d: constexpr, step: constexpr, D: constexpr, EXACT: constexpr,
              ROWS: constexpr, COLUMNS: constexpr):
    """Rows u of D^(-1/2) G D^(-1/2) F for G+ and for G-. F: d columns, its rows ``step`` apart."""
    i = tl.arange(0, D)
    plus, minus = tl.zeros([ROWS, D], tl.float32), tl.zeros([ROWS, D], tl.float32)
    for first in range(0, P, COLUMNS):
        v = first + tl.arange(0, COLUMNS)
        G, _ = _block(graph, u, v, P)
        f = tl.load(F + v[:, None] * step + i[None, :], mask=(v < P)[:, None] & (i < d)[None, :], other=0.0)
        # the right D^(-1/2) goes to G, not to F, which so is the same in both products
        root_plus, root_minus = tl.load(root + v, mask=v < P, other=0.0), tl.load(root + P + v, mask=v < P, other=0.0)
        plus = dot(tl.maximum(G, 0.0) * root_plus[None, :], f, plus, EXACT)
        minus = dot(tl.maximum(-G, 0.0) * root_minus[None, :], f, minus, EXACT)
    root_plus, root_minus = tl.load(root + u, mask=u < P, other=0.0), tl.load(root + P + u, mask=u < P, other=0.0)
    return plus * root_plus[:, None], minus * root_minus[:, None]


@triton.jit
def _map(W, k, i, d: constexpr):
    """A d x d matrix in a block, from pointers to its numbers k, i."""
    return tl.load(W, mask=(k < d) & (i < d), other=0.0)


@triton.jit
def _normal(z, i, d: constexpr, eps):
    """Rows of z without their mean and with unit variance, and the inverse of what they were divided by."""
    z = tl.where(i < d, z - (tl.sum(z, 1) / d)[:, None], 0.0)
    scale = tl.rsqrt(tl.sum(z * z, 1) / d + eps)[:, None]
    return z * scale, scale


@triton.jit
def _below(y):
    """Standard normal distribution function; gelu(y) = y * _below(y)."""
    return 0.5 + 0.5 * tl.erf(y * 0.7071067811865476)


@triton.jit
def _inverse_root(degree):
    """D^(-1/2), zero for ROIs without edges. A degree below the smallest normal number would be zero to rsqrt."""
    return tl.where(degree > 0, tl.rsqrt(tl.maximum(degree, 1.1754944e-38)), 0.0)


@triton.jit(do_not_specialize=["live_run", "R"])
def embed(A, live, mean, S, root, A_run, live_run, R, E, V, c_mean, c_sd, H, c, P: constexpr, d: constexpr,
          D: constexpr, ROWS: constexpr, COLUMNS: constexpr):
    """D^(-1/2) of G+ and of G-, the standardised descriptor c, Eq. (5), and H = E + c V^T."""
    graph, root, u, r, g = _here(A, live, mean, S, root, A_run, live_run, R, P, ROWS)
    plus, minus = tl.zeros([ROWS], tl.float32), tl.zeros([ROWS], tl.float32)
    square, n = tl.zeros([ROWS], tl.float32), tl.zeros([ROWS], tl.float32)
    for first in range(0, P, COLUMNS):
        G, supported = _block(graph, u, first + tl.arange(0, COLUMNS), P)
        plus += tl.sum(tl.maximum(G, 0.0), 1)
        minus += tl.sum(tl.maximum(-G, 0.0), 1)
        square += tl.sum(G * G, 1)
        n += tl.sum(supported.to(tl.float32), 1)
    tl.store(root + u, _inverse_root(plus), mask=u < P)
    tl.store(root + P + u, _inverse_root(minus), mask=u < P)
    n = tl.where(u < P, n, 1.0)
    c_mean += (r * P + u) * 3
    c_sd += (r * P + u) * 3
    plus = (plus / n - tl.load(c_mean, mask=u < P, other=0.0)) / tl.load(c_sd, mask=u < P, other=1.0)
    minus = (minus / n - tl.load(c_mean + 1, mask=u < P, other=0.0)) / tl.load(c_sd + 1, mask=u < P, other=1.0)
    norm = (tl.sqrt(square / n) - tl.load(c_mean + 2, mask=u < P, other=0.0)) / tl.load(c_sd + 2, mask=u < P, other=1.0)
    c += (g * P + u) * 3
    tl.store(c, plus, mask=u < P)
    tl.store(c + 1, minus, mask=u < P)
    tl.store(c + 2, norm, mask=u < P)
    i = tl.arange(0, D)[None, :]
    at, inside = u[:, None] * d + i, (u < P)[:, None] & (i < d)
    V += (r * d + i) * 3
    h = tl.load(E + r * P * d + at, mask=inside, other=0.0) + plus[:, None] * tl.load(V, mask=i < d, other=0.0)
    h += minus[:, None] * tl.load(V + 1, mask=i < d, other=0.0) + norm[:, None] * tl.load(V + 2, mask=i < d, other=0.0)
    tl.store(H + g * P * d + at, h, mask=inside)


@triton.jit(do_not_specialize=["live_run", "R"])
def layer(A, live, mean, S, root, A_run, live_run, R, H, W, weight, bias, out, Y, eps, KEEP: constexpr, P: constexpr,
          d: constexpr, D: constexpr, EXACT: constexpr, ROWS: constexpr, COLUMNS: constexpr):
    """The next H, Eq. (6), and Y = H W_o^T + M+ W_+^T + M- W_-^T where it is to be kept."""
    graph, root, u, r, g = _here(A, live, mean, S, root, A_run, live_run, R, P, ROWS)
    plus, minus = _messages(H + g * P * d, graph, root, u, P, d, d, D, EXACT, ROWS, COLUMNS)
    i, k = tl.arange(0, D)[None, :], tl.arange(0, D)[:, None]
    W += r * 3 * d * d + i * d + k  # transposed
    y = dot(plus, _map(W + d * d, k, i, d), tl.zeros([ROWS, D], tl.float32), EXACT)
    y = dot(minus, _map(W + 2 * d * d, k, i, d), y, EXACT)
    at, inside = g * P * d + u[:, None] * d + i, (u < P)[:, None] & (i < d)
    h = tl.load(H + at, mask=inside, other=0.0)
    y = dot(h, _map(W, k, i, d), y, EXACT)
    if KEEP:
        tl.store(Y + at, y, mask=inside)
    z, _ = _normal(h + y * _below(y), i, d, eps)
    z *= tl.load(weight + r * d + i, mask=i < d, other=0.0)
    tl.store(out + at, z + tl.load(bias + r * d + i, mask=i < d, other=0.0), mask=inside)


@triton.jit(do_not_specialize=["N", "n"])
def norm_backward(grad, H, Y, weight, dH, dX, sums, eps, N, n, d: constexpr, D: constexpr, ROWS: constexpr):
    """Gradients of H + gelu(Y), to dH, and of Y, to the first third of dX; this block's part in those of the norm.

    A run has N rows in n blocks.
    """
    r, block = (tl.program_id(0) // n).to(tl.int64), tl.program_id(0) % n
    row, i = (block * ROWS + tl.arange(0, ROWS))[:, None], tl.arange(0, D)[None, :]
    inside, row = (row < N) & (i < d), r * N + row
    y = tl.load(Y + row * d + i, mask=inside, other=0.0)
    dout = tl.load(grad + row * d + i, mask=inside, other=0.0)
    below = _below(y)
    z, scale = _normal(tl.load(H + row * d + i, mask=inside, other=0.0) + y * below, i, d, eps)
    sums += (r * n + block) * 2 * d + tl.arange(0, D)
    tl.store(sums, tl.sum(dout * z, 0), mask=tl.arange(0, D) < d)
    tl.store(sums + d, tl.sum(dout, 0), mask=tl.arange(0, D) < d)
    dz = dout * tl.load(weight + r * d + i, mask=i < d, other=0.0)
    dz = scale * (dz - (tl.sum(dz, 1) / d)[:, None] - z * (tl.sum(dz * z, 1) / d)[:, None])
    tl.store(dH + row * d + i, dz, mask=inside)
    density = 0.3989422804014327 * tl.exp(-0.5 * y * y)
    tl.store(dX + row * 3 * d + i, dz * (below + y * density), mask=inside)


@triton.jit(do_not_specialize=["live_run", "R"])
def layer_backward(A, live, mean, S, root, A_run, live_run, R, W, dH, dX, P: constexpr, d: constexpr, D: constexpr,
                   EXACT: constexpr, ROWS: constexpr, COLUMNS: constexpr):
    """From dY in dX the other two thirds of it, and to dH what all three pass on to H.

    A and S are symmetric, so messages go back as they came: dX+ = D+^(-1/2) G+ D+^(-1/2) dY.
    """
    graph, root, u, r, g = _here(A, live, mean, S, root, A_run, live_run, R, P, ROWS)
    dX += g * P * 3 * d
    plus, minus = _messages(dX, graph, root, u, P, d, 3 * d, D, EXACT, ROWS, COLUMNS)
    i, k = tl.arange(0, D)[None, :], tl.arange(0, D)[:, None]
    dX, dH, inside = dX + u[:, None] * 3 * d + i, dH + g * P * d + u[:, None] * d + i, (u < P)[:, None] & (i < d)
    tl.store(dX + d, plus, mask=inside)
    tl.store(dX + 2 * d, minus, mask=inside)
    W += r * 3 * d * d + k * d + i
    dh = dot(plus, _map(W + d * d, k, i, d), tl.zeros([ROWS, D], tl.float32), EXACT)
    dh = dot(minus, _map(W + 2 * d * d, k, i, d), dh, EXACT)
    dh = dot(tl.load(dX, mask=inside, other=0.0), _map(W, k, i, d), dh, EXACT)
    tl.store(dH, dh + tl.load(dH, mask=inside, other=0.0), mask=inside)
