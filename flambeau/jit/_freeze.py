"""`jit.freeze`: a module whose parameters and attributes are constants of its code.

What methods write to, what the caller preserves and what leaves the module stay attributes, in modules that hold nothing else; calls of submodules are inlined.
"""

from __future__ import annotations

from typing import Any

from flambeau import _C
from flambeau.jit import _types as T
from flambeau.jit._aliases import AliasDb
from flambeau.jit._evaluate import fold_constants
from flambeau.jit._frontend.callables import unique_name
from flambeau.jit._frozen_operators import fold_operators
from flambeau.jit._functions import Function
from flambeau.jit._ir import Graph, Node, Value
from flambeau.jit._passes import clean, fold_branches, inline_calls, inlined
from flambeau.jit._schemas import Argument, Signature

Path = tuple[str, ...]


def freeze(mod: Any, preserved: Any, optimize_numerics: bool, preserve_parameters: bool = False) -> Any:
    """A copy of a module without parameters, whose methods hold them as constants."""
    from flambeau.jit._modules import ScriptModule

    if not isinstance(mod, ScriptModule):
        raise RuntimeError(
            "Freezing expects a ScriptModule as input. Please use torch.jit.script or torch.jit.trace to script your 'nn.Module'."
        )
    if mod.training and optimize_numerics:
        raise RuntimeError(
            "Freezing is currently only implemented for modules in eval mode. Please call .eval() on your module before freezing."
        )
    frozen = _Freezer(mod, list(preserved or ()), preserve_parameters).module()
    if optimize_numerics:
        run_frozen_optimizations(frozen, True, None)
    return frozen


