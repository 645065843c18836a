"""The cases of `cuda_compile.py` as JAX functions under `jit`; ResNet-18 has none.

A case gives a function that starts one step and returns its result, and the bytes that must be moved or None. Parameters of
GPT-2 are bfloat16, as those of the other libraries are. JAX is imported when a case is asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from programs.in_jax import _adamw, _attention, _block, _block_shapes, _cross_entropy, _layer_norm, _random

__all__ = ["CASES"]

Case = tuple[Callable[[], Any], "int | None"]


def _normal(*shape: int, dtype: str = "bfloat16") -> Any:
    import jax

    return jax.random.normal(jax.random.key(len(shape)), shape, "float32").astype(dtype)


def pointwise_chain(rows: int = 8192) -> Case:
    import jax
    import jax.numpy as jnp

    @jax.jit
    def chain(x: Any, y: Any) -> Any:
        z = jax.nn.relu((x + 1) * 2) - jax.nn.sigmoid(y) * jnp.tanh(x)
        return jnp.sqrt(z * z + 0.5) * jnp.exp(-jnp.abs(y))

    x, y = _normal(rows, rows, dtype="float32"), _normal(rows, rows, dtype="float32") + 1
    return lambda: chain(x, y), 3 * 4 * rows * rows


def layer_norm_gelu(rows: int = 16384, width: int = 4096) -> Case:
    import jax

    x, w, b = _normal(rows, width), _normal(width), _normal(width)
    run = jax.jit(lambda x, w, b: jax.nn.gelu(_layer_norm(x, w, b), approximate=False) + x)
    return lambda: run(x, w, b), 2 * 2 * rows * width


def softmax(rows: int = 16384, width: int = 8192) -> Case:
    import jax

    x = _normal(rows, width)
    run = jax.jit(lambda x: jax.nn.softmax(x, -1))
    return lambda: run(x), 2 * 2 * rows * width


def tiny() -> Case:
    import jax

    x = _normal(8, dtype="float32")
    run = jax.jit(lambda x: jax.nn.relu(x + 1) * 2)
    return lambda: run(x), None


def attention(batch: int = 8, length: int = 1024) -> Case:
    import jax

    q, k, v = (_normal(batch, length, 12, 64) for _ in range(3))
    g = _normal(batch, length, 12, 64)

    @jax.jit
    def run(q: Any, k: Any, v: Any, g: Any) -> Any:
        _, backward = jax.vjp(lambda q, k, v: _attention(q, k, v, True), q, k, v)
        return backward(g)

    return lambda: run(q, k, v, g), None


def _gpt2_shapes(layers: int, width: int, words: int) -> Any:
    return {
        "words": (words, width), "places": (1024, width), "norm": (width,), "norm_bias": (width,),
        "blocks": [_block_shapes(width) for _ in range(layers)],
    }  # fmt: skip


def _gpt2(parameters: Any, ids: Any, heads: int) -> Any:
    x = parameters["words"][ids] + parameters["places"][: ids.shape[1]]
    for block in parameters["blocks"]:
        x = _block(x, block, heads, True, True)
    return _layer_norm(x, parameters["norm"], parameters["norm_bias"]) @ parameters["words"].T


def gpt2_infer(layers: int = 12, width: int = 768, heads: int = 12, words: int = 50257) -> Case:
    import jax

    parameters = _random(_gpt2_shapes(layers, width, words), "bfloat16")
    ids = jax.random.randint(jax.random.key(1), (1, 128), 0, words)
    run = jax.jit(partial(_gpt2, heads=heads))
    return lambda: run(parameters, ids), None


def gpt2_train(layers: int = 12, width: int = 768, heads: int = 12, words: int = 50257, batch: int = 8) -> Case:
    import jax
    import jax.numpy as jnp

    parameters = _random(_gpt2_shapes(layers, width, words), "bfloat16")
    zeros = [jax.tree.map(jnp.zeros_like, parameters) for _ in range(2)]
    held: list[Any] = [parameters, (*zeros, jnp.zeros((), jnp.float32))]
    ids = jax.random.randint(jax.random.key(1), (batch, 1025), 0, words)

    @partial(jax.jit, donate_argnums=(0, 1))
    def step(parameters: Any, state: Any, ids: Any) -> Any:
        def loss(p: Any) -> Any:
            return _cross_entropy(_gpt2(p, ids[:, :-1], heads), ids[:, 1:])

        value, gradients = jax.value_and_grad(loss)(parameters)
        updated, state = _adamw(parameters, gradients, state)
        return jax.tree.map(lambda p: p.astype("bfloat16"), updated), _in_half(state), value

    def run() -> Any:
        held[0], held[1], value = step(held[0], held[1], ids)
        return value

    return run, None


def _in_half(state: Any) -> Any:
    import jax

    first, second, count = state
    return *(jax.tree.map(lambda t: t.astype("bfloat16"), part) for part in (first, second)), count


CASES: dict[str, Callable[[], Case]] = {
    "pointwise chain 8192x8192": pointwise_chain,
    "layer norm + gelu 16384x4096 bf16": layer_norm_gelu,
    "softmax 16384x8192 bf16": softmax,
    "tiny": tiny,
    "attention 8x12x1024x64 bf16, forward and backward": attention,
    "GPT-2 small inference 1x128": gpt2_infer,
    "GPT-2 small train step 8x1024 bf16": gpt2_train,
}
