"""What is known before a graph runs, computed once: batch norms in convolutions, quantized weights."""

from __future__ import annotations

from typing import Any

import flambeau as fl
from flambeau.fx import GraphModule, Node
from flambeau.nn.utils.fusion import fuse_conv_bn_weights
from flambeau.ops import tags

__all__ = ["attribute_of", "fold_batch_norms", "fold_quantized_constants", "is_call", "is_tagged", "set_attribute"]


def is_call(node: Any, *names: str) -> bool:
    """Whether a node calls one of ATen's operators, by their full names."""
    return isinstance(node, Node) and node.op == "call_function" and getattr(node.target, "_full_name", None) in names


def is_tagged(node: Any, *names: str) -> bool:
    """Whether a node calls an operator whose record has one of the tags, or the form of it that writes in place."""
    if not isinstance(node, Node) or node.op != "call_function":
        return False
    name = getattr(node.target, "_full_name", "")
    base, dot, overload = name.partition(".")
    tagged = tags.operators(*names)
    return name in tagged or f"{base.removesuffix('_')}{dot}{overload}" in tagged


def attribute_of(model: GraphModule, path: str) -> Any:
    """A tensor of a module by its path."""
    value: Any = model
    for part in path.split("."):
        value = getattr(value, part)
    return value


def set_attribute(model: GraphModule, path: str, value: Any) -> None:
    """Replaces a tensor of a module; parameters stay parameters."""
    owner_path, _, name = path.rpartition(".")
    owner: Any = model.get_submodule(owner_path) if owner_path else model
    if name in owner._parameters and value.is_floating_point():
        owner._parameters[name] = fl.nn.Parameter(value.detach(), requires_grad=False)
    else:
        owner._parameters.pop(name, None)
        owner._buffers.pop(name, None)
        owner.__dict__.pop(name, None)
        owner.register_buffer(name, value.detach())


def _constant(model: GraphModule, node: Any) -> Any:
    """The tensor of a node that fetches one."""
    return attribute_of(model, str(node.target)) if isinstance(node, Node) and node.op == "get_attr" else None


def fold_batch_norms(model: GraphModule) -> None:
    """Batch norms in evaluation behind convolutions become part of their weights."""
    for norm in list(model.graph.nodes):
        if not is_call(norm, "batch_norm") or norm.args[5] is True:
            continue
        conv = norm.args[0]
        if not is_call(conv, *tags.operators("convolution")) or len(conv.users) != 1 or conv.args[1].op != "get_attr":
            continue
        weight, bias = (_constant(model, argument) for argument in (*conv.args, None)[1:3])
        gain, shift, mean, variance = (_constant(model, argument) for argument in norm.args[1:5])
        transposed = "transpose" in conv.target._full_name
        folded, offset = fuse_conv_bn_weights(weight, bias, mean, variance, norm.args[7], gain, shift, transposed)
        path = str(conv.args[1].target)
        set_attribute(model, path, folded)
        bias_path = f"{path}_bias" if bias is None else str(conv.args[2].target)
        set_attribute(model, bias_path, offset)
        if bias is None:
            with model.graph.inserting_before(conv):
                fetched = model.graph.get_attr(bias_path)
                fetched.meta["val"] = norm.meta.get("val")
            conv.args = (*conv.args[:2], fetched, *conv.args[3:])
        norm.replace_all_uses_with(conv)
        model.graph.erase_node(norm)
    _clean(model)


QUANTIZE = ("quantized_decomposed::quantize_per_tensor", "quantized_decomposed::quantize_per_channel")


def fold_quantized_constants(model: GraphModule) -> None:
    """Weights that are quantized in the graph are kept quantized."""
    number = 0
    constant = _constant_nodes(model)
    for node in list(model.graph.nodes):
        if not is_call(node, *QUANTIZE) or node.args[0] not in constant:
            continue
        value = _constant_value(model, node.args[0])
        arguments = [_constant(model, a) if isinstance(a, Node) else a for a in node.args[1:]]
        with fl.no_grad():
            integers = node.target(value, *arguments)  # type: ignore[operator]
        while hasattr(model, f"_frozen_param{number}"):
            number += 1
        model.register_buffer(f"_frozen_param{number}", integers)
        with model.graph.inserting_before(node):
            fetched = model.graph.get_attr(f"_frozen_param{number}")
        fetched.meta.update({k: v for k, v in node.meta.items() if k == "val"})
        node.replace_all_uses_with(fetched)
        model.graph.erase_node(node)
    _clean(model)


def _constant_nodes(model: GraphModule) -> set[Node]:
    """Tensors of the module, and what is computed from them alone: a transposed weight, for one."""
    constant: set[Node] = set()
    for node in model.graph.nodes:
        inputs = node.all_input_nodes
        is_computed = node.op == "call_function" and inputs and constant.issuperset(inputs)
        if is_computed or (node.op == "get_attr" and _constant(model, node) is not None):
            constant.add(node)
    return constant


def _constant_value(model: GraphModule, node: Node) -> Any:
    """What a constant node stands for."""
    if node.op == "get_attr":
        return _constant(model, node)
    from flambeau.fx.node import map_arg

    values = {source: _constant_value(model, source) for source in node.all_input_nodes}
    with fl.no_grad():
        return node.target(*map_arg(node.args, values.__getitem__), **map_arg(node.kwargs, values.__getitem__))  # type: ignore[operator]


def _clean(model: GraphModule) -> None:
    model.graph.eliminate_dead_code()
    used = {str(node.target) for node in model.graph.nodes if node.op == "get_attr"}
    tensors = (model.named_parameters(remove_duplicate=False), model.named_buffers(remove_duplicate=False))
    for path in [path for named in tensors for path, _ in named]:
        inside = any(node.op == "call_module" and path.startswith(f"{node.target}.") for node in model.graph.nodes)
        if path not in used and not inside:
            owner, _, name = path.rpartition(".")
            place = model.get_submodule(owner) if owner else model
            place._parameters.pop(name, None)
            place._buffers.pop(name, None)
    model.graph.lint()
    model.recompile()
