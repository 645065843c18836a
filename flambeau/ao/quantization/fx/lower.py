"""Quantized layers in place of float ones between dequantize and quantize.

In the reference form each quantized call reads `dequantize()` nodes and is read by a `quantize_per_tensor`. Here
- a layer with a quantized form becomes that module, on quantized tensors;
- sums, products and joins become functions of quantized tensors with the grid of the result;
- calls that keep the grid of their input read the quantized tensor itself.
What is left stays as it is: it computes in floating point between the pair.
"""

from __future__ import annotations

import operator
from typing import Any

import flambeau as fl
from flambeau.ao.nn import quantized
from flambeau.ao.nn.quantized import functional
from flambeau.ao.quantization.fx.annotate import _is_relu
from flambeau.ao.quantization.graphs.fold import attribute_of
from flambeau.ao.quantization.graphs.reference import OBSERVER
from flambeau.ao.quantization.quantization_mappings import (
    DEFAULT_STATIC_QUANT_MODULE_MAPPINGS,
    get_default_dynamic_quant_module_mappings,
)
from flambeau.fx import GraphModule, Node
from flambeau.ops import tags

__all__ = ["lower", "swap_dynamic"]

_BINARY: dict[Any, Any] = {
    operator.add: functional.add, operator.iadd: functional.add, operator.mul: functional.mul, operator.imul: functional.mul,
    fl.matmul: functional.matmul, operator.matmul: functional.matmul,
}  # fmt: skip
for _function, _own in ((fl.add, functional.add), (fl.mul, functional.mul)):
    _BINARY.update(dict.fromkeys((_function, _function.__name__, f"{_function.__name__}_"), _own))


def _is_dequantize(node: Any) -> bool:
    return isinstance(node, Node) and node.op == "call_method" and node.target == "dequantize"


def _is_quantize(node: Any) -> bool:
    return isinstance(node, Node) and node.op == "call_function" and node.target is fl.quantize_per_tensor


def _quantized_form(node: Node) -> Node | None:
    """The quantize node that alone reads a node."""
    reader = next(iter(node.users)) if len(node.users) == 1 else None
    return reader if _is_quantize(reader) else None


def lower(model: GraphModule) -> None:
    """Replaces what has a quantized form, in place."""
    modules = dict(model.named_modules(remove_duplicate=False))
    for node in list(model.graph.nodes):
        if node.op == "call_module":
            _lower_module(model, node, modules)
        elif node.op in ("call_function", "call_method"):
            _lower_function(model, node)
    _read_directly(model)
    model.graph.eliminate_dead_code()
    for path in [n for n, _ in model.named_buffers()]:
        used = any(node.op == "get_attr" and node.target == path for node in model.graph.nodes)
        if not used and "." not in path and ("_scale_" in path or "_zero_point_" in path):
            delattr(model, path)
    model.delete_all_unused_submodules()
    model.graph.lint()
    model.recompile()


def _takes_pairs(node: Node) -> list[Node] | None:
    sources = [s for s in node.all_input_nodes if s.op != "get_attr"]
    return sources if sources and all(_is_dequantize(s) for s in sources) else None


def _finish(model: GraphModule, node: Node, result: Node) -> None:
    """The node reads quantized tensors and its result is one."""
    for source in list(node.all_input_nodes):
        if _is_dequantize(source):
            node.replace_input_with(source, source.args[0])
    result.replace_all_uses_with(node, delete_user_cb=lambda user: user is not node)
    model.graph.erase_node(result)


def _lower_module(model: GraphModule, node: Node, modules: dict[str, Any]) -> None:
    module = modules[str(node.target)]
    target = DEFAULT_STATIC_QUANT_MODULE_MAPPINGS.get(type(module))
    result = _quantized_form(node)
    if target is None or result is None or _takes_pairs(node) is None or OBSERVER not in result.meta:
        return
    if not hasattr(module, "qconfig"):
        return
    module.activation_post_process = result.meta[OBSERVER]
    path, _, name = str(node.target).rpartition(".")
    setattr(model.get_submodule(path) if path else model, name, target.from_float(module))
    _finish(model, node, result)


COMPUTES = "computes"  # in a node's meta: the name of the float node that it takes the place of
_LAYERS = {
    fl.nn.functional.linear: quantized.Linear, fl.nn.functional.conv1d: quantized.Conv1d, fl.nn.functional.conv2d: quantized.Conv2d,
    fl.nn.functional.conv3d: quantized.Conv3d,
}  # fmt: skip


