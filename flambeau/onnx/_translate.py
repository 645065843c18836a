"""From an exported program to an ONNX model: one walk over the graph, with the rule of each operator.

Operators without a rule are taken apart first, down to operators that have one. Parameters, buffers and constants become
initializers under their names in the module, sizes that vary become symbolic dimensions.
"""

from __future__ import annotations

import inspect
import operator
import sys
from collections.abc import Callable
from typing import Any

import flambeau as fl
from flambeau import _C
from flambeau._dynamo.functions import AUTOCAST_SWITCHES
from flambeau._ops import OpOverload
from flambeau._subclasses.fake_operators import bind
from flambeau.export._casts import cast_call
from flambeau.export._decompose import decomposed
from flambeau.export._trace import Operators
from flambeau.export.exported_program import ExportedProgram
from flambeau.export.graph_signature import ConstantArgument, InputKind, OutputKind
from flambeau.fx import node as fx
from flambeau.onnx._builder import Builder, NotTranslated
from flambeau.onnx._model import DTYPE_NUMBER, Graph, Model, Value
from flambeau.onnx.errors import OnnxExporterError, UnsupportedOperatorError
from flambeau.ops.as_aten import decompositions
from flambeau.ops.evaluate import by_parts
from flambeau.ops.geometry import geometry_of
from flambeau.ops.rules import definition
from flambeau.ops.rules import onnx as onnx_rules
from flambeau.ops.symbolic.expr import Atom, Expr, single_symbol, substitute
from flambeau.ops.symbolic.numbers import SymBool, SymFloat, SymInt
from flambeau.ops.symbolic.printing import python_text

Table = dict[Any, Callable[..., Any]]


class Translatable(Operators):
    """Records operators that have a rule, and takes others apart."""

    custom: frozenset[str] = frozenset()

    def _has_rule(self, name: str) -> bool:
        return name in self.custom or onnx_rules.find(name) is not None

    def decompose(self, op: Any) -> Any:
        name = op._full_name
        cast = cast_call(op, self.device)
        if cast is not None:
            return cast
        if self._has_rule(name):
            return None
        known = super().decompose(op)
        if known is None and _C._operator_definition(name)[0]:  # pointwise: its record says what it computes
            return lambda *args, **kwargs: by_parts(name, args, kwargs)
        return known or definition.find(name)

    def takes(self, name: str) -> bool:
        return not self._has_rule(name)


def translated(program: ExportedProgram, opset: int, table: Table | None = None) -> Model:
    """The model of a program."""
    from flambeau.onnx._legacy import registered_symbolics

    custom = _symbolic_operators() | registered_symbolics() | _by_full_name(table or {})
    kind = type("Translatable", (Translatable,), {"custom": frozenset(custom)})
    flat = decomposed(program, None, record_type=kind)
    model = Model(Graph("main_graph"), opset)
    walk = Walk(flat, model, custom)
    walk.run()
    _remove_unused(model.graph)
    return model


def _symbolic_operators() -> dict[str, Callable[..., Any]]:
    """Translations of `onnx.ops.symbolic`, where a program has imported it."""
    ops = sys.modules.get("flambeau.onnx.ops")
    return {} if ops is None else ops.translations()


def _by_full_name(table: Table) -> dict[str, Callable[..., Any]]:
    """The user's translations by the names of operators."""
    translations: dict[str, Callable[..., Any]] = {}
    for target, function in table.items():
        overloads = [target] if isinstance(target, OpOverload) else None
        if overloads is None and hasattr(target, "overloads"):
            overloads = [getattr(target, name) for name in target.overloads()]
        for overload in overloads or []:
            translations[overload._full_name] = function[0] if isinstance(function, (list, tuple)) else function
        if not overloads:
            raise TypeError(f"[onnx.export] expected operators as keys of custom_translation_table, got {target!r}")
    return translations


