"""A program from the JSON of a `.pt2` file. Operators are looked up by name, and expressions are parsed: no code runs."""

from __future__ import annotations

import collections
import math
import operator
from math import inf
from typing import Any

import flambeau as fl
from flambeau._dynamo.functions import AUTOCAST_SWITCHES
from flambeau._higher_order_ops.operators import higher_order
from flambeau._subclasses.fake_tensor import FakeTensorMode
from flambeau.export._pt2 import schema
from flambeau.export._pt2.schema import POSITIONAL, SerializeError, looked_up
from flambeau.export._pt2.symbols import read_condition, read_expr
from flambeau.export.exported_program import (
    CallSpec,
    ExportedProgram,
    InputFacts,
    ModuleCallEntry,
    ModuleCallSignature,
)
from flambeau.export.graph_signature import (
    ConstantArgument,
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    SymIntArgument,
    TensorArgument,
)
from flambeau.fx.graph import Graph
from flambeau.fx.graph_module import GraphModule
from flambeau.fx.node import Node
from flambeau.ops.as_aten.targets import Argument, UnknownOperator, resolve
from flambeau.ops.geometry import Geometry
from flambeau.ops.symbolic.expr import Atom, Expr, single_symbol, symbol
from flambeau.ops.symbolic.numbers import SymInt
from flambeau.ops.symbolic.shape_env import ShapeEnv
from flambeau.utils import _pytree as pytree

Json = Any
_ARITHMETIC = {
    f"_operator.{name}": getattr(operator, name)
    for name in "add sub mul floordiv mod neg truediv pow eq ne lt le gt ge and_ or_ not_ getitem lshift rshift abs".split()
}
_ARITHMETIC |= {f"torch.{name}": getattr(fl, name) for name in "sym_max sym_min sym_int sym_float sym_not".split()}
_ARITHMETIC |= {f"flambeau.switch.{function.__name__}": function for function in AUTOCAST_SWITCHES}
_ARITHMETIC |= {f"math.{name}": function for name, function in vars(math).items() if callable(function)}
_ARITHMETIC["torch.sym_sqrt"] = math.sqrt


def read_program(document: Json, state: dict[str, Any], constants: dict[str, Any], examples: Any) -> ExportedProgram:
    """The program of a document."""
    version = document["schema_version"]
    if version["major"] != schema.SCHEMA_VERSION[0]:
        raise SerializeError(
            f"[export.load] expected a program of schema version {schema.SCHEMA_VERSION[0]}.x, got "
            f"{version['major']}.{version['minor']}"
        )
    held = document["graph_module"]
    _read_named_tuples(held.get("treespec_namedtuple_fields") or {})
    reader = GraphReader(FakeTensorMode(shape_env=ShapeEnv(), keeps_history=False))
    module = reader.graph(held["graph"], held["signature"])
    inputs = [_input_spec(spec) for spec in held["signature"]["input_specs"]]
    outputs = [_output_spec(spec) for spec in held["signature"]["output_specs"]]
    calls = [_module_call(entry) for entry in held["module_call_graph"]]
    whole = next(entry.signature for entry in calls if entry.fqn == "" and entry.signature is not None)
    ranges: dict[Atom, Any] = {}
    for name, span in document["range_constraints"].items():
        atom = single_symbol(symbol(name, 0))
        assert atom is not None
        low, high = span["min_val"], span["max_val"]
        ranges[atom] = (-inf if low is None else low, inf if high is None else high)
        reader.env.ranges[atom] = ranges[atom]
    facts = _facts(held["graph"], inputs, reader)
    program = ExportedProgram(
        module, ExportGraphSignature(inputs, outputs), state, constants, CallSpec(whole.in_spec, whole.out_spec), facts,
        ranges, [], examples, module_call_graph=calls, dialect=(document.get("verifiers") or ["TRAINING"])[0],
    )  # fmt: skip
    sizes = {place: symbol(atom.name, 0) for atom, place in program._size_places().items()}
    read = [read_condition(text, sizes) for text in document.get("guards_code", ())]
    program._checks = [condition for condition in read if condition is not None]
    return program


