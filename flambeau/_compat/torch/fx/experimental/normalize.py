"""Calls in one form: arguments under the names of parameters, operators as functions of the library."""

from __future__ import annotations

import operator
from typing import Any, ClassVar

import flambeau
from flambeau.fx.graph_module import GraphModule
from flambeau.fx.interpreter import Transformer
from flambeau.fx.node import Argument, Node, Target, map_aggregate
from flambeau.fx.operator_schemas import normalize_function, normalize_module
from flambeau.fx.proxy import Proxy

__all__ = ["NormalizeArgs", "NormalizeOperators"]


class NormalizeArgs(Transformer):
    """Rewrites calls of functions and modules so that arguments are passed by keyword, defaults included. What a
    signature is not known for stays as it is. `node_map` leads from new proxies to the nodes they were made of."""

    def __init__(self, module: GraphModule, normalize_to_only_use_kwargs: bool = True) -> None:
        super().__init__(module)
        self.node_map: dict[Proxy, Node] = {}
        self.normalize_to_only_use_kwargs = normalize_to_only_use_kwargs

    def run_node(self, n: Node) -> Any:
        result = super().run_node(n)
        if isinstance(result, Proxy):
            self.node_map[result] = n
        return result

    def call_function(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        pair = normalize_function(target, args, kwargs, None, None, self.normalize_to_only_use_kwargs)
        if pair is None:
            return super().call_function(target, args, kwargs)
        return self.tracer.create_proxy("call_function", target, pair.args, pair.kwargs)

    def call_module(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        pair = normalize_module(self.module, str(target), args, kwargs, self.normalize_to_only_use_kwargs)
        if pair is None:
            return super().call_module(target, args, kwargs)
        return super().call_module(target, pair.args, pair.kwargs)


class NormalizeOperators(Transformer):
    """Rewrites Python's operators on tensors as functions of the library: `x + y` as `torch.add(x, y)`. Nodes must not
    be of operators on numbers."""

    binary_magic_method_remap: ClassVar[dict[Any, Any]] = {
        operator.add: flambeau.add,
        operator.mul: flambeau.mul,
        operator.sub: flambeau.sub,
        operator.truediv: flambeau.div,
        operator.mod: flambeau.remainder,
        operator.pow: flambeau.pow,
        operator.floordiv: flambeau.floor_divide,
        operator.matmul: flambeau.matmul,
    }

    def __init__(
        self,
        module: GraphModule,
        annotate_functionals: bool = True,
        annotate_modules: bool = True,
        annotate_get_attrs: bool = True,
    ) -> None:
        super().__init__(module)

    def call_function(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        function = self.binary_magic_method_remap.get(target)
        if function is not None and len(args) == 2 and not kwargs and _is_tensor_first(args):
            return super().call_function(function, args, kwargs)
        return super().call_function(target, args, kwargs)


def _is_tensor_first(args: tuple[Argument, ...]) -> bool:
    tensors: list[Any] = []
    map_aggregate(args[0], tensors.append)
    return bool(tensors) and isinstance(tensors[0], Proxy)
