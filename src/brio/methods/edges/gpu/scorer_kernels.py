# mypy: disallow-untyped-defs=False
"""Triton kernels of the MLP that scores edges; :mod:`.scorer` calls them.

In here e are edges of one graph (n of them), i the numbers of an edge before a linear layer (h of them), j those after
it (d of them). One program works on BLOCKS times EDGES edges of one graph; g is the place of that graph among those of
all runs, r its run and b its place in the run, of B. Blocks need sizes that are powers of two, H for h and D for d;
what is beyond n, h or d is zero.

Gradients of ROIs are sums over the edges that end there. A program adds up its own edges by products with a matrix of
zeros and ones, which says of edge e whether it ends in ROI q, for RS ROIs q; the second number of a program says which.
So the order of every sum is fixed, as it is not where programs add to one place: the same step gives the same bits.

Every tensor is contiguous, except that runs which see the same scans share one copy of the edges: to_run and of_run are
the steps from run to run, or 0. Places in a graph are 32-bit numbers, those of graphs 64-bit ones. Numbers that are not
numbers stay so through every ReLU, as they do in torch.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language import constexpr

from ....training.gpu.random_numbers_kernels import dot, draw, keys_of, pick

__all__ = ["ends_backward", "first", "first_backward", "later", "later_backward", "moments", "moments_backward"]

# fmt: off


@triton.jit
def _here(B, n, SIZE: constexpr):
    """The program's graph and run, the place of the graph in the run, its first edge."""
    chunks = tl.cdiv(n, SIZE)
    g = (tl.program_id(0) // chunks).to(tl.int64)
    return g, g // B, (g % B).to(tl.int32), tl.program_id(0) % chunks * SIZE


@triton.jit
def _rows(x, e, i, n, h: constexpr):
    """Numbers i of edges e."""
    return tl.load(x + e[:, None] * h + i, mask=(e < n)[:, None] & (i < h), other=0.0)


@triton.jit
def _roi(end, e, n):
    """The ROI at one end of edges e."""
    return tl.load(end + e, mask=e < n, other=0).to(tl.int32)


@triton.jit
def _ends(rows, to, of, e, i, n, h: constexpr):
    """r[to] + s[of] of edges e."""
    r, s = rows
    u, v, inside = _roi(to, e, n)[:, None] * h + i, _roi(of, e, n)[:, None] * h + i, (e < n)[:, None] & (i < h)
    return tl.load(r + u, mask=inside, other=0.0) + tl.load(s + v, mask=inside, other=0.0)


@triton.jit
def _kept(e, i, b, n, keys, r, p, scale, h: constexpr):
    """What dropout multiplies edges e with, drawn as for a tensor [B, n, h]."""
    first, second = keys_of(keys, r)
    return tl.where(draw((b * n + e)[:, None] * h + i, first, second) >= p, scale, 0.0)


@triton.jit
def _answer(z, W, bias, out, kept, e, n, d: constexpr, D: constexpr, DROP: constexpr, EXACT: constexpr):
    """W dropout(relu(z)) + bias of edges e, to ``out``. W: [H, D], in registers as the bias is."""
    a = tl.where(z <= 0.0, 0.0, z)
    if DROP:
        a *= kept
    y = dot(a, W, tl.zeros([z.shape[0], D], tl.float32), EXACT) + bias[None, :]
    j = tl.arange(0, D)[None, :]
    tl.store(out + e[:, None] * d + j, y, mask=(e < n)[:, None] & (j < d))


@triton.jit
def _return(z, dy, W, dW, db, kept, DROP: constexpr, EXACT: constexpr):
    """dz from the gradient dy of the layer's answer; sums for the gradients of W [D, H] and of the bias go on."""
    a, dz = tl.where(z <= 0.0, 0.0, z), dot(dy, W, tl.zeros(z.shape, tl.float32), EXACT)
    if DROP:
        a *= kept
        dz *= kept
    return tl.where(z <= 0.0, 0.0, dz), dot(tl.trans(dy), a, dW, EXACT), db + tl.sum(dy, 0)


@triton.jit
def _weights(W, r, k, j, h: constexpr, d: constexpr):
    """W of a run, [d, h] in memory, at columns k and rows j."""
    return tl.load(W + r * d * h + j * h + k, mask=(k < h) & (j < d), other=0.0)


@triton.jit
def _put_sums(dW, db, sums, h: constexpr, H: constexpr, d: constexpr, D: constexpr):
    """The program's part in the gradients of W and of the bias, as one matrix [d, h + 1]."""
    sums += tl.program_id(0).to(tl.int64) * d * (h + 1)
    i, j = tl.arange(0, H)[None, :], tl.arange(0, D)
    tl.store(sums + j[:, None] * (h + 1) + i, dW, mask=(j < d)[:, None] & (i < h))
    tl.store(sums + j * (h + 1) + h, db, mask=j < d)


@triton.jit
def _to_rois(to, of, e, n, dz, heard, sent, RS: constexpr, EXACT: constexpr):
    """Sums of dz over edges e by the ROI that hears and by the one that is heard go on."""
    q = tl.program_id(1) * RS + tl.arange(0, RS)[:, None]
    heard = pick((q == _roi(to, e, n)[None, :]).to(tl.float32), dz, heard, EXACT)
    return heard, pick((q == _roi(of, e, n)[None, :]).to(tl.float32), dz, sent, EXACT)


@triton.jit
def _put_rois(dr, ds, heard, sent, P, h: constexpr, H: constexpr, RS: constexpr):
    """The program's part in the gradients of r and s."""
    q, i = tl.program_id(1) * RS + tl.arange(0, RS)[:, None], tl.arange(0, H)[None, :]
    at, inside = tl.program_id(0).to(tl.int64) * P * h + q * h + i, (q < P) & (i < h)
    tl.store(dr + at, heard, mask=inside)
    tl.store(ds + at, sent, mask=inside)


@triton.jit(do_not_specialize=["to_run", "of_run", "B", "P"])
def first(receive, send, to, of, to_run, of_run, W, bias, keys, out, B, P, n, p, scale, h: constexpr, H: constexpr,
          d: constexpr, D: constexpr, DROP: constexpr, EXACT: constexpr, EDGES: constexpr, BLOCKS: constexpr):
    """W dropout(relu(r[to] + s[of])) + bias."""
    g, r, b, start = _here(B, n, EDGES * BLOCKS)
    rows = receive + g * P * h, send + g * P * h
    to, of, out = to + r * to_run + b.to(tl.int64) * n, of + r * of_run + b.to(tl.int64) * n, out + g * n * d
    i, j = tl.arange(0, H)[None, :], tl.arange(0, D)
    w = _weights(W, r, tl.arange(0, H)[:, None], j[None, :], h, d)
    shift = tl.load(bias + r * d + j, mask=j < d, other=0.0)
    for block in range(BLOCKS):
        e = start + block * EDGES + tl.arange(0, EDGES)
        z = _ends(rows, to, of, e, i, n, h)
        kept = _kept(e, i, b, n, keys, r, p, scale, h) if DROP else z
        _answer(z, w, shift, out, kept, e, n, d, D, DROP, EXACT)


@triton.jit(do_not_specialize=["to_run", "of_run", "B", "P"])
def first_backward(grad, receive, send, to, of, to_run, of_run, W, keys, dr, ds, sums, B, P, n, p, scale, RS: constexpr,
                   h: constexpr, H: constexpr, d: constexpr, D: constexpr, DROP: constexpr, EXACT: constexpr,
                   EDGES: constexpr, BLOCKS: constexpr):
    """The program's part in the gradients of r and s [P, h], of W and of the bias."""
    g, r, b, start = _here(B, n, EDGES * BLOCKS)
    rows, grad = (receive + g * P * h, send + g * P * h), grad + g * n * d
    to, of = to + r * to_run + b.to(tl.int64) * n, of + r * of_run + b.to(tl.int64) * n
    i, j = tl.arange(0, H)[None, :], tl.arange(0, D)[None, :]
    w = _weights(W, r, i, tl.arange(0, D)[:, None], h, d)
    dW, db = tl.zeros([D, H], tl.float32), tl.zeros([D], tl.float32)
    heard, sent = tl.zeros([RS, H], tl.float32), tl.zeros([RS, H], tl.float32)
    for block in range(BLOCKS):
        e = start + block * EDGES + tl.arange(0, EDGES)
        z = _ends(rows, to, of, e, i, n, h)
        kept = _kept(e, i, b, n, keys, r, p, scale, h) if DROP else z
        dz, dW, db = _return(z, _rows(grad, e, j, n, d), w, dW, db, kept, DROP, EXACT)
        heard, sent = _to_rois(to, of, e, n, dz, heard, sent, RS, EXACT)
    _put_rois(dr, ds, heard, sent, P, h, H, RS)
    if tl.program_id(1) == 0:
        _put_sums(dW, db, sums, h, H, d, D)


@triton.jit(do_not_specialize=["to_run", "of_run", "B", "P"])
def ends_backward(grad, to, of, to_run, of_run, dr, ds, B, P, n, RS: constexpr, h: constexpr, H: constexpr,
                  EXACT: constexpr, EDGES: constexpr, BLOCKS: constexpr):
    """The program's part in the gradients of r and s [P, h] from those of r[to] + s[of]."""
    g, r, b, start = _here(B, n, EDGES * BLOCKS)
    to, of, grad = to + r * to_run + b.to(tl.int64) * n, of + r * of_run + b.to(tl.int64) * n, grad + g * n * h
    heard, sent = tl.zeros([RS, H], tl.float32), tl.zeros([RS, H], tl.float32)
    for block in range(BLOCKS):
        e = start + block * EDGES + tl.arange(0, EDGES)
        dz = _rows(grad, e, tl.arange(0, H)[None, :], n, h)
        heard, sent = _to_rois(to, of, e, n, dz, heard, sent, RS, EXACT)
    _put_rois(dr, ds, heard, sent, P, h, H, RS)


@triton.jit(do_not_specialize=["B"])
def later(x, k, c, W, bias, keys, out, B, n, p, scale, h: constexpr, H: constexpr, d: constexpr,
          D: constexpr, DROP: constexpr, EXACT: constexpr, EDGES: constexpr, BLOCKS: constexpr):
    """W dropout(relu(k x + c)) + bias; k and c of each graph."""
    g, r, b, start = _here(B, n, EDGES * BLOCKS)
    x, out = x + g * n * h, out + g * n * d
    i, j = tl.arange(0, H)[None, :], tl.arange(0, D)
    k, c = tl.load(k + g * h + i, mask=i < h, other=0.0), tl.load(c + g * h + i, mask=i < h, other=0.0)
    w = _weights(W, r, tl.arange(0, H)[:, None], j[None, :], h, d)
    shift = tl.load(bias + r * d + j, mask=j < d, other=0.0)
    for block in range(BLOCKS):
        e = start + block * EDGES + tl.arange(0, EDGES)
        z = _rows(x, e, i, n, h) * k + c
        kept = _kept(e, i, b, n, keys, r, p, scale, h) if DROP else z
        _answer(z, w, shift, out, kept, e, n, d, D, DROP, EXACT)


@triton.jit(do_not_specialize=["B"])
def later_backward(grad, x, k, c, W, keys, dx, dkc, sums, B, n, p, scale, h: constexpr, H: constexpr, d: constexpr,
                   D: constexpr, DROP: constexpr, EXACT: constexpr, EDGES: constexpr, BLOCKS: constexpr):
    """The gradient of x, and the program's part in those of k and c [2, h], of W and of the bias."""
    g, r, b, start = _here(B, n, EDGES * BLOCKS)
    x, dx, grad = x + g * n * h, dx + g * n * h, grad + g * n * d
    i, j = tl.arange(0, H)[None, :], tl.arange(0, D)[None, :]
    k, c = tl.load(k + g * h + i, mask=i < h, other=0.0), tl.load(c + g * h + i, mask=i < h, other=0.0)
    w = _weights(W, r, i, tl.arange(0, D)[:, None], h, d)
    dW, db = tl.zeros([D, H], tl.float32), tl.zeros([D], tl.float32)
    dk, dc = tl.zeros([H], tl.float32), tl.zeros([H], tl.float32)
    for block in range(BLOCKS):
        e = start + block * EDGES + tl.arange(0, EDGES)
        value = _rows(x, e, i, n, h)
        z = value * k + c
        kept = _kept(e, i, b, n, keys, r, p, scale, h) if DROP else z
        dz, dW, db = _return(z, _rows(grad, e, j, n, d), w, dW, db, kept, DROP, EXACT)
        dk, dc = dk + tl.sum(dz * value, 0), dc + tl.sum(dz, 0)
        tl.store(dx + e[:, None] * h + i, dz * k, mask=(e < n)[:, None] & (i < h))
    _put_sums(dW, db, sums, h, H, d, D)
    dkc += tl.program_id(0).to(tl.int64) * 2 * h + tl.arange(0, H)
    tl.store(dkc, dk, mask=tl.arange(0, H) < h)
    tl.store(dkc + h, dc, mask=tl.arange(0, H) < h)


@triton.jit
def moments(x, real, out, n, h: constexpr, H: constexpr, EDGES: constexpr):
    """Of a block of edges, those that are real: sum of x, and of squares around their mean. Shape [2, h]."""
    g, _, _, start = _here(1, n, EDGES)
    e, i = start + tl.arange(0, EDGES), tl.arange(0, H)
    weight = tl.load(real + g * n + e, mask=e < n, other=0.0)
    value = _rows(x + g * n * h, e, i[None, :], n, h)
    total = tl.sum(value * weight[:, None], 0)
    centred = value - (total / tl.maximum(tl.sum(weight, 0), 1.0))[None, :]
    out += tl.program_id(0).to(tl.int64) * 2 * h + i
    tl.store(out, total, mask=i < h)
    tl.store(out + h, tl.sum(centred * centred * weight[:, None], 0), mask=i < h)


@triton.jit
def moments_backward(x, real, k, c, dx, n, h: constexpr, H: constexpr, EDGES: constexpr):
    """(k x + c) where edges are real, else 0; k and c of each graph."""
    g, _, _, start = _here(1, n, EDGES)
    e, i = start + tl.arange(0, EDGES), tl.arange(0, H)[None, :]
    weight = tl.load(real + g * n + e, mask=e < n, other=0.0)
    k, c = tl.load(k + g * h + i, mask=i < h, other=0.0), tl.load(c + g * h + i, mask=i < h, other=0.0)
    value = (_rows(x + g * n * h, e, i, n, h) * k + c) * weight[:, None]
    tl.store(dx + g * n * h + e[:, None] * h + i, value, mask=(e < n)[:, None] & (i < h))