def _facts(graph: Json, inputs: list[InputSpec], reader: GraphReader) -> list[InputFacts]:
    """What a call has to give, from what is known of the inputs."""
    facts = []
    for spec in inputs:
        if spec.kind is not InputKind.USER_INPUT:
            continue
        name = spec.arg.name
        if isinstance(spec.arg, ConstantArgument):
            facts.append(InputFacts(name, None, None, spec.arg.value))
        elif isinstance(spec.arg, SymIntArgument):
            facts.append(InputFacts(name, int, (), _size_fact(graph["sym_int_values"][name])))
        else:
            meta = graph["tensor_values"][name]
            shape = tuple(_size_fact(size) for size in meta["sizes"])
            facts.append(InputFacts(name, looked_up(schema.DTYPE_OF, meta["dtype"], "dtype"), shape, None))
    return facts


def _size_fact(size: Json) -> Any:
    return size["as_int"] if "as_int" in size else read_expr(size["as_expr"]["expr_str"])


# ---------------------------------------------------------------------------------------------- the graph


class GraphReader:
    """Reads one graph; graphs of branches get readers of their own."""

    def __init__(self, mode: FakeTensorMode) -> None:
        self.mode = mode
        assert mode.shape_env is not None
        self.env: ShapeEnv = mode.shape_env
        self.built = Graph()
        self.root = fl.nn.Module()
        self.nodes: dict[str, Node] = {}
        self.values: Json = {}

    def graph(self, data: Json, signature: Json = None) -> GraphModule:
        self.values = data
        for i, entry in enumerate(data["inputs"]):
            name = self._input_name(entry, i, signature)
            node = self.built.placeholder(name)
            node.name = name
            self.nodes[name] = node
            node.meta["val"] = self._described(entry, name)
        for entry in data["nodes"]:
            self._call(entry)
        outputs = [self._value(entry) for entry in data["outputs"]]
        self.built.output(outputs[0] if data.get("is_single_tensor_return") else tuple(outputs))
        return GraphModule(self.root, self.built)

    def _input_name(self, entry: Json, i: int, signature: Json) -> str:
        ((kind, held),) = entry.items()
        if kind == "as_tensor":
            return str(held["name"])
        if kind in ("as_sym_int", "as_sym_bool", "as_sym_float") and "as_name" in held:
            return str(held["as_name"])
        if signature is not None and "constant_input" in signature["input_specs"][i]:
            return str(signature["input_specs"][i]["constant_input"]["name"])
        return f"input_{i}"

    def _described(self, entry: Json, name: str) -> Any:
        """The fake of a value."""
        ((kind, held),) = entry.items()
        if kind == "as_tensor":
            return self._tensor(self.values["tensor_values"][name])
        if kind == "as_sym_int":
            return self._size(self.values["sym_int_values"][name])
        return None if kind == "as_none" else held

    def _tensor(self, meta: Json) -> Any:
        sizes = tuple(self._size(size) for size in meta["sizes"])
        strides = tuple(self._size(size) for size in meta["strides"])
        dtype = looked_up(schema.DTYPE_OF, meta["dtype"], "dtype")
        fake = self.mode.fake_like(sizes, dtype, _device(meta["device"]), bool(meta["requires_grad"]))
        fake.geometry = Geometry(sizes, strides, self._size(meta["storage_offset"]))
        return fake

    def _size(self, size: Json) -> Any:
        if "as_int" in size:
            return int(size["as_int"])
        if "as_expr" not in size:
            return size
        expr = read_expr(size["as_expr"]["expr_str"])
        hint = (size["as_expr"].get("hint") or {}).get("as_int")
        atom = single_symbol(expr)
        if atom is not None and atom not in self.env.hints and hint is not None:
            self.env.create_symbol(int(hint), name=atom.name)
        for unbacked in expr.symbols - self.env.hints.keys() - self.env.stand_ins.keys():
            self.env.ranges.setdefault(unbacked, (0, inf))
            self.env.note_unbacked(unbacked)
        try:
            return self.env.sym_int(expr)
        except KeyError:  # of a symbol that data decides
            return SymInt(expr, self.env, hint)

    # ------------------------------------------------------------------------------------------ nodes

    def _call(self, entry: Json) -> None:
        target, args, kwargs = self._target(entry)
        name = entry.get("name") or self._result_name(entry["outputs"])
        node = self.built.create_node("call_function", target, args, kwargs, name)
        node.meta.update(_metadata(entry.get("metadata") or {}))
        outputs = entry["outputs"]
        if not outputs:
            return
        single = len(outputs) == 1 and entry.get("is_hop_single_tensor_return") is not False
        if single and "as_tensors" not in outputs[0]:
            self._name_result(outputs[0], node)
            return
        if len(outputs) == 1 and "as_tensors" in outputs[0]:
            outputs = [{"as_tensor": held} for held in outputs[0]["as_tensors"]]
        values = []  # type: ignore[var-annotated]
        for i, output in enumerate(outputs):
            if "as_none" in output:
                values.append(None)
                continue
            item = self.built.call_function(operator.getitem, (node, i))
            self._name_result(output, item)
            values.append(item.meta["val"])
        node.meta["val"] = tuple(values)

    def _result_name(self, outputs: Json) -> str | None:
        held = next(iter(outputs[0].values())) if len(outputs) == 1 else None
        return (held.get("name") or held.get("as_name")) if isinstance(held, dict) else None

    def _name_result(self, output: Json, node: Node) -> None:
        ((kind, held),) = output.items()
        if kind == "as_none":
            node.meta["val"] = None
            return
        name = held["name"] if kind == "as_tensor" else held["as_name"]
        self.nodes[name] = node
        if node.name != name:
            node.name = name
        node.meta["val"] = self._described(output, name)

    def _target(self, entry: Json) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
        text = entry["target"]
        values = [
            (argument["name"], self._value(argument["arg"]), argument.get("kind", POSITIONAL))
            for argument in entry["inputs"]
        ]
        if text in _ARITHMETIC:
            return _ARITHMETIC[text], tuple(value for _, value, _ in values), {}
        parts = text.split(".")
        if text.startswith("torch.ops.higher_order."):
            return higher_order(parts[-1]), *_by_kind(values)
        if text.startswith("torch.ops.") and len(parts) == 5:
            arguments = [Argument(name, value, kind != schema.KEYWORD) for name, value, kind in values]
            try:
                return resolve(*parts[2:], arguments)  # type: ignore[call-arg]
            except UnknownOperator:
                raise SerializeError(
                    f"[export.load] expected operators that are defined here, got {text}; an operator of your own has to "
                    "be registered before the program is loaded"
                ) from None
        raise SerializeError(f"[export.load] expected operators, got {text!r}")

    # ------------------------------------------------------------------------------------------ values

    def _value(self, argument: Json) -> Any:
        ((kind, held),) = argument.items()
        if kind == "as_none":
            return None
        if kind == "as_tensor":
            return self.nodes[held["name"]]
        if kind in ("as_tensors", "as_sym_ints", "as_sym_floats", "as_sym_bools", "as_optional_tensors"):
            return [self._item(item) for item in held]
        if kind in ("as_sym_int", "as_sym_float", "as_sym_bool", "as_optional_tensor"):
            return self._item(held)
        if kind in ("as_int", "as_bool", "as_string", "as_ints", "as_bools", "as_strings", "as_int_lists"):
            return held
        if kind in ("as_float", "as_floats", "as_float_lists"):
            return _floats(held)
        if kind == "as_scalar_type":
            return looked_up(schema.DTYPE_OF, held, "dtype")
        if kind == "as_layout":
            return looked_up(schema.LAYOUT_OF, held, "layout")
        if kind == "as_memory_format":
            return looked_up(schema.FORMAT_OF, held, "memory format")
        if kind == "as_device":
            return _device(held)
        if kind == "as_complex":
            return complex(held["real"], held["imag"])
        if kind == "as_graph":
            return self._branch(held)
        if kind == "as_nested_tensors":
            return [[self.nodes[item["name"]] for item in row] for row in held]
        raise SerializeError(f"[export.load] expected a known kind of value, got {kind!r}")

    def _item(self, item: Json) -> Any:
        if "as_name" in item:
            return self.nodes[item["as_name"]]
        if "as_tensor" in item:
            return self.nodes[item["as_tensor"]["name"]]
        if "name" in item:
            return self.nodes[item["name"]]
        return None if "as_none" in item else next(iter(item.values()))

    def _branch(self, held: Json) -> Node:
        name = str(held["name"])
        if not name.isidentifier():
            raise SerializeError(f"[export.load] expected a name for a graph, got {name!r}")
        if name not in self.root._modules:
            self.root.add_module(name, GraphReader(self.mode).graph(held["graph"]))
        return self.built.get_attr(name)


