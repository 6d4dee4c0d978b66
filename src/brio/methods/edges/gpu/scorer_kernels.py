# mypy: disallow-untyped-defs=False
"""Triton kernels of the MLP that scores edges; :mod:`.scorer` calls them.

Index e counts edges of one graph (n of them), i the numbers of an edge before a linear layer (h of them), j those after
it (d of them). One program works on BLOCKS times EDGES edges of one graph; g is the index of that graph among those of
all runs, r its run and b its index within the run, of B. Blocks need sizes that are powers of two, H for h and D for d;
what is beyond n, h or d is zero.

Gradients of ROIs are sums over the edges that end there. A program adds up its own edges by products with a matrix of
zeros and ones: whether edge e ends in ROI q, for RS ROIs q. The second index of a program says which ROIs. So the order
of every sum is fixed, and the same step gives the same bits; it would not be if programs added to one address.

Every tensor is contiguous, except that runs which see the same scans share one copy of the edges: receiver_stride and
sender_stride are the strides from run to run, or 0. Indices within a graph are 32-bit numbers, those of graphs 64-bit
ones. NaN stays NaN through every ReLU, as in torch.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language import constexpr

from ....training.gpu.random_numbers_kernels import dot, draw, keys_of, pick

# fmt: off


@triton.jit
def _locate(B, n, SIZE: constexpr):
    """The graph of the program, its run, its index within the run, and the first edge of the program."""
    chunks = tl.cdiv(n, SIZE)
    g = (tl.program_id(0) // chunks).to(tl.int64)
    return g, g // B, (g % B).to(tl.int32), tl.program_id(0) % chunks * SIZE


@triton.jit
def _load_edges(x, e, i, n, h: constexpr):
    """Numbers i of edges e."""
    return tl.load(x + e[:, None] * h + i, mask=(e < n)[:, None] & (i < h), other=0.0)


@triton.jit
def _load_rois(end, e, n):
    """The ROIs at one end of edges e."""
    return tl.load(end + e, mask=e < n, other=0).to(tl.int32)


@triton.jit
def _add_ends(rows, receiver, sender, e, i, n, h: constexpr):
    """r[receiver] + s[sender] of edges e."""
    r, s = rows
    u, v = _load_rois(receiver, e, n)[:, None] * h + i, _load_rois(sender, e, n)[:, None] * h + i
    inside = (e < n)[:, None] & (i < h)
    return tl.load(r + u, mask=inside, other=0.0) + tl.load(s + v, mask=inside, other=0.0)


@triton.jit
def _draw_dropout(e, i, b, n, keys, r, p, scale, h: constexpr):
    """The factors of dropout for edges e, drawn as for a tensor [B, n, h]."""
    first, second = keys_of(keys, r)
    return tl.where(draw((b * n + e)[:, None] * h + i, first, second) >= p, scale, 0.0)


@triton.jit
def _store_output(z, W, bias, out, factor, e, n, d: constexpr, D: constexpr, DROP: constexpr, EXACT: constexpr):
    """Store W dropout(relu(z)) + bias of edges e in ``out``. W [H, D] and the bias are in registers."""
    a = tl.where(z <= 0.0, 0.0, z)
    if DROP:
        a *= factor
    y = dot(a, W, tl.zeros([z.shape[0], D], tl.float32), EXACT) + bias[None, :]
    j = tl.arange(0, D)[None, :]
    tl.store(out + e[:, None] * d + j, y, mask=(e < n)[:, None] & (j < d))


@triton.jit
def _layer_backward(z, dy, W, dW, db, factor, DROP: constexpr, EXACT: constexpr):
    """dz from the gradient dy of the output, and the sums dW [D, H] and db with these edges added."""
    a, dz = tl.where(z <= 0.0, 0.0, z), dot(dy, W, tl.zeros(z.shape, tl.float32), EXACT)
    if DROP:
        a *= factor
        dz *= factor
    return tl.where(z <= 0.0, 0.0, dz), dot(tl.trans(dy), a, dW, EXACT), db + tl.sum(dy, 0)


@triton.jit
def _load_weights(W, r, k, j, h: constexpr, d: constexpr):
    """W of a run, [d, h] in memory, at columns k and rows j."""
    return tl.load(W + r * d * h + j * h + k, mask=(k < h) & (j < d), other=0.0)


@triton.jit
def _store_weight_gradients(dW, db, sums, h: constexpr, H: constexpr, d: constexpr, D: constexpr):
    """Store the program's part in the gradients of W and of the bias, as one matrix [d, h + 1]."""
    sums += tl.program_id(0).to(tl.int64) * d * (h + 1)
    i, j = tl.arange(0, H)[None, :], tl.arange(0, D)
    tl.store(sums + j[:, None] * (h + 1) + i, dW, mask=(j < d)[:, None] & (i < h))
    tl.store(sums + j * (h + 1) + h, db, mask=j < d)


