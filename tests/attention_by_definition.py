"""Attention and its gradients in NumPy, for the tests of kernels."""

import math

import numpy as np


def attention(q, k, v, g, mask=None, causal=False, scale=None, keep=1, of_bias=False):
    """Output and gradients; q and g have `group` heads for each of k and v. `keep` is what dropout multiplies weights by.
    With `of_bias`: the gradient of the scores that a bias is added to, alone."""
    group = q.shape[1] // k.shape[1]
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    wide_k, wide_v = k.repeat(group, 1), v.repeat(group, 1)
    scores = q @ wide_k.swapaxes(-1, -2) * scale
    if causal:
        scores = np.where(np.tril(np.ones(scores.shape[-2:], bool)), scores, -np.inf)
    if mask is not None:
        scores = np.where(mask, scores, -np.inf) if mask.dtype == bool else scores + mask
    top = scores.max(-1, keepdims=True)
    weights = np.exp(scores - np.where(np.isinf(top), 0, top))
    total = weights.sum(-1, keepdims=True)
    weights /= np.where(total == 0, 1, total)
    out = (weights * keep) @ wide_v
    of_weights = g @ wide_v.swapaxes(-1, -2) * keep
    of_scores = weights * (of_weights - (g * out).sum(-1, keepdims=True)) * scale

    def over_group(x):
        return x.reshape(x.shape[0], k.shape[1], group, *x.shape[2:]).sum(2)

    of_key = over_group(of_scores.swapaxes(-1, -2) @ q)
    if of_bias:
        return of_scores / scale
    return out, of_scores @ wide_k, of_key, over_group((weights * keep).swapaxes(-1, -2) @ g)