def _floats(held: Json) -> Any:
    """Numbers, of which JSON has no infinite ones: they are written as text."""
    return [_floats(item) for item in held] if isinstance(held, list) else float(held)


def _by_kind(values: list[tuple[str, Any, int]]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    args = tuple(value for _, value, kind in values if kind != schema.KEYWORD)
    return args, {name: value for name, value, kind in values if kind == schema.KEYWORD}


def _device(held: Json) -> Any:
    return fl.device(held["type"]) if held.get("index") is None else fl.device(held["type"], held["index"])


def _metadata(data: Json) -> dict[str, Any]:
    known: dict[str, Any] = {}
    if "stack_trace" in data:
        known["stack_trace"] = str(data["stack_trace"])
    if data.get("nn_module_stack"):
        stack = {}
        for entry in data["nn_module_stack"].split(";"):
            parts = entry.split(",")
            if len(parts) == 3:
                stack[parts[0]] = (parts[1], parts[2])
        known["nn_module_stack"] = stack
    return known


# ---------------------------------------------------------------------------------------------- signature


def _argument(data: Json) -> Any:
    ((kind, held),) = data.items()
    if kind == "as_tensor":
        return TensorArgument(held["name"])
    if kind in ("as_sym_int", "as_sym_float", "as_sym_bool"):
        return SymIntArgument(held["as_name"]) if "as_name" in held else ConstantArgument("", next(iter(held.values())))
    return ConstantArgument("", None if kind == "as_none" else held)


def _input_spec(data: Json) -> InputSpec:
    ((kind, held),) = data.items()
    if kind == "user_input":
        return InputSpec(InputKind.USER_INPUT, _argument(held["arg"]), None)
    if kind == "parameter":
        return InputSpec(InputKind.PARAMETER, TensorArgument(held["arg"]["name"]), held["parameter_name"])
    if kind == "buffer":
        argument = TensorArgument(held["arg"]["name"])
        return InputSpec(InputKind.BUFFER, argument, held["buffer_name"], bool(held["persistent"]))
    if kind == "tensor_constant":
        return InputSpec(InputKind.CONSTANT_TENSOR, TensorArgument(held["arg"]["name"]), held["tensor_constant_name"])
    if kind == "constant_input":
        value = held["value"]
        ((kind, plain),) = value.items()
        constant = None if kind == "as_none" else _floats(plain) if kind == "as_float" else plain
        return InputSpec(InputKind.USER_INPUT, ConstantArgument(held["name"], constant), None)
    raise SerializeError(f"[export.load] expected tensors and plain values as inputs, got {kind}")


_WRITTEN = {
    "buffer_mutation": (OutputKind.BUFFER_MUTATION, "buffer_name"),
    "parameter_mutation": (OutputKind.PARAMETER_MUTATION, "parameter_name"),
    "user_input_mutation": (OutputKind.USER_INPUT_MUTATION, "user_input_name"),
    "gradient_to_parameter": (OutputKind.GRADIENT_TO_PARAMETER, "parameter_name"),
    "gradient_to_user_input": (OutputKind.GRADIENT_TO_USER_INPUT, "user_input_name"),
}


def _output_spec(data: Json) -> OutputSpec:
    ((kind, held),) = data.items()
    if kind == "user_output":
        return OutputSpec(OutputKind.USER_OUTPUT, _argument(held["arg"]), None)
    if kind == "loss_output":
        return OutputSpec(OutputKind.LOSS_OUTPUT, TensorArgument(held["arg"]["name"]), None)
    if kind not in _WRITTEN:
        raise SerializeError(f"[export.load] expected tensors and plain values as results, got {kind}")
    output, key = _WRITTEN[kind]
    return OutputSpec(output, TensorArgument(held["arg"]["name"]), held[key])


def _module_call(data: Json) -> ModuleCallEntry:
    held = data.get("signature")
    if held is None:
        return ModuleCallEntry(data["fqn"], None)
    signature = ModuleCallSignature(
        [_argument(argument) for argument in held["inputs"]],
        [_argument(argument) for argument in held["outputs"]],
        pytree.treespec_loads(held["in_spec"]),
        pytree.treespec_loads(held["out_spec"]),
        held.get("forward_arg_names"),
    )
    return ModuleCallEntry(data["fqn"], signature)


def _read_named_tuples(fields: Json) -> None:
    """Makes classes for named tuples of the program that this process does not know."""
    for name, held in fields.items():
        try:
            pytree._namedtuple_class(name)
        except ValueError:
            cls = collections.namedtuple(name.rpartition(".")[2], held["field_names"])  # type: ignore[misc]
            pytree._register_namedtuple(cls, serialized_type_name=name)


__all__ = ["read_program", "Expr"]