def _lower_layer(model: GraphModule, node: Node, result: Node) -> None:
    """A call of a layer's function whose weight is quantized in the graph: a module with that weight."""
    names = ("input", "weight", "bias", "stride", "padding", "dilation", "groups")
    of = {**dict(zip(names, node.args)), **node.kwargs}
    x, weight, bias = of["input"], of["weight"], of.get("bias")
    source = weight.args[0] if _is_dequantize(weight) else None
    fetched = source is not None and all(a.op == "get_attr" for a in source.all_input_nodes)
    if (
        not fetched
        or not _is_dequantize(x)
        or (bias is not None and bias.op != "get_attr")
        or isinstance(of.get("padding"), str)
    ):
        return
    values = [attribute_of(model, str(a.target)) if isinstance(a, Node) else a for a in source.args]  # type: ignore[union-attr]
    held = source.target(*values)  # type: ignore[union-attr]
    kind = _LAYERS[node.target]  # type: ignore[index]
    if kind is quantized.Linear:
        layer = kind(held.shape[1], held.shape[0])
    else:
        groups = of.get("groups", 1)
        settings = {name: of[name] for name in ("stride", "padding", "dilation") if name in of}
        layer = kind(held.shape[1] * groups, held.shape[0], tuple(held.shape[2:]), groups=groups, **settings)
    layer.set_weight_bias(held, None if bias is None else attribute_of(model, str(bias.target)))
    layer._set_grid(result.meta[OBSERVER])
    name = f"{node.name}_layer"
    model.add_submodule(name, layer)
    with model.graph.inserting_before(result):
        new = model.graph.call_module(name, (x,))
    new.meta[COMPUTES] = node.name
    _finish(model, new, result)
    model.graph.erase_node(node)


def _lower_function(model: GraphModule, node: Node) -> None:
    result = _quantized_form(node)
    if result is not None and node.target in _LAYERS and OBSERVER in result.meta:
        _lower_layer(model, node, result)
        return
    if result is None and len(node.users) == 1:  # relu between a sum and its grid
        following = next(iter(node.users))
        if _is_relu(following, model):
            result = _quantized_form(following)
    if result is None:
        return
    if node.target in _BINARY and _takes_pairs(node) is not None and len(node.args) == 2:
        operands = node.args
        relu = result.args[0] is not node
        compute: Any = _BINARY[node.target]
        if relu and compute is not functional.add:
            return
        compute = functional.add_relu if relu else compute
        with model.graph.inserting_before(result):
            new = model.graph.call_function(compute, (*operands, *result.args[1:3]))
        new.meta[COMPUTES] = node.name
        middle = result.args[0]
        _finish(model, new, result)
        if middle is not node:
            model.graph.erase_node(middle)
        model.graph.erase_node(node)


_KEEPING = tags.functions("moves", "chooses", "averages", "dropout") | {fl.relu.__name__, f"{fl.relu.__name__}_"}
_KEEPING_MODULES = (
    fl.nn.MaxPool1d, fl.nn.MaxPool2d, fl.nn.MaxPool3d, fl.nn.AvgPool1d, fl.nn.AvgPool2d, fl.nn.AvgPool3d, fl.nn.AdaptiveAvgPool1d,
    fl.nn.AdaptiveAvgPool2d, fl.nn.AdaptiveAvgPool3d, fl.nn.Identity, fl.nn.ReLU, fl.nn.Flatten, fl.nn.Dropout,
    fl.nn.Sigmoid, fl.nn.Tanh,
)  # fmt: skip


def _read_directly(model: GraphModule) -> None:
    """Calls that work on quantized tensors as on others need no pair around them."""
    modules = dict(model.named_modules(remove_duplicate=False))
    for node in list(model.graph.nodes):
        result = _quantized_form(node) if node.op in ("call_module", "call_function", "call_method") else None
        if result is None or _takes_pairs(node) is None:
            continue
        sources = [s for s in node.all_input_nodes if _is_dequantize(s)]
        if node.op == "call_module":
            module = modules[str(node.target)]
            keeps = isinstance(module, _KEEPING_MODULES) and not (isinstance(module, fl.nn.Dropout) and module.training)
            keeps = keeps and (not isinstance(module, (fl.nn.Sigmoid, fl.nn.Tanh)) or _is_fixed(result))
        else:
            keeps = getattr(node.target, "__name__", node.target) in _KEEPING
        if keeps and len(sources) == 1:
            _finish(model, node, result)
        elif node.target is fl.cat:
            with model.graph.inserting_before(result):
                new = model.graph.call_function(functional.cat, (*node.args[:1], *_cat_dim(node), *result.args[1:3]))
            new.meta[COMPUTES] = node.name
            _finish(model, new, result)
            model.graph.erase_node(node)


def _cat_dim(node: Node) -> tuple[Any]:
    return (node.args[1] if len(node.args) > 1 else node.kwargs.get("dim", 0),)


def _is_fixed(result: Node) -> bool:
    return type(result.meta.get(OBSERVER)).__name__.startswith("FixedQParams")


def swap_dynamic(model: GraphModule) -> None:
    """Layers whose inputs are quantized as they come, and embeddings: by their configuration alone."""
    known = {**get_default_dynamic_quant_module_mappings(), **{
        kind: target for kind, target in DEFAULT_STATIC_QUANT_MODULE_MAPPINGS.items() if "mbedding" in kind.__name__
    }}  # fmt: skip
    for path, module in list(model.named_modules(remove_duplicate=False)):
        config = getattr(module, "qconfig", None)
        if config is None or type(module) not in known:
            continue
        activation = config.activation()
        if getattr(activation, "is_dynamic", False) or "mbedding" in type(module).__name__:
            owner, _, name = path.rpartition(".")
            setattr(model.get_submodule(owner) if owner else model, name, known[type(module)].from_float(module))
