"""Activations in float32 for use in kernels. NaN stays NaN, and no argument overflows."""

import triton
import triton.language as tl


@triton.jit
def sigmoid(x):
    """Return the logistic function of `x`."""
    return 1.0 / (1.0 + tl.exp(-x))


@triton.jit
def tanh(x):
    """Return tanh(x). Near 0 the quotient would suffer from cancellation: a polynomial is used."""
    e = tl.exp(-2.0 * tl.abs(x))
    far = (1.0 - e) / (1.0 + e)
    s = x * x
    p = -5.70498872745e-3
    p = p * s + 2.06390887954e-2
    p = p * s - 5.37397155531e-2
    p = p * s + 1.33314422036e-1
    p = p * s - 3.33332819422e-1
    near = p * s * x + x
    return tl.where(tl.abs(x) < 0.625, near, tl.where(x < 0, -far, far))


@triton.jit
def clip(x, bound):
    """Return `x`, limited to the range from -bound to bound; unlike `tl.clamp`, it keeps NaN."""
    x = tl.where(x < -bound, -bound, x)
    return tl.where(x > bound, bound, x)