class Walk:
    """The translation of one program."""

    def __init__(self, program: ExportedProgram, model: Model, custom: dict[str, Callable[..., Any]]) -> None:
        self.program = program
        self.model = model
        self.custom = custom
        self.names = dict(program._size_names)
        self.symbols: dict[Atom, tuple[Value, int]] = {}
        self.sizes: dict[Expr, Any] = {}

    def run(self) -> None:
        builder = Builder(self.model, self.model.graph)
        values: dict[fx.Node, Any] = {}
        nodes = [n for n in self.program.graph.nodes if n.op == "placeholder"]
        for node, spec in zip(nodes, self.program.graph_signature.input_specs):
            values[node] = self._input(builder, node, spec)
            self._note_sizes(values[node], node.meta.get("val"))
        builder.size_text = self.size_text
        builder.size_of = lambda size: self._size_value(builder, size)
        results = self._graph(builder, self.program.graph_module, values)
        builder.metadata = {}
        for output, result in zip(self.program.graph_signature.output_specs, results):
            # Writes to buffers have no place in ONNX: as in PyTorch, the model's results are the user's.
            if output.kind is OutputKind.USER_OUTPUT and not isinstance(output.arg, ConstantArgument):
                self._output(builder, result, output.arg.name)

    def _input(self, builder: Builder, node: fx.Node, spec: Any) -> Any:
        if spec.kind is InputKind.USER_INPUT:
            if isinstance(spec.arg, ConstantArgument):
                return spec.arg.value
            value = self._described(Value(node.name), node.meta.get("val"))
            builder.unique(value.name)
            self.model.graph.inputs.append(value)
            return value
        target = str(spec.target)
        state = self.program.state_dict
        tensor = state[target] if target in state else self.program.constants[target]
        return builder.initializer(target, tensor.detach())

    def _output(self, builder: Builder, result: Any, name: str) -> None:
        graph = self.model.graph
        if not isinstance(result, Value):
            result = builder.constant(result)
        if result.is_size:
            result = builder.scalar(result)
        taken = [*graph.inputs, *graph.outputs, *(v for v, _ in graph.initializers.values())]
        if any(result is other for other in taken):
            result = builder.op("Identity", result, dtype=result.dtype, shape=result.shape)
            result.name = builder.unique(name)
        graph.outputs.append(result)

    # ------------------------------------------------------------------------------------------ graphs

    def _graph(self, builder: Builder, module: Any, values: dict[fx.Node, Any]) -> list[Any]:
        """Translates the nodes of a graph; its results."""
        results: list[Any] = []
        for node in module.graph.nodes:
            if node.op == "call_function":
                values[node] = self._call(builder, module, node, values)
            elif node.op == "get_attr":
                values[node] = getattr(module, node.target)
            elif node.op == "output":
                returned = (node.args[0],) if isinstance(node.args[0], fx.Node) else node.args[0]
                results = [_mapped(value, values) for value in returned]
        return results

    def _call(self, builder: Builder, module: Any, node: fx.Node, values: dict[fx.Node, Any]) -> Any:
        target = node.target
        args, kwargs = _mapped(node.args, values), _mapped(dict(node.kwargs), values)
        builder.metadata = {"pkg.torch.onnx.fx_node": node.name, **_module_scopes(node)}
        if node.meta.get("stack_trace"):
            builder.metadata["pkg.torch.onnx.stack_trace"] = str(node.meta["stack_trace"])
        if target is operator.getitem:
            item = args[0][args[1]]
            if isinstance(item, Value):
                self._named(builder, item, node)
            return item
        if target is _C._set_grad_enabled or target in AUTOCAST_SWITCHES:
            return None
        if getattr(target, "is_higher_order", False):
            return self._higher_order(builder, node, args)
        if isinstance(target, OpOverload):
            return self._operator(builder, node, args, kwargs)
        return _sizes(builder, node, target, args)

    def _operator(self, builder: Builder, node: fx.Node, args: Any, kwargs: Any) -> Any:
        target: Any = node.target
        name = target._full_name
        builder.result = node.meta.get("val")
        first = len(builder.graph.nodes)
        try:
            if name in self.custom:
                from flambeau.onnx._custom import call_custom

                results = call_custom(builder, self.custom[name], args, kwargs)
            else:
                rule = onnx_rules.find(name)
                if rule is None:
                    raise NotTranslated("")
                results = _applied(rule, builder, bind_values(target, args, kwargs))
        except NotTranslated as why:
            shown = str(node.target)
            location = node.meta.get("stack_trace")
            raise UnsupportedOperatorError(shown, self.model.opset, location, str(why)) from None
        if isinstance(results, (list, tuple)):
            for value, fake in zip(results, node.meta.get("val") or ()):
                if isinstance(value, Value) and isinstance(fake, fl.Tensor):
                    self._described(value, fake)
            return results
        if isinstance(results, Value) and len(builder.graph.nodes) > first:
            self._named(builder, results, node)
        return results

    def _named(self, builder: Builder, value: Value, node: fx.Node) -> None:
        """Gives a result the name of its node, unless it is something that has one."""
        if value.name.startswith("val_"):
            value.name = builder.unique(node.name)
        if isinstance(node.meta.get("val"), fl.Tensor) and not value.name.startswith("const_"):
            self._described(value, node.meta["val"])

    def _described(self, value: Value, fake: Any) -> Value:
        """The value with the dtype and sizes of a fake."""
        if isinstance(fake, fl.Tensor):
            if fake.dtype not in DTYPE_NUMBER:
                raise OnnxExporterError(f"[onnx.export] expected dtypes that ONNX has, got {fake.dtype}")
            value.dtype = fake.dtype
            value.shape = tuple(self.size_text(size) for size in geometry_of(fake).sizes)
        elif isinstance(fake, (SymInt, int)):
            value.dtype, value.shape, value.is_size = fl.int64, (), False
        return value

    def size_text(self, size: Any) -> Any:
        """A size as ONNX has it: a number, or the name of a dimension."""
        if not isinstance(size, SymInt):
            return int(size)
        expr = self._expr(size)
        if expr.is_constant:
            return expr.constant
        return python_text(expr, lambda atom: self.names.get(atom, atom.name))

    def _note_sizes(self, value: Any, fake: Any) -> None:
        """Notes which dimension of an input has the value of a symbol."""
        if isinstance(value, Value) and isinstance(fake, fl.Tensor):
            for dim, size in enumerate(geometry_of(fake).sizes):
                atom = single_symbol(self._expr(size)) if isinstance(size, SymInt) else None
                if atom is not None:
                    self.symbols.setdefault(atom, (value, dim))

    def _expr(self, size: SymInt) -> Expr:
        return substitute(size.env.simplify(size.expr), self.program._substitutions)

    def _size_value(self, builder: Builder, size: Any) -> Any:
        """A size as a number or a value that is computed from the sizes of inputs."""
        return self._expr_value(builder, self._expr(size)) if isinstance(size, SymInt) else int(size)

    def _expr_value(self, builder: Builder, expr: Expr) -> Any:
        if expr.is_constant:
            return expr.constant
        if expr not in self.sizes:
            total: Any = None
            for monomial, factor in expr.terms.items():
                term: Any = factor if factor != 1 or not monomial else None
                for atom in monomial:
                    value = self._atom_value(builder, atom)
                    term = value if term is None else builder.arithmetic("Mul", value, term)
                total = term if total is None else builder.arithmetic("Add", total, term)
            self.sizes[expr] = total
        return self.sizes[expr]

    def _atom_value(self, builder: Builder, atom: Atom) -> Any:
        if atom.kind == "symbol":
            value, dim = self.symbols[atom]
            return builder.dim(value, dim)
        parts = [self._expr_value(builder, arg) for arg in atom.args]
        return builder.arithmetic({"floordiv": "Div", "max": "Max", "min": "Min"}[atom.kind], *parts)

    # ------------------------------------------------------------------------------------------ branches and loops

    def _higher_order(self, builder: Builder, node: fx.Node, args: Any) -> Any:
        name = getattr(node.target, "__name__", "")
        fakes: Any = node.meta.get("val")
        if name == "cond":
            pred, first, second, operands = args
            graphs = {"then_branch": first, "else_branch": second}
            attributes: dict[str, Any] = {
                key: self._branch(builder, key, graph, operands) for key, graph in graphs.items()
            }
            condition = builder.op("Reshape", pred, builder.constant([], fl.int64)) if pred.shape != () else pred
            results = builder.op("If", builder.cast(condition, fl.bool), outputs=len(fakes), **attributes)
        elif name == "while_loop":
            results = self._loop(builder, *args)
        elif name == "map_impl":
            results = self._scan(builder, args[0], [], args[1], args[2], len(fakes))
        elif name == "scan":
            results = self._scan(builder, args[0], args[1], args[2], args[3], len(fakes))
        elif name == "wrap_with_set_grad_enabled":
            return tuple(self._inlined(builder, args[1], args[2:]))
        else:
            raise UnsupportedOperatorError(f"higher_order.{name}", self.model.opset, node.meta.get("stack_trace"))
        results = results if isinstance(results, tuple) else (results,)
        for value, fake in zip(results, fakes):
            self._described(value, fake)
        return results

    def _inlined(self, builder: Builder, module: Any, operands: Any) -> list[Any]:
        nodes = [n for n in module.graph.nodes if n.op == "placeholder"]
        return self._graph(builder, module, dict(zip(nodes, operands)))

    def _branch(self, builder: Builder, name: str, module: Any, operands: Any) -> Graph:
        inner = builder.subgraph(name)
        for result in self._inlined(inner, module, operands):
            inner.graph.outputs.append(inner.op("Identity", result, dtype=result.dtype, shape=result.shape))
        return inner.graph

    def _loop(self, builder: Builder, cond: Any, body: Any, carried: Any, additional: Any) -> Any:
        start = self._inlined(builder, cond, [*carried, *additional])[0]
        inner = builder.subgraph("loop_body")
        step = Value(builder.fresh("step"), fl.int64, ())
        go = Value(builder.fresh("go"), fl.bool, ())
        values = [Value(builder.fresh("carried"), x.dtype, x.shape) for x in carried]
        inner.graph.inputs.extend([step, go, *values])
        results = self._inlined(inner, body, [*values, *additional])
        going = inner.cast(self._inlined(inner, cond, [*results, *additional])[0], fl.bool)
        for result in (going, *results):
            inner.graph.outputs.append(inner.op("Identity", result, dtype=result.dtype, shape=result.shape))
        start = builder.cast(start, fl.bool)
        return builder.op("Loop", None, start, *carried, outputs=len(carried), body=inner.graph)

    def _scan(self, builder: Builder, body: Any, carried: Any, mapped: Any, others: Any, count: int) -> Any:
        inner = builder.subgraph("scan_body")
        held = [Value(builder.fresh("carried"), x.dtype, x.shape) for x in carried]
        rows = [Value(builder.fresh("row"), x.dtype, x.shape[1:]) for x in mapped]
        inner.graph.inputs.extend([*held, *rows])
        for result in self._inlined(inner, body, [*held, *rows, *others]):
            inner.graph.outputs.append(inner.op("Identity", result, dtype=result.dtype, shape=result.shape))
        return builder.op("Scan", *carried, *mapped, outputs=count, body=inner.graph, num_scan_inputs=len(mapped))