@triton.jit
def _add_to_rois(receiver, sender, e, n, dz, received, sent, RS: constexpr, EXACT: constexpr):
    """Sums of dz by receiving and by sending ROI, with edges e added."""
    q = tl.program_id(1) * RS + tl.arange(0, RS)[:, None]
    received = pick((q == _load_rois(receiver, e, n)[None, :]).to(tl.float32), dz, received, EXACT)
    return received, pick((q == _load_rois(sender, e, n)[None, :]).to(tl.float32), dz, sent, EXACT)


@triton.jit
def _store_roi_gradients(dR, dS, received, sent, P, h: constexpr, H: constexpr, RS: constexpr):
    """Store the program's part in the gradients of r and s."""
    q, i = tl.program_id(1) * RS + tl.arange(0, RS)[:, None], tl.arange(0, H)[None, :]
    at, inside = tl.program_id(0).to(tl.int64) * P * h + q * h + i, (q < P) & (i < h)
    tl.store(dR + at, received, mask=inside)
    tl.store(dS + at, sent, mask=inside)


@triton.jit(do_not_specialize=["receiver_stride", "sender_stride", "B", "P"])
def first_layer(R, S, receiver, sender, receiver_stride, sender_stride, W, bias, keys, out, B, P, n, p, scale,
                h: constexpr, H: constexpr, d: constexpr, D: constexpr, DROP: constexpr, EXACT: constexpr,
                EDGES: constexpr, BLOCKS: constexpr):
    """W dropout(relu(R[receiver] + S[sender])) + bias."""
    g, r, b, start = _locate(B, n, EDGES * BLOCKS)
    rows = R + g * P * h, S + g * P * h
    receiver += r * receiver_stride + b.to(tl.int64) * n
    sender += r * sender_stride + b.to(tl.int64) * n
    out = out + g * n * d
    i, j = tl.arange(0, H)[None, :], tl.arange(0, D)
    w = _load_weights(W, r, tl.arange(0, H)[:, None], j[None, :], h, d)
    shift = tl.load(bias + r * d + j, mask=j < d, other=0.0)
    for block in range(BLOCKS):
        e = start + block * EDGES + tl.arange(0, EDGES)
        z = _add_ends(rows, receiver, sender, e, i, n, h)
        factor = _draw_dropout(e, i, b, n, keys, r, p, scale, h) if DROP else z
        _store_output(z, w, shift, out, factor, e, n, d, D, DROP, EXACT)


@triton.jit(do_not_specialize=["receiver_stride", "sender_stride", "B", "P"])
def first_layer_backward(grad, R, S, receiver, sender, receiver_stride, sender_stride, W, keys, dR, dS, sums, B, P, n,
                         p, scale, RS: constexpr, h: constexpr, H: constexpr, d: constexpr, D: constexpr,
                         DROP: constexpr, EXACT: constexpr, EDGES: constexpr, BLOCKS: constexpr):
    """The program's part in the gradients of R and S [P, h], of W and of the bias."""
    g, r, b, start = _locate(B, n, EDGES * BLOCKS)
    rows, grad = (R + g * P * h, S + g * P * h), grad + g * n * d
    receiver += r * receiver_stride + b.to(tl.int64) * n
    sender += r * sender_stride + b.to(tl.int64) * n
    i, j = tl.arange(0, H)[None, :], tl.arange(0, D)[None, :]
    w = _load_weights(W, r, i, tl.arange(0, D)[:, None], h, d)
    dW, db = tl.zeros([D, H], tl.float32), tl.zeros([D], tl.float32)
    received, sent = tl.zeros([RS, H], tl.float32), tl.zeros([RS, H], tl.float32)
    for block in range(BLOCKS):
        e = start + block * EDGES + tl.arange(0, EDGES)
        z = _add_ends(rows, receiver, sender, e, i, n, h)
        factor = _draw_dropout(e, i, b, n, keys, r, p, scale, h) if DROP else z
        dz, dW, db = _layer_backward(z, _load_edges(grad, e, j, n, d), w, dW, db, factor, DROP, EXACT)
        received, sent = _add_to_rois(receiver, sender, e, n, dz, received, sent, RS, EXACT)
    _store_roi_gradients(dR, dS, received, sent, P, h, H, RS)
    if tl.program_id(1) == 0:
        _store_weight_gradients(dW, db, sums, h, H, d, D)


@triton.jit(do_not_specialize=["receiver_stride", "sender_stride", "B", "P"])
def add_ends_backward(grad, receiver, sender, receiver_stride, sender_stride, dR, dS, B, P, n, RS: constexpr,
                      h: constexpr, H: constexpr, EXACT: constexpr, EDGES: constexpr, BLOCKS: constexpr):
    """The program's part in the gradients of R and S [P, h] from those of R[receiver] + S[sender]."""
    g, r, b, start = _locate(B, n, EDGES * BLOCKS)
    receiver += r * receiver_stride + b.to(tl.int64) * n
    sender += r * sender_stride + b.to(tl.int64) * n
    grad = grad + g * n * h
    received, sent = tl.zeros([RS, H], tl.float32), tl.zeros([RS, H], tl.float32)
    for block in range(BLOCKS):
        e = start + block * EDGES + tl.arange(0, EDGES)
        dz = _load_edges(grad, e, tl.arange(0, H)[None, :], n, h)
        received, sent = _add_to_rois(receiver, sender, e, n, dz, received, sent, RS, EXACT)
    _store_roi_gradients(dR, dS, received, sent, P, h, H, RS)


