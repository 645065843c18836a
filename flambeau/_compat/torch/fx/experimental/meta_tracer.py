"""Tracing with shapes: proxies carry tensors on the meta device, so that code may ask for sizes and branch on them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Union

import flambeau
from flambeau.fx._symbolic_trace import Tracer, _paused
from flambeau.fx.graph import Graph
from flambeau.fx.graph_module import GraphModule
from flambeau.fx.node import Node, map_aggregate
from flambeau.fx.proxy import Attribute, Proxy
from flambeau.nn.modules.module import Module

__all__ = ["MetaProxy", "MetaTracer", "proxys_to_metas", "symbolic_trace"]


class MetaProxy(Proxy):
    """A proxy that knows the shape and dtype of its value."""

    def install_tensor_meta(self, tensor_meta: Any) -> None:
        self._tensor_meta = tensor_meta

    @property
    def meta_value(self) -> Any:
        return self.__dict__.get("_tensor_meta")

    def size(self, dim: int | None = None) -> Any:
        if self.meta_value is None:
            return self.tracer.create_proxy("call_method", "size", (self,) if dim is None else (self, dim), {})
        return self.meta_value.size() if dim is None else self.meta_value.size(dim)

    def dim(self) -> Any:
        return self.tracer.create_proxy("call_method", "dim", (self,), {}) if self.meta_value is None else self.meta_value.dim()  # fmt: skip

    def __getattr__(self, k: str) -> Any:
        if k in ("_tensor_meta", "node", "tracer") or (k.startswith("__") and k.endswith("__")):
            raise AttributeError(k)
        if k in ("shape", "ndim", "dtype") and self.meta_value is not None:
            return getattr(self.meta_value, k)
        return MetaAttribute(self, k)

    def __len__(self) -> int:
        return super().__len__() if self.meta_value is None else len(self.meta_value)


class MetaAttribute(MetaProxy, Attribute):
    """An attribute of a proxy, made a node when it is needed."""

    def __init__(self, root: Proxy, attr: str) -> None:
        Attribute.__init__(self, root, attr)

    node = Attribute.node
    __call__ = Attribute.__call__


def proxys_to_metas(v: Any) -> Any:
    """What a proxy carries; other values as they are."""
    if isinstance(v, flambeau.device):
        return flambeau.device("meta")
    if isinstance(v, MetaProxy):
        if v.meta_value is None:
            raise LookupError("[meta_tracer] expected a proxy whose shape is known")
        return v.meta_value
    return v


class MetaTracer(Tracer):
    """A tracer of proxies with shapes. `trace(root, meta_args)` gives the inputs' shapes, by name."""

    meta_args: dict[str, Any]

    def create_proxy(
        self,
        kind: str,
        target: Any,
        args: Any,
        kwargs: Any,
        name: str | None = None,
        type_expr: Any = None,
        proxy_factory_fn: Any = None,
    ) -> Any:
        proxy = super().create_proxy(kind, target, args, kwargs, name, type_expr, proxy_factory_fn)
        if kind == "placeholder" and target in self.meta_args:
            proxy.install_tensor_meta(self.meta_args[target])
            return proxy
        if isinstance(proxy, MetaProxy):
            try:
                proxy.install_tensor_meta(self._on_meta(kind, target, args, kwargs))
            except LookupError:
                return proxy  # something of unknown shape took part
        return proxy

    def _on_meta(self, kind: str, target: Any, args: Any, kwargs: Any) -> Any:
        """The value of a node on the meta device."""
        if kind == "get_attr":
            value: Any = self.root
            for atom in target.split("."):
                value = getattr(value, atom)
            return value.to("meta") if isinstance(value, flambeau.Tensor) else value
        if kind not in ("call_function", "call_method", "call_module"):
            raise LookupError(kind)
        args, kwargs = map_aggregate(args, proxys_to_metas), map_aggregate(kwargs, proxys_to_metas)
        if kind == "call_method":
            return getattr(args[0], target)(*args[1:], **kwargs)
        if kind == "call_function":
            return target(*args, **kwargs)
        module = self.root.get_submodule(target)
        state = {n: t.detach().to("meta") for n, t in (*module.named_parameters(), *module.named_buffers())}
        with _paused():
            return flambeau.func.functional_call(module, state, tuple(args), dict(kwargs))

    def proxy(self, node: Node) -> MetaProxy:
        return MetaProxy(node, self)

    def trace(  # type: ignore[override]
        self, root: Any, meta_args: dict[str, Any] | None = None, concrete_args: dict[str, Any] | None = None
    ) -> Graph:
        self.meta_args = {k: v.to("meta") for k, v in (meta_args or {}).items()}
        graph = super().trace(root, concrete_args)
        graph._tracer_extras = {"meta_args": meta_args}
        return graph


def symbolic_trace(
    root: Union[Module, Callable[..., Any]],
    meta_args: dict[str, Any] | None = None,
    concrete_args: dict[str, Any] | None = None,
) -> GraphModule:
    """A graph module traced with the shapes of meta_args known."""
    tracer = MetaTracer()
    graph = tracer.trace(root, meta_args, concrete_args)
    name = type(root).__name__ if isinstance(root, Module) else getattr(root, "__name__", "GraphModule")
    return GraphModule(tracer.root, graph, name)