# ---------------------------------------------------------------------------------------------- values and sizes


def _module_scopes(node: fx.Node) -> dict[str, str]:
    """The modules that a node lies in, by path and by class."""
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    names = [*(path for path, _ in stack), node.name]
    kinds = [*(str(kind) for _, kind in stack), str(node.target)]
    return {
        "namespace": "/".join(f"{name}: {kind}" for name, kind in zip(names, kinds)),
        "pkg.torch.onnx.class_hierarchy": str(kinds),
        "pkg.torch.onnx.name_scopes": str(names),
    }


def _mapped(value: Any, values: dict[fx.Node, Any]) -> Any:
    if isinstance(value, fx.Node):
        return values[value]
    if isinstance(value, (list, tuple)):
        return [_mapped(item, values) for item in value]
    if isinstance(value, dict):
        return {key: _mapped(item, values) for key, item in value.items()}
    return value


def bind_values(op: OpOverload, args: Any, kwargs: Any) -> dict[str, Any]:
    return bind(op, tuple(args), kwargs)


def _applied(rule: Callable[..., Any], builder: Builder, bound: dict[str, Any]) -> Any:
    """The rule with the arguments that it names."""
    code = getattr(rule, "__code__", None)
    if code is None or code.co_flags & inspect.CO_VARKEYWORDS:
        return rule(builder, **bound)
    wanted = code.co_varnames[1 : code.co_argcount]
    return rule(builder, **{name: bound[name] for name in wanted if name in bound})


