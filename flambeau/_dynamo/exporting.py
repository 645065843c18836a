"""`_dynamo.export`: a function as one graph module that takes the function's arguments.

`flambeau.export` makes programs that are checked, saved and deployed; this is the older way, for tools that only want the
graph. Tensors that the function reads besides its arguments become attributes of the graph module.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import flambeau as fl
from flambeau._dynamo import config
from flambeau._dynamo.full_graph import FullGraph, capture_full_graph
from flambeau._dynamo.traced import TracedTensor
from flambeau.fx.graph import Graph, _PyTreeCodeGen, _PyTreeInfo
from flambeau.fx.graph_module import GraphModule
from flambeau.fx.node import Node
from flambeau.utils import _pytree as pytree


class ExportResult(NamedTuple):
    """A graph module, and the guards under which it stands for the function: none, because sizes are its own."""

    graph_module: GraphModule
    guards: list[Any]


def export(f: Callable[..., Any], *extra_args: Any, aten_graph: bool = False, **options: Any) -> Any:
    """export(f)(*args, **kwargs): the graph of a call, as a module with the same arguments.

    - f: the function or module; aten_graph: of operators, instead of the functions that were called.

    >>> graph_module, guards = flambeau._dynamo.export(lambda x: x.sin() + 1)(flambeau.zeros(2))
    >>> graph_module(flambeau.zeros(2))
    tensor([1., 1.])
    """
    from flambeau._compat.settings import refuse

    refuse("_dynamo.export", **{name: value for name, value in options.items() if name not in _WITHOUT_EFFECT})

    def inner(*args: Any, **kwargs: Any) -> ExportResult:
        whole = capture_full_graph(f, args, kwargs)
        module = _module(f, whole, args, kwargs)
        if aten_graph:
            # Numbers read from tensors stay in the graph, and sizes where the program asks for that.
            static = options.get("assume_static_by_default", config.assume_static_by_default)
            varies = not static or options.get("tracing_mode") == "symbolic"
            mode = "symbolic" if varies or whole.tracer.builder.sizes.env.stand_ins else "real"
            module = fl.fx.experimental.proxy_tensor.make_fx(module, tracing_mode=mode)(*args, **kwargs)
        return ExportResult(module, [])

    return inner(*extra_args) if extra_args else inner


# How PyTorch finds the same graph.
_WITHOUT_EFFECT = ("tracing_mode", "assume_static_by_default", "same_signature", "disable_constraint_solver")


def _module(f: Any, whole: FullGraph, args: tuple[Any, ...], kwargs: dict[str, Any]) -> GraphModule:
    """The captured graph with placeholders for the leaves of the arguments and attributes for other tensors."""
    leaves, spec = pytree.tree_flatten((args, kwargs))
    root = f if isinstance(f, fl.nn.Module) else fl.nn.Module()
    graph = Graph()
    placeholders = [graph.placeholder(f"arg{i}") for i in range(len(leaves))]
    known: dict[int, Node] = {}
    for leaf, node in zip(leaves, placeholders):
        known.setdefault(id(leaf), node)
    paths = {id(t): path for path, t in (*root.named_parameters(), *root.named_buffers())}
    copies: dict[Node, Node] = {}
    constants = 0
    for traced in whole.tracer.builder.inputs:
        if not isinstance(traced, TracedTensor):
            raise RuntimeError("[_dynamo.export] expected tensors besides plain values, got a number that varies")
        if id(traced.real) not in known:
            path = paths.get(id(traced.real))
            if path is None:
                path, constants = f"_tensor_constant{constants}", constants + 1
                root = root if root is not f else _shell(f)
                setattr(root, path, traced.real)
            known[id(traced.real)] = graph.get_attr(path)
        node = known[id(traced.real)]
        node.meta.update(traced.node.meta)
        copies[traced.node] = node
    for node in whole.module.graph.nodes:
        if node not in copies and node.op != "output":
            copies[node] = graph.node_copy(node, lambda n: copies[n])
            target = str(node.target)
            if node.op == "get_attr" and not hasattr(root, target):
                setattr(root, target, getattr(whole.module, target))
    (output,) = (n for n in whole.module.graph.nodes if n.op == "output")
    graph.output([copies[v] if isinstance(v, Node) else v for v in output.args[0]])
    names = _names(f, args, kwargs)
    graph.set_codegen(_PyTreeCodeGen(_PyTreeInfo(names, spec, whole.spec)))
    return GraphModule(root, graph, type(f).__name__ if isinstance(f, fl.nn.Module) else "GraphModule")


def _shell(module: fl.nn.Module) -> fl.nn.Module:
    """A module with the members of another, to which more can be added."""
    shell = fl.nn.Module()
    for own, members in ((shell._parameters, module._parameters), (shell._buffers, module._buffers)):
        own.update(members)
    shell._modules.update(module._modules)
    return shell


def _names(f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[str]:
    """The parameters that the arguments of a call bind."""
    target = f.forward if isinstance(f, fl.nn.Module) else f
    try:
        parameters = list(inspect.signature(target).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    plain = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    plain += [f"arg_{i}" for i in range(len(plain), len(args))]
    return ["self", *plain[: len(args)], *kwargs]