@triton.jit(do_not_specialize=["B"])
def later_layer(x, k, c, W, bias, keys, out, B, n, p, scale, h: constexpr, H: constexpr, d: constexpr,
                D: constexpr, DROP: constexpr, EXACT: constexpr, EDGES: constexpr, BLOCKS: constexpr):
    """W dropout(relu(k x + c)) + bias; k and c of each graph."""
    g, r, b, start = _locate(B, n, EDGES * BLOCKS)
    x, out = x + g * n * h, out + g * n * d
    i, j = tl.arange(0, H)[None, :], tl.arange(0, D)
    k, c = tl.load(k + g * h + i, mask=i < h, other=0.0), tl.load(c + g * h + i, mask=i < h, other=0.0)
    w = _load_weights(W, r, tl.arange(0, H)[:, None], j[None, :], h, d)
    shift = tl.load(bias + r * d + j, mask=j < d, other=0.0)
    for block in range(BLOCKS):
        e = start + block * EDGES + tl.arange(0, EDGES)
        z = _load_edges(x, e, i, n, h) * k + c
        factor = _draw_dropout(e, i, b, n, keys, r, p, scale, h) if DROP else z
        _store_output(z, w, shift, out, factor, e, n, d, D, DROP, EXACT)


@triton.jit(do_not_specialize=["B"])
def later_layer_backward(grad, x, k, c, W, keys, dx, dkc, sums, B, n, p, scale, h: constexpr, H: constexpr,
                         d: constexpr, D: constexpr, DROP: constexpr, EXACT: constexpr, EDGES: constexpr,
                         BLOCKS: constexpr):
    """The gradient of x, and the program's part in those of k and c [2, h], of W and of the bias."""
    g, r, b, start = _locate(B, n, EDGES * BLOCKS)
    x, dx, grad = x + g * n * h, dx + g * n * h, grad + g * n * d
    i, j = tl.arange(0, H)[None, :], tl.arange(0, D)[None, :]
    k, c = tl.load(k + g * h + i, mask=i < h, other=0.0), tl.load(c + g * h + i, mask=i < h, other=0.0)
    w = _load_weights(W, r, i, tl.arange(0, D)[:, None], h, d)
    dW, db = tl.zeros([D, H], tl.float32), tl.zeros([D], tl.float32)
    dk, dc = tl.zeros([H], tl.float32), tl.zeros([H], tl.float32)
    for block in range(BLOCKS):
        e = start + block * EDGES + tl.arange(0, EDGES)
        value = _load_edges(x, e, i, n, h)
        z = value * k + c
        factor = _draw_dropout(e, i, b, n, keys, r, p, scale, h) if DROP else z
        dz, dW, db = _layer_backward(z, _load_edges(grad, e, j, n, d), w, dW, db, factor, DROP, EXACT)
        dk, dc = dk + tl.sum(dz * value, 0), dc + tl.sum(dz, 0)
        tl.store(dx + e[:, None] * h + i, dz * k, mask=(e < n)[:, None] & (i < h))
    _store_weight_gradients(dW, db, sums, h, H, d, D)
    dkc += tl.program_id(0).to(tl.int64) * 2 * h + tl.arange(0, H)
    tl.store(dkc, dk, mask=tl.arange(0, H) < h)
    tl.store(dkc + h, dc, mask=tl.arange(0, H) < h)


@triton.jit
def edge_moments(x, real, out, n, h: constexpr, H: constexpr, EDGES: constexpr):
    """Sum of x over the real edges of a block, and of squares around their mean. Shape [2, h]."""
    g, _, _, start = _locate(1, n, EDGES)
    e, i = start + tl.arange(0, EDGES), tl.arange(0, H)
    weight = tl.load(real + g * n + e, mask=e < n, other=0.0)
    value = _load_edges(x + g * n * h, e, i[None, :], n, h)
    total = tl.sum(value * weight[:, None], 0)
    centred = value - (total / tl.maximum(tl.sum(weight, 0), 1.0))[None, :]
    out += tl.program_id(0).to(tl.int64) * 2 * h + i
    tl.store(out, total, mask=i < h)
    tl.store(out + h, tl.sum(centred * centred * weight[:, None], 0), mask=i < h)


@triton.jit
def edge_moments_backward(x, real, k, c, dx, n, h: constexpr, H: constexpr, EDGES: constexpr):
    """(k x + c) where edges are real, else 0; k and c of each graph."""
    g, _, _, start = _locate(1, n, EDGES)
    e, i = start + tl.arange(0, EDGES), tl.arange(0, H)[None, :]
    weight = tl.load(real + g * n + e, mask=e < n, other=0.0)
    k, c = tl.load(k + g * h + i, mask=i < h, other=0.0), tl.load(c + g * h + i, mask=i < h, other=0.0)
    value = (_load_edges(x + g * n * h, e, i, n, h) * k + c) * weight[:, None]
    tl.store(dx + g * n * h + e[:, None] * h + i, value, mask=(e < n)[:, None] & (i < h))