_ARITHMETIC = {
    operator.add: "Add", operator.sub: "Sub", operator.mul: "Mul", fl.sym_max: "Max", fl.sym_min: "Min",
}  # fmt: skip


def _sizes(builder: Builder, node: fx.Node, target: Any, args: Any) -> Any:
    """Arithmetic on sizes."""
    if getattr(target, "__name__", "").startswith("sym_size"):
        return builder.dim(args[0], args[1])
    if target in _ARITHMETIC:
        return builder.arithmetic(_ARITHMETIC[target], *args)
    if target is operator.floordiv:
        return _floordiv(builder, *args)
    if target is operator.mod:
        return builder.arithmetic("Mod", *args)
    if target is operator.neg:
        return builder.arithmetic("Neg", *args)
    if getattr(target, "namespace", "") == "aten":
        sizes = _answered(builder, target, args)
        if sizes is not None:
            return sizes
    name = getattr(target, "__name__", str(target))
    raise UnsupportedOperatorError(name, builder.opset, node.meta.get("stack_trace"), "arithmetic on sizes")


def _floordiv(builder: Builder, a: Any, b: Any) -> Any:
    """Division of sizes, which are not negative: ONNX truncates."""
    return builder.arithmetic("Div", a, b)


def _answered(builder: Builder, target: Any, args: Any) -> Any:
    name = target.__name__.split(".")[0]
    if name in ("lift_fresh_copy", "detach_", "lift", "lift_fresh", "alias"):
        return args[0]
    return builder.numel(args[0]) if name == "sym_numel" else None


def _remove_unused(graph: Graph) -> None:
    """Drops nodes and constants that no output needs."""
    needed = {id(value) for value in graph.outputs}
    used_nodes = []
    for node in reversed(graph.nodes):
        if any(id(value) in needed for value in node.outputs):
            used_nodes.append(node)
            needed.update(id(value) for value in _read(node))
    graph.nodes[:] = reversed(used_nodes)
    graph.initializers = {name: held for name, held in graph.initializers.items() if id(held[0]) in needed}


def _read(node: Any) -> list[Value]:
    """The values that a node reads, graphs inside of it included."""
    values = [value for value in node.inputs if value is not None]
    for attribute in node.attributes.values():
        if isinstance(attribute, Graph):
            values += [value for inner in attribute.nodes for value in _read(inner)]
            values += attribute.outputs
    return values


__all__ = ["SymBool", "SymFloat", "decompositions", "translated"]
