# mypy: disallow-untyped-defs=False
"""Triton kernels of random numbers, and what the kernels of methods share. :mod:`.random_numbers` calls them.

Every tensor is contiguous. Positions in the tensor of one run are 32-bit numbers, places among all runs 64-bit ones.
"""

from __future__ import annotations

import triton
import triton.language as tl

# fmt: off


@triton.jit
def _high(x):
    """The ten leading bits of the mantissa, all that a product of TF32 numbers reads."""
    return (x.to(tl.int32, bitcast=True) & -8192).to(tl.float32, bitcast=True)


@triton.jit
def dot(a, b, c, EXACT: tl.constexpr):
    """a b + c on tensor cores. To be exact, what TF32 leaves out of a and of b is multiplied as well."""
    if EXACT:
        c = tl.dot(a - _high(a), _high(b), c, input_precision="tf32")
        c = tl.dot(_high(a), b - _high(b), c, input_precision="tf32")
        c = tl.dot(_high(a), _high(b), c, input_precision="tf32")
    else:
        c = tl.dot(a, b, c, input_precision="tf32")
    return c


@triton.jit
def pick(a, b, c, EXACT: tl.constexpr):
    """a b + c where a holds zeros and ones, of which TF32 leaves nothing out."""
    if EXACT:
        c = tl.dot(a, b - _high(b), c, input_precision="tf32")
        c = tl.dot(a, _high(b), c, input_precision="tf32")
    else:
        c = tl.dot(a, b, c, input_precision="tf32")
    return c


@triton.jit
def _shifted(h, bits: tl.constexpr):
    """Logical right shift of int32."""
    return (h >> bits) & ((1 << (32 - bits)) - 1)


@triton.jit
def draw(position, first, second):
    """Uniform numbers in (0, 1) for int32 positions and keys, bit for bit those of ``uniform_from_keys``."""
    h = position * -1640531527 + first
    h = (h ^ _shifted(h, 16)) * 2146121005
    h = (h ^ _shifted(h, 15) ^ second) * -2073254261
    h = h ^ _shifted(h, 16)
    return (h >> 9).to(tl.float32) * 1.1920928955078125e-07 + 0.500000059604644775390625  # 2^-23, 0.5 + 2^-24


@triton.jit
def keys_of(keys, r):
    """Both keys of a run."""
    return tl.load(keys + 2 * r), tl.load(keys + 2 * r + 1)


@triton.jit
def uniform(keys, out, n, BLOCK: tl.constexpr):
    """n numbers for each run."""
    blocks = tl.cdiv(n, BLOCK)
    r, at = (tl.program_id(0) // blocks).to(tl.int64), tl.program_id(0) % blocks * BLOCK + tl.arange(0, BLOCK)
    first, second = keys_of(keys, r)
    tl.store(out + r * n + at, draw(at, first, second), mask=at < n)


@triton.jit
def dropout(x, keys, out, n, p, scale, BLOCK: tl.constexpr):
    """n numbers of each run, times zero where a uniform number is below p, else times ``scale``."""
    blocks = tl.cdiv(n, BLOCK)
    r, at = (tl.program_id(0) // blocks).to(tl.int64), tl.program_id(0) % blocks * BLOCK + tl.arange(0, BLOCK)
    first, second = keys_of(keys, r)
    kept = tl.where(draw(at, first, second) >= p, scale, 0.0)
    tl.store(out + r * n + at, tl.load(x + r * n + at, mask=at < n, other=0.0) * kept, mask=at < n)
