"""Running a graph node by node, with every step open to be changed.

`Interpreter` executes a graph; `Transformer` executes it on proxies and so yields a new graph. Derive from either and
override the method named after the kind of node.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from flambeau.fx._symbolic_trace import Tracer
from flambeau.fx.graph import Graph
from flambeau.fx.graph_module import GraphModule
from flambeau.fx.node import _PLAIN, Argument, Node, Target, map_arg
from flambeau.fx.proxy import Proxy

if TYPE_CHECKING:
    from flambeau.nn.modules.module import Module


class Interpreter:
    """Executes a graph module's nodes in order.

    A value is dropped after its last use unless `garbage_collect_values` is false; values still alive are in `env`.
    Exceptions carry a note that names the node and, where recorded, the user's line.
    """

    def __init__(self, module: Module, garbage_collect_values: bool = True, graph: Graph | None = None) -> None:
        self.module: Any = module
        self.graph: Graph = graph if graph is not None else self.module.graph
        self.env: dict[Node, Any] = {}
        self.name = "Interpreter"
        self.garbage_collect_values = garbage_collect_values
        self.extra_traceback = True
        self.args_iter: Iterator[Any] = iter(())
        self.user_to_last_uses: dict[Node, list[Node]] = {}
        if garbage_collect_values:
            seen: set[Node] = set()
            for node in reversed(self.graph.nodes):
                for used in node._input_nodes:
                    if used not in seen:
                        seen.add(used)
                        self.user_to_last_uses.setdefault(node, []).append(used)
                if not node.users and node.op != "output":
                    self.user_to_last_uses.setdefault(node, []).append(node)

    @functools.cached_property
    def submodules(self) -> dict[str, Any]:
        """The modules by the names that nodes have for them."""
        return dict(self.module.named_modules())

    def run(self, *args: Any, initial_env: dict[Node, Any] | None = None, enable_io_processing: bool = True) -> Any:
        """Execute on the given arguments, one for each placeholder. Nodes in initial_env are not executed."""
        env = self.env = initial_env if initial_env is not None else {}
        if enable_io_processing:
            args = self.graph.process_inputs(*args)
        self.args_iter = iter(args)
        last_uses = self.user_to_last_uses
        node = root = self.graph._root
        run_node = self.run_node
        try:
            while (node := node._next) is not root:
                if node in env:
                    continue
                env[node] = run_node(node)
                if node.op == "output":
                    result = env[node]
                    return self.graph.process_outputs(result) if enable_io_processing else result
                for used in last_uses.get(node, ()):
                    del env[used]
        except Exception as error:
            if self.extra_traceback:
                _explain(error, node)
            raise
        return None

    def boxed_run(self, args_list: list[Any]) -> Any:
        """Like `run`, on a list that is emptied, so that arguments can be freed while the graph runs."""
        args_iter = iter(args_list)
        env: dict[Node, Any] = {node: next(args_iter) for node in self.graph.nodes if node.op == "placeholder"}
        args_list.clear()
        return self.run(initial_env=env, enable_io_processing=False)

    def run_node(self, n: Node) -> Any:
        """Execute one node."""
        env = self.env
        args = tuple([env[a] if type(a) is Node else (a if type(a) in _PLAIN else map_arg(a, env.__getitem__))
                      for a in n._args])  # fmt: skip
        kwargs = {k: env[a] if type(a) is Node else map_arg(a, env.__getitem__) for k, a in n._kwargs.items()}
        return getattr(self, n.op)(n.target, args, kwargs)

    def placeholder(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        """The next argument, all remaining ones for `*args`, or the default."""
        if isinstance(target, str) and target.startswith("*"):
            return list(self.args_iter)
        try:
            return next(self.args_iter)
        except StopIteration:
            if args:
                return args[0]
            raise RuntimeError(f"[{self.name}] expected an argument for {target!r}, got none and it has no default: Expected positional argument for parameter {target}, but one was not passed in!") from None  # fmt: skip

    def get_attr(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        return self.fetch_attr(str(target))

    def call_function(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        return target(*args, **kwargs)  # type: ignore[operator]

    def call_method(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        self_obj, *rest = args
        return getattr(self_obj, target)(*rest, **kwargs)  # type: ignore[arg-type]

    def call_module(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        return self.fetch_attr(str(target))(*args, **kwargs)

    def output(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        return args[0]

    # ------------------------------------------------------------------------------------------ helpers

    def fetch_attr(self, target: str) -> Any:
        """An attribute of the module by dotted path."""
        value = self.module
        for atom in target.split("."):
            value = getattr(value, atom)
        return value

    def fetch_args_kwargs_from_env(self, n: Node) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The values of a node's arguments."""
        return self.map_nodes_to_values(n.args, n), self.map_nodes_to_values(dict(n.kwargs), n)

    def map_nodes_to_values(self, args: Argument, n: Node) -> Any:
        """The same structure with values in place of nodes."""

        def value_of(used: Node) -> Any:
            if used not in self.env:
                raise RuntimeError(
                    f"[{self.name}] expected the value of {used} before {n} runs, got none; graph.lint() names the rule"
                )
            return self.env[used]

        return map_arg(args, value_of)


def _explain(error: Exception, node: Node) -> None:
    """Say in which node an exception was raised."""
    if getattr(error, "_fx_node", None) is not None:
        return
    try:
        error._fx_node = node.name
        error.add_note(f"While executing {node.format_node()}")
        if node.stack_trace:
            error.add_note(f"Original traceback:\n{node.stack_trace}")
    except AttributeError:  # an exception type that takes no attributes
        return


class Transformer(Interpreter):
    """An interpreter that runs on proxies: each method returns the proxy that stands for the node in the new graph."""

    def __init__(self, module: GraphModule) -> None:
        super().__init__(module)
        self.new_graph = Graph()
        self.new_graph.set_codegen(module.graph._codegen)

        class TransformerTracer(Tracer):
            def __init__(self, graph: Graph) -> None:
                super().__init__()
                self.graph = graph
                self.tensor_attrs: dict[Any, str] = {}

            def is_leaf_module(self, m: Module, module_qualified_name: str) -> bool:
                return True

        self.tracer = TransformerTracer(self.new_graph)
        self.tracer.root = module

    def placeholder(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Proxy:
        default = args[0] if args else ...
        return Proxy(self.new_graph.placeholder(str(target), default_value=default), self.tracer)

    def get_attr(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        return self.tracer.create_proxy("get_attr", target, args, kwargs)

    def call_module(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        submodule = self.fetch_attr(str(target))
        return self.tracer.call_module(submodule, submodule.forward, args, kwargs)

    def call_function(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        return self.tracer.create_proxy("call_function", target, args, kwargs)

    def call_method(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        return self.tracer.create_proxy("call_method", target, args, kwargs)

    def transform(self) -> GraphModule:
        """The module with the graph that running this transformer yields."""
        result = super().run(enable_io_processing=False)
        if result is not None:
            strip: Callable[[Any], Any] = lambda a: a.node if isinstance(a, Proxy) else a  # noqa: E731
            from flambeau.fx.node import map_aggregate

            old = self.graph.output_node()
            output = self.new_graph.output(map_aggregate(result, strip), old.type)
            output.meta.update(old.meta)
        return GraphModule(self.module, self.new_graph)

    def run_node(self, n: Node) -> Any:
        result = super().run_node(n)
        if isinstance(result, Proxy):
            result.node.type = result.node.type or n.type
            for key, value in n.meta.items():
                result.node.meta.setdefault(key, value)
        return result
