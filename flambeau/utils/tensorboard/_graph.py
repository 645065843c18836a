"""A picture of a model for the graphs page: its modules in the order they ran, joined where one's result went into
the next."""

from __future__ import annotations

from typing import Any

import flambeau
from flambeau._C import Tensor
from flambeau.utils.tensorboard import _wire


def _tensors(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return [tensor for item in value for tensor in _tensors(item)]
    return []


def graph(model: Any, args: Any) -> bytes:
    """The bytes of a GraphDef, from one run of the model."""
    args = args if isinstance(args, (list, tuple)) else (args,)
    names = {module: name or type(model).__name__ for name, module in model.named_modules()}
    root = type(model).__name__
    nodes: list[tuple[str, str, list[str], Any]] = []
    source: dict[int, str] = {}
    alive: list[Any] = []  # ids stay unique while the tensors live
    for i, tensor in enumerate(_tensors(args)):
        nodes.append((f"input/{i}", "Input", [], tuple(tensor.shape)))
        source[id(tensor)] = f"input/{i}"
        alive.append(tensor)
    last = [nodes[-1][0]] if nodes else []

    def note(module: Any, inputs: Any, output: Any) -> None:
        if next(module.children(), None) is not None:
            for tensor in _tensors(output):
                alive.append(tensor)
            return
        name = f"{root}/{names[module].replace('.', '/')}"
        count = sum(1 for known, *_ in nodes if known == name or known.startswith(f"{name}_"))
        name = f"{name}_{count}" if count else name
        sources = [source[id(t)] for t in _tensors(inputs) if id(t) in source] or list(last)
        outputs = _tensors(output)
        nodes.append((name, type(module).__name__, sources, tuple(outputs[0].shape) if outputs else ()))
        for tensor in outputs:
            source[id(tensor)] = name
            alive.append(tensor)
        last[:] = [name]

    handles = [module.register_forward_hook(note) for module in model.modules()]
    try:
        with flambeau.no_grad():
            result = model(*args)
    finally:
        for handle in handles:
            handle.remove()
    for i, tensor in enumerate(_tensors(result)):
        nodes.append((f"output/{i}", "Output", [source.get(id(tensor), last[0] if last else "")], tuple(tensor.shape)))
    out = b""
    for name, kind, inputs, shape in nodes:
        dims = b"".join(_wire.data(2, _wire.integer(1, n)) for n in shape)
        shapes = _wire.data(1, _wire.data(7, dims))
        attribute = _wire.data(1, "_output_shapes") + _wire.data(2, shapes)
        body = _wire.data(1, name) + _wire.data(2, kind) + b"".join(_wire.data(3, i) for i in inputs if i)
        out += _wire.data(1, body + _wire.data(5, attribute))
    return out + _wire.data(4, _wire.integer(1, 22))