class _Freezer:
    """One module that is frozen: the methods and attributes that stay, by their paths."""

    def __init__(self, mod: Any, preserved: list[str], parameters: bool) -> None:
        self.mod = mod
        self.graphs: dict[Path, Graph] = {}  # of the methods that stay, by the path of module and name
        self.kept: set[Path] = set()
        self.kinds: dict[Path, T.ClassType] = {}
        own: T.ClassType = mod.__dict__["_script_type"]
        for path in [("forward",)] if "forward" in own.methods else []:
            self.graphs[path] = self._whole(path)
        for name in preserved:
            self._preserve(tuple(name.split(".")), name)
        if parameters:
            self.kept |= {tuple(name.split(".")) for name, _ in mod.named_parameters()}
        for path, graph in self.graphs.items():  # type: ignore[assignment]
            self._constants(path, graph, only="training")
            _simplify(graph)
        for path, graph in self.graphs.items():  # type: ignore[assignment]
            self._keep_what_is_written(path, graph)

    def _owner(self, path: Path) -> Any:
        owner = self.mod
        for name in path:
            owner = getattr(owner, name)
        return owner

    def _preserve(self, path: Path, text: str) -> None:
        try:
            kind = self._owner(path[:-1]).__dict__["_script_type"]
        except (AttributeError, KeyError):
            kind = None
        if kind is None or (path[-1] not in kind.methods and path[-1] not in kind.attributes):
            raise RuntimeError(f"[freeze] expected names of attributes or methods to preserve, got {text!r}")
        if path[-1] in kind.methods:
            self.graphs.setdefault(path, self._whole(path))
        else:
            self.kept.add(path)

    def _whole(self, path: Path) -> Graph:
        """The graph of a method with all calls inlined, those of interfaces as well."""
        owner = self._owner(path[:-1])
        graph = inlined(owner.__dict__["_script_type"].methods[path[-1]].ensure().graph)
        for _ in range(20):
            parts = False
            for node in graph.walk():
                if node._kind == "prim::SetAttr" and isinstance(_attribute_type(node), T.InterfaceType):
                    raise RuntimeError("Freezing does not support SetAttr on an interface type.")
                if node._kind == "prim::GetAttr" and isinstance(node._outputs[0].type(), T.InterfaceType):
                    inner = self._value(path, node._outputs[0], graph)
                    if inner is not None:
                        node._outputs[0].setType(inner.__dict__["_script_type"])
                        parts = True
            if not parts:
                return graph
            inline_calls(graph)
        return graph

    # ------------------------------------------------------------------ what stays an attribute

    def _path(self, method: Path, value: Value, graph: Graph) -> Path | None:
        """The path of an attribute that a value is read from."""
        names: list[str] = []
        while value.node()._kind == "prim::GetAttr":
            names.insert(0, value.node().attribute("name"))
            value = value.node()._inputs[0]
        inputs = graph._param._outputs
        return (*method[:-1], *names) if inputs and value is inputs[0] else None

    def _value(self, method: Path, value: Value, graph: Graph) -> Any:
        path = self._path(method, value, graph)
        return None if path is None else self._owner(path)

    def _keep_what_is_written(self, method: Path, graph: Graph) -> None:
        aliases = AliasDb(graph)
        written: list[Any] = []
        for node in graph.walk():
            if node._kind == "prim::ModuleContainerIndex":
                raise RuntimeError("Freezing modules containing prim::ModuleContainerIndex is not supported")
            if node._kind == "prim::SetAttr":
                owner = self._path(method, node._inputs[0], graph)
                if owner is not None:
                    self.kept.add((*owner, node.attribute("name")))
            for value in node._inputs:
                self._keep_module(method, node, value, graph)
        for value in graph._return._inputs:
            self._keep_module(method, graph._return, value, graph)
        for node in graph.walk():
            path = self._path(method, node._outputs[0], graph) if node._kind == "prim::GetAttr" else None
            if path is None or _is_module(node._outputs[0].type()):
                continue
            if not _is_constant(self._owner(path), node._outputs[0]):
                self.kept.add(path)
            if aliases.has_writers(node._outputs[0]):
                self.kept.add(path)
                written.append(self._owner(path))
        self._keep_what_overlaps(method, graph, written)

    def _keep_module(self, method: Path, node: Node, value: Value, graph: Graph) -> None:
        """A module that is used for more than its attributes stays as it is."""
        if node._kind in ("prim::GetAttr", "prim::SetAttr") or not _is_module(value.type()):
            return
        path = self._path(method, value, graph)
        if path == method[:-1] == ():
            raise RuntimeError("attempted to freeze a module that return itself")
        if path is not None:
            self.kept.add(path)

    def _keep_what_overlaps(self, method: Path, graph: Graph, written: list[Any]) -> None:
        memory = {m for value in written for m in _memory(value)}
        for node in graph.walk() if memory else ():
            path = self._path(method, node._outputs[0], graph) if node._kind == "prim::GetAttr" else None
            if path is None or _is_module(node._outputs[0].type()):
                continue
            shared = _memory(self._owner(path)) & memory
            if shared and path not in self.kept:
                if isinstance(node._outputs[0].type(), (T.ListType, T.DictType, T.TupleType)):
                    raise RuntimeError(
                        "module contains attributes values that overlaps: expected lists, dicts and tuples that share nothing with what is written to"
                    )
                self.kept.add(path)

    # ------------------------------------------------------------------ the new module

    def module(self) -> Any:
        frozen = self._module(())
        for path, graph in self.graphs.items():
            kind = self.kinds[path[:-1]]
            self._constants(path, graph)
            graph._param._outputs[0].setType(kind)
            _simplify(graph)
            schema = self._owner(path[:-1]).__dict__["_script_type"].methods[path[-1]].schema
            signature = Signature(path[-1], "", [Argument("self", kind), *schema.arguments[1:]], schema.returns)
            kind.methods[path[-1]] = Function.of_graph(f"{kind.name}.{path[-1]}", graph, signature)
        return frozen

    def _module(self, path: Path) -> Any:
        """A module that holds what stays of the one at a path."""
        from flambeau.jit._modules import RecursiveScriptModule

        old = self._owner(path)
        own: T.ClassType = old.__dict__["_script_type"]
        kind = self.kinds[path] = T.ClassType(unique_name(own.name), is_module=True)
        frozen = RecursiveScriptModule(kind)
        inside = {p[len(path)] for p in (*self.kept, *self.graphs) if len(p) > len(path) and p[: len(path)] == path}
        for name, part in own.attributes.items():
            if name not in inside:
                continue
            if (*path, name) in self.kept or not _is_module(part):
                _keep(old, frozen, own, kind, name)
            else:
                frozen._modules[name] = self._module((*path, name))
                kind.attributes[name] = self.kinds[*path, name]
        kind.attributes.setdefault("training", T.BOOL)
        frozen.__dict__["training"] = old.training
        return frozen

    def _constants(self, method: Path, graph: Graph, only: str | None = None) -> None:
        """Replace the attributes that a graph reads, except those kept, by their values."""
        for node in list(graph.walk()):
            path = self._path(method, node._outputs[0], graph) if node._kind == "prim::GetAttr" else None
            if path is None or (only is not None and path[-1] != only):
                continue
            if any(path[: len(k)] == k for k in self.kept):
                continue
            kind, value = node._outputs[0].type(), self._owner(path)
            if _is_module(kind):
                if only is None and path in self.kinds:
                    node._outputs[0].setType(self.kinds[path])
                continue
            _replace(graph, node, value, kind)
        graph.insert_block, graph.insert_before = graph, None


