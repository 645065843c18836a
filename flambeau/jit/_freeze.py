"""`jit.freeze`: a module's tensors and attributes become constants of its code, and what they settle is computed once."""

from __future__ import annotations

from typing import Any

import flambeau
from flambeau import _C
from flambeau.jit import _types as T
from flambeau.jit._frontend.callables import unique_name
from flambeau.jit._functions import Function
from flambeau.jit._ir import Graph, Node, Value
from flambeau.jit._passes import clean, eliminate_dead_code, fold_branches, inlined
from flambeau.jit._schemas import Argument, Signature


def freeze(mod: Any, preserved: Any, optimize_numerics: bool) -> Any:
    """A copy of a module without parameters, whose methods hold them as constants."""
    from flambeau.jit._modules import RecursiveScriptModule, ScriptModule

    if not isinstance(mod, ScriptModule):
        raise RuntimeError(
            "Freezing expects a ScriptModule as input. Please use torch.jit.script or torch.jit.trace to script your 'nn.Module'."
        )
    if mod.training:
        raise RuntimeError(
            "Freezing is currently only implemented for modules in eval mode. Please call .eval() on your module before freezing."
        )
    preserved_names = set(preserved or ())
    own: T.ClassType = mod.__dict__["_script_type"]
    for name in preserved_names:
        if name not in own.methods and name not in own.attributes:
            raise RuntimeError(f"[freeze] expected names of attributes or methods to preserve, got {name!r}")
    kind = T.ClassType(unique_name(own.name), is_module=True)
    frozen = RecursiveScriptModule(kind)
    methods = [n for n in own.methods if n == "forward" or n in preserved_names]
    graphs = {n: inlined(own.methods[n].ensure().graph) for n in methods}
    assigned = {node.attribute("name") for g in graphs.values() for node in g.walk() if node._kind == "prim::SetAttr"}
    for graph in graphs.values():
        _constants(graph, mod, set(), only="training")
        _simplify(graph)
    mutated = _mutated(graphs.values())
    for name in own.attributes:
        if name in preserved_names or name in assigned or name in mutated:
            _keep(mod, frozen, own, kind, name)
    kind.attributes.setdefault("training", T.BOOL)
    frozen.__dict__["training"] = False
    for name, graph in graphs.items():
        schema = own.methods[name].schema
        graph._param._outputs[0].setType(kind)
        _constants(graph, mod, set(kind.attributes))
        arguments = [Argument("self", kind), *schema.arguments[1:]]
        kind.methods[name] = Function.of_graph(
            f"{kind.name}.{name}", graph, Signature(name, "", arguments, schema.returns)
        )
        _simplify(graph)
    if optimize_numerics:
        run_frozen_optimizations(frozen, True, None)
    return frozen


def _mutated(graphs: Any) -> set[str]:
    """Attributes of the module itself that some operator writes to."""
    mutated = set()
    for graph in graphs:
        for node in graph.walk():
            if node.call is None or not getattr(node.call, "is_mutable", False):
                continue
            for value in node._inputs[:1]:
                path = _path(value, graph)
                if path:
                    mutated.add(path[0])
    return mutated


def _keep(mod: Any, frozen: Any, own: T.ClassType, kind: T.ClassType, name: str) -> None:
    part = own.attributes[name]
    kind.attributes[name] = part
    value = getattr(mod, name)
    if name in own.parameters:
        kind.parameters.add(name)
        frozen._parameters[name] = value
    elif name in own.buffers:
        kind.buffers.add(name)
        frozen._buffers[name] = value
    elif isinstance(part, T.ClassType) and part.is_module:
        frozen._modules[name] = value
    else:
        frozen.__dict__[name] = value


def _path(value: Value, graph: Graph) -> list[str] | None:
    """The attributes that lead from the module to a value."""
    names: list[str] = []
    while value.node()._kind == "prim::GetAttr":
        names.insert(0, value.node().attribute("name"))
        value = value.node()._inputs[0]
    return names if names and graph._param._outputs and value is graph._param._outputs[0] else None


