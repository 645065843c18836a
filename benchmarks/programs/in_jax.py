"""The Llama-style programs, GPT-2 medium and ViT as JAX functions: whole training steps and decoding under `jit`.

The sizes, dtypes and updates are those of the programs beside this file. JAX is imported when a program is asked for.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

__all__ = ["NAMES", "prepared"]

NAMES = ("llama train", "llama inference", "llama decode", "vit", "gpt2 medium")


def _attention(q: Any, k: Any, v: Any, causal: bool) -> Any:
    """(batch, length, heads, depth); query heads may share key heads."""
    import jax

    try:
        return jax.nn.dot_product_attention(q, k, v, is_causal=causal, implementation="cudnn")
    except (RuntimeError, ValueError, NotImplementedError):
        return jax.nn.dot_product_attention(q, k, v, is_causal=causal)


def _random(shapes: Any, dtype: Any) -> Any:
    """Normal numbers of a fiftieth for each shape of a tree."""
    import jax
    import jax.numpy as jnp

    leaves, tree = jax.tree.flatten(shapes, is_leaf=lambda x: isinstance(x, tuple))
    keys = jax.random.split(jax.random.key(0), len(leaves))
    drawn = [(jax.random.normal(k, s, jnp.float32) * 0.02 + (len(s) == 1)).astype(dtype) for k, s in zip(keys, leaves)]
    return jax.tree.unflatten(tree, drawn)


def _adamw(parameters: Any, gradients: Any, state: Any) -> tuple[Any, Any]:
    import jax
    import jax.numpy as jnp

    first, second, count = state
    count = count + 1
    first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, gradients)
    second = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, second, gradients)
    rate = 1e-4 / (1 - 0.9**count)
    root = jnp.sqrt(1 - 0.999**count)
    parameters = jax.tree.map(
        lambda p, m, v: p * (1 - 1e-6) - rate * m / (jnp.sqrt(v) / root + 1e-8), parameters, first, second
    )
    return parameters, (first, second, count)


def _training(loss: Callable[..., Any], shapes: Any, inputs: tuple[Any, ...]) -> Callable[[], Any]:
    """A step that keeps its parameters and the optimizer's state between calls, in place."""
    import jax
    import jax.numpy as jnp

    parameters = _random(shapes, jnp.float32)
    zeros = jax.tree.map(jnp.zeros_like, parameters)
    held = [parameters, (zeros, jax.tree.map(jnp.zeros_like, parameters), jnp.zeros((), jnp.float32))]

    @partial(jax.jit, donate_argnums=(0, 1))
    def step(parameters: Any, state: Any, *inputs: Any) -> Any:
        value, gradients = jax.value_and_grad(loss)(parameters, *inputs)
        parameters, state = _adamw(parameters, gradients, state)
        return parameters, state, value

    def run() -> Any:
        held[0], held[1], value = step(held[0], held[1], *inputs)
        return value.block_until_ready()

    return run


def _cross_entropy(scores: Any, labels: Any) -> Any:
    import jax
    import jax.numpy as jnp

    scores = scores.astype(jnp.float32)
    return (jax.nn.logsumexp(scores, -1) - jnp.take_along_axis(scores, labels[..., None], -1)[..., 0]).mean()


def _layer_norm(x: Any, weight: Any, bias: Any) -> Any:
    import jax
    import jax.numpy as jnp

    wide = x.astype(jnp.float32)
    mean = wide.mean(-1, keepdims=True)
    scale = jax.lax.rsqrt(((wide - mean) ** 2).mean(-1, keepdims=True) + 1e-5)
    return ((wide - mean) * scale * weight + bias).astype(jnp.bfloat16)


# ---------------------------------------------------------------- Llama

LAYERS, WIDTH, HEADS, GROUPS, HIDDEN, WORDS = 12, 1024, 16, 4, 2816, 32000
DEPTH = WIDTH // HEADS