def _is_constant(attribute: Any, value: Value) -> bool:
    """Whether an attribute can become a constant: dicts are none, and objects only have attributes that are."""
    if isinstance(value.type(), T.ClassType):
        return all(use.user._kind == "prim::GetAttr" for use in value._uses)
    if isinstance(attribute, (list, tuple)):
        return not any(isinstance(item, dict) for item in attribute)
    return not isinstance(attribute, dict)


def _replace(graph: Graph, node: Node, value: Any, kind: T.JitType) -> None:
    if isinstance(kind, T.ClassType):
        return
    if isinstance(value, _C.Tensor):
        value = value.detach()
    graph.insert_block, graph.insert_before = node.owner, node  # type: ignore[assignment]
    node._outputs[0].replaceAllUsesWith(graph.insertConstant(value, T.NONE if value is None else kind))


def _is_module(kind: T.JitType) -> bool:
    return isinstance(kind, (T.ClassType, T.InterfaceType)) and kind.is_module


def _attribute_type(node: Node) -> Any:
    owner = node._inputs[0].type()
    return owner.attributes.get(node.attribute("name")) if isinstance(owner, T.ClassType) else None


def _memory(value: Any) -> set[Any]:
    """What tells whether two values share memory: storages and objects."""
    if isinstance(value, _C.Tensor):
        return {("storage", value.untyped_storage().data_ptr())}
    if isinstance(value, (list, tuple)):
        parts = {m for item in value for m in _memory(item)}
        return parts | {("object", id(value))} if isinstance(value, list) else parts
    if isinstance(value, dict):
        return {("object", id(value))} | {m for item in value.values() for m in _memory(item)}
    return set()


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
    elif _is_module(part):
        frozen._modules[name] = value
    else:
        frozen.__dict__[name] = value


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
    """Compute what is known before the module runs: normalisation and arithmetic after convolutions, operators on constants."""
    kind: T.ClassType = mod.__dict__["_script_type"]
    for method in kind.methods.values():
        graph = method.ensure().graph
        if graph is None:
            continue
        _drop_detach(graph)
        if optimize_numerics:
            fold_operators(graph)
            fold_constants(graph)
            clean(graph)
        method.forget()


def _drop_detach(graph: Graph) -> None:
    """Detaching does nothing to what is only computed with: arguments and constants whose results are new tensors."""
    aliases = AliasDb(graph)
    for node in list(graph.walk()):
        if node._kind != "aten::detach" or aliases.has_writers(node._outputs[0]):
            continue
        compared = any(
            not u.user._kind.startswith("aten::") or u.user._kind in ("aten::__is__", "aten::__isnot__")
            for u in node._outputs[0]._uses
        )
        if not compared and not aliases.leaves(graph, node._outputs[0]):
            node._outputs[0].replaceAllUsesWith(node._inputs[0])
            node.destroy()


def optimize_for_inference(mod: Any, other_methods: Any = None) -> Any:
    """The module frozen, with what can be computed before it runs computed."""
    from flambeau.jit._modules import ScriptModule

    if not isinstance(mod, ScriptModule):
        raise RuntimeError(
            "optimize_for_inference expects a ScriptModule as input. Please use torch.jit.script or torch.jit.trace to script your 'nn.Module'."
        )
    if list(mod.parameters()) or list(mod.children()):  # type: ignore[arg-type]
        mod = freeze(mod.eval(), other_methods, True)
    run_frozen_optimizations(mod, True, other_methods)
    return mod


__all__ = ["freeze", "optimize_for_inference", "run_frozen_optimizations"]