def _constants(graph: Graph, mod: Any, preserved_names: set[str], only: str | None = None) -> None:
    """Replace the attributes that a graph reads, except those kept, by their values."""
    for node in list(graph.walk()):
        if node._kind != "prim::GetAttr":
            continue
        path = _path(node._outputs[0], graph)
        if (
            path is None
            or (path[0] in preserved_names and path[0] != "training")
            or (only is not None and path[-1] != only)
        ):
            continue
        value = mod
        for name in path:
            value = getattr(value, name)
        kind = node._outputs[0].type()
        if isinstance(kind, (T.ClassType, T.InterfaceType)):
            continue
        if isinstance(value, _C.Tensor):
            value = value.detach()
        graph.insert_block, graph.insert_before = node.owner, node  # type: ignore[assignment]
        constant = graph.insertConstant(value, T.NONE if value is None else kind)
        node._outputs[0].replaceAllUsesWith(constant)
    graph.insert_block, graph.insert_before = graph, None


def _simplify(graph: Graph) -> None:
    for _ in range(3):
        _fold_pure(graph)
        fold_branches(graph)
    _drop_dropout(graph)
    clean(graph)


def _fold_pure(graph: Graph) -> None:
    """Refinements of constants are the constants."""
    for node in list(graph.walk()):
        if node._kind in ("prim::unchecked_cast",) and node._inputs[0].node()._kind == "prim::Constant":
            node._outputs[0].replaceAllUsesWith(node._inputs[0])


def _drop_dropout(graph: Graph) -> None:
    for node in list(graph.walk()):
        if "dropout" in node._kind and len(node._inputs) == 3 and node._inputs[2].toIValue() is False:
            node._outputs[0].replaceAllUsesWith(node._inputs[0])
            node.destroy()


def run_frozen_optimizations(mod: Any, optimize_numerics: bool = True, preserved: Any = None) -> None:
    """Fold batch normalisation into the convolutions before it."""
    kind: T.ClassType = mod.__dict__["_script_type"]
    for method in kind.methods.values():
        graph = method.ensure().graph
        if optimize_numerics:
            for node in list(graph.walk()):
                if node._kind == "aten::batch_norm":
                    _fold_batch_norm(graph, node)
            eliminate_dead_code(graph)
        method.forget()


def _tensor(value: Value) -> Any:
    constant = value.toIValue() if value.node()._kind == "prim::Constant" else None
    return constant if isinstance(constant, _C.Tensor) else None


def _used_elsewhere(node: Node) -> bool:
    """Whether the convolution's result is used for more than its number of dimensions."""
    return any(use.user is not node and use.user._kind != "aten::dim" for use in node._inputs[0]._uses)


def _fold_batch_norm(graph: Graph, node: Node) -> None:
    conv = node._inputs[0].node()
    if conv._kind.rstrip("123d") != "aten::conv" or _used_elsewhere(node):
        return
    weight, mean, variance = _tensor(conv._inputs[1]), _tensor(node._inputs[3]), _tensor(node._inputs[4])
    if weight is None or mean is None or variance is None or node._inputs[5].toIValue() is not False:
        return
    bias = _tensor(conv._inputs[2])
    if bias is None and conv._inputs[2].type() != T.NONE:
        return
    gamma, beta, eps = _tensor(node._inputs[1]), _tensor(node._inputs[2]), node._inputs[7].toIValue()
    scale = flambeau.rsqrt(variance + eps)
    scale = scale if gamma is None else scale * gamma
    start = flambeau.zeros_like(mean) if bias is None else bias
    shift = (start - mean) * scale + (flambeau.zeros_like(mean) if beta is None else beta)
    shape = [-1, *([1] * (weight.dim() - 1))]
    graph.insert_block, graph.insert_before = conv.owner, conv  # type: ignore[assignment]
    conv.replaceInput(1, graph.insertConstant((weight * scale.reshape(shape)).detach(), T.TENSOR))
    conv.replaceInput(2, graph.insertConstant(shift.detach(), T.TENSOR))
    graph.insert_block, graph.insert_before = graph, None
    node._outputs[0].replaceAllUsesWith(conv._outputs[0])
    node.destroy()


def optimize_for_inference(mod: Any, other_methods: Any = None) -> Any:
    """The module frozen, with what can be computed before it runs computed."""
    from flambeau.jit._modules import ScriptModule

    if not isinstance(mod, ScriptModule):
        raise RuntimeError(
            "optimize_for_inference expects a ScriptModule as input. Please use torch.jit.script or torch.jit.trace to script your 'nn.Module'."
        )
    if list(mod.parameters()) or list(mod.children()):
        mod = freeze(mod.eval(), other_methods, True)
    run_frozen_optimizations(mod, True, other_methods)
    return mod


__all__ = ["freeze", "optimize_for_inference", "run_frozen_optimizations"]