def _llama_shapes() -> Any:
    block = {
        "first": (WIDTH,), "second": (WIDTH,), "query": (WIDTH, WIDTH), "key": (WIDTH, GROUPS * DEPTH),
        "value": (WIDTH, GROUPS * DEPTH), "join": (WIDTH, WIDTH), "gate": (WIDTH, HIDDEN), "up": (WIDTH, HIDDEN),
        "down": (HIDDEN, WIDTH),
    }  # fmt: skip
    return {"words": (WORDS, WIDTH), "norm": (WIDTH,), "head": (WIDTH, WORDS), "blocks": [block for _ in range(LAYERS)]}


def _llama(parameters: Any, ids: Any, caches: Any = None, position: Any = None) -> Any:
    """Scores, and the caches after this call."""
    import jax
    import jax.numpy as jnp

    half = jnp.bfloat16

    def norm(x: Any, weight: Any) -> Any:
        wide = x.astype(jnp.float32)
        return (wide * jax.lax.rsqrt((wide * wide).mean(-1, keepdims=True) + 1e-5)).astype(half) * weight.astype(half)

    def rotate(x: Any) -> Any:
        one, two = jnp.split(x.astype(jnp.float32), 2, -1)
        return jnp.concatenate((one * cos - two * sin, two * cos + one * sin), -1).astype(half)

    batch, length = ids.shape
    places = jnp.arange(length) if position is None else position[None]
    angles = jnp.outer(places.astype(jnp.float32), 10000.0 ** (-jnp.arange(0, DEPTH, 2) / DEPTH))[:, None]
    cos, sin = jnp.cos(angles), jnp.sin(angles)
    x = parameters["words"].astype(half)[ids]
    after = []
    for i, block in enumerate(parameters["blocks"]):
        p = {k: w.astype(half) for k, w in block.items()}
        y = norm(x, p["first"])
        q = rotate((y @ p["query"]).reshape(batch, length, HEADS, DEPTH))
        k = rotate((y @ p["key"]).reshape(batch, length, GROUPS, DEPTH))
        v = (y @ p["value"]).reshape(batch, length, GROUPS, DEPTH)
        if caches is None:
            mixed = _attention(q, k, v, True)
        else:
            k = jax.lax.dynamic_update_slice(caches[i][0], k, (0, position, 0, 0))
            v = jax.lax.dynamic_update_slice(caches[i][1], v, (0, position, 0, 0))
            after.append((k, v))
            seen = (jnp.arange(k.shape[1]) <= position)[None, None, None]
            mixed = jax.nn.dot_product_attention(q, k, v, mask=seen)
        x = x + mixed.reshape(batch, length, WIDTH) @ p["join"]
        y = norm(x, p["second"])
        x = x + (jax.nn.silu(y @ p["gate"]) * (y @ p["up"])) @ p["down"]
    return norm(x, parameters["norm"]) @ parameters["head"].astype(half), after


def _llama_step(name: str) -> Callable[[], Any]:
    import jax
    import jax.numpy as jnp

    if name == "llama train":
        ids = jax.random.randint(jax.random.key(1), (4, 1025), 0, WORDS)
        return _training(lambda p, ids: _cross_entropy(_llama(p, ids[:, :-1])[0], ids[:, 1:]), _llama_shapes(), (ids,))
    parameters = _random(_llama_shapes(), jnp.bfloat16)
    if name == "llama inference":
        ids = jax.random.randint(jax.random.key(1), (1, 256), 0, WORDS)
        scores = jax.jit(lambda p, ids: _llama(p, ids)[0])
        return lambda: scores(parameters, ids).block_until_ready()
    shape = (1, 1024, GROUPS, DEPTH)
    held = [[(jnp.ones(shape, jnp.bfloat16), jnp.ones(shape, jnp.bfloat16)) for _ in range(LAYERS)]]
    ids, position = jnp.zeros((1, 1), jnp.int32), jnp.asarray(1016)

    @partial(jax.jit, donate_argnums=(1,))
    def decode(parameters: Any, caches: Any, ids: Any, position: Any) -> Any:
        scores, caches = _llama(parameters, ids, caches, position)
        return scores[:, -1].argmax(-1), caches

    def run() -> Any:
        word, held[0] = decode(parameters, held[0], ids, position)
        return word.block_until_ready()

    return run


# ---------------------------------------------------------------- ViT and GPT-2


def _block_shapes(width: int) -> Any:
    return {
        "first": (width,), "first_bias": (width,), "second": (width,), "second_bias": (width,),
        "attend": (width, 3 * width), "attend_bias": (3 * width,), "join": (width, width), "join_bias": (width,),
        "up": (width, 4 * width), "up_bias": (4 * width,), "down": (4 * width, width), "down_bias": (width,),
    }  # fmt: skip


def _block(x: Any, block: Any, heads: int, causal: bool, approximate: bool) -> Any:
    import jax
    import jax.numpy as jnp

    batch, length, width = x.shape
    p = {k: w.astype(jnp.bfloat16) for k, w in block.items()}
    y = _layer_norm(x, block["first"], block["first_bias"])
    parts = (y @ p["attend"] + p["attend_bias"]).reshape(batch, length, 3, heads, width // heads)
    mixed = _attention(parts[:, :, 0], parts[:, :, 1], parts[:, :, 2], causal).reshape(batch, length, width)
    x = x + mixed @ p["join"] + p["join_bias"]
    y = _layer_norm(x, block["second"], block["second_bias"])
    return x + jax.nn.gelu(y @ p["up"] + p["up_bias"], approximate=approximate) @ p["down"] + p["down_bias"]


def _vit_step() -> Callable[[], Any]:
    import jax
    import jax.numpy as jnp

    width, patch, batch = 768, 16, 64
    shapes = {
        "patches": (3 * patch * patch, width), "bias": (width,), "places": (196, width), "norm": (width,),
        "norm_bias": (width,), "head": (width, 1000), "head_bias": (1000,),
        "blocks": [_block_shapes(width) for _ in range(12)],
    }  # fmt: skip

    def loss(p: Any, images: Any, labels: Any) -> Any:
        x = images.reshape(batch, 3, 14, patch, 14, patch).transpose(0, 2, 4, 1, 3, 5).reshape(batch, 196, -1)
        x = x.astype(jnp.bfloat16) @ p["patches"].astype(jnp.bfloat16) + p["bias"].astype(jnp.bfloat16)
        x = x + p["places"].astype(jnp.bfloat16)
        for block in p["blocks"]:
            x = _block(x, block, 12, False, False)
        x = _layer_norm(x, p["norm"], p["norm_bias"]).mean(1)
        return _cross_entropy(x @ p["head"].astype(jnp.bfloat16) + p["head_bias"].astype(jnp.bfloat16), labels)

    images = jax.random.normal(jax.random.key(1), (batch, 3, 224, 224))
    return _training(loss, shapes, (images, jax.random.randint(jax.random.key(2), (batch,), 0, 1000)))


def _gpt2_step() -> Callable[[], Any]:
    import jax
    import jax.numpy as jnp

    width, words = 1024, 50257
    shapes = {
        "words": (words, width), "places": (1024, width), "norm": (width,), "norm_bias": (width,),
        "blocks": [_block_shapes(width) for _ in range(24)],
    }  # fmt: skip

    def loss(p: Any, ids: Any) -> Any:
        words = p["words"].astype(jnp.bfloat16)
        x = words[ids[:, :-1]] + p["places"].astype(jnp.bfloat16)
        for block in p["blocks"]:
            x = _block(x, block, 16, True, True)
        return _cross_entropy(_layer_norm(x, p["norm"], p["norm_bias"]) @ words.T, ids[:, 1:])

    return _training(loss, shapes, (jax.random.randint(jax.random.key(1), (4, 1025), 0, words),))


def prepared(name: str) -> tuple[Callable[[], Any], dict[str, Any]]:
    """A step that has run, and what its first call took."""
    import jax

    step = _llama_step(name) if name.startswith("llama") else _vit_step() if name == "vit" else _gpt2_step()
    start = time.perf_counter()
    step()
    first = time.perf_counter() - start
    for _ in range(2):
        step()
    stats = jax.devices()[0].memory_stats() or {}
    return step, {"first call, s": first, "GB": stats.get("peak_bytes_in_use", 0) / 1e9}
