"""A program as the JSON of PyTorch's `.pt2` files.

Operators appear under ATen's names (`ops/as_aten/calls.py`). Items of tuples have no nodes of their own: a node lists the
names of its results. Values are described by a union with one key, `{"as_int": 3}`.
"""

from __future__ import annotations

import math
import operator
from typing import TYPE_CHECKING, Any, cast

import flambeau as fl
from flambeau import _C
from flambeau._ops import OpOverload
from flambeau.export._pt2 import schema
from flambeau.export._pt2.regions import with_regions
from flambeau.export._pt2.schema import KEYWORD, POSITIONAL, SerializeError
from flambeau.export._pt2.symbols import text_of
from flambeau.export._trace import type_text
from flambeau.export.graph_signature import (
    ConstantArgument,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    SymIntArgument,
)
from flambeau.fx.node import Node
from flambeau.ops.as_aten.calls import aten_call
from flambeau.ops.as_aten.names import parameter_names
from flambeau.ops.geometry import geometry_of
from flambeau.ops.symbolic.expr import Atom, Expr, substitute
from flambeau.ops.symbolic.numbers import SymBool, SymFloat, SymInt
from flambeau.ops.symbolic.printing import python_condition
from flambeau.utils import _pytree as pytree

if TYPE_CHECKING:
    from flambeau.export.exported_program import ExportedProgram

Json = Any
_SYMBOLIC = (SymInt, SymFloat, SymBool)


def program_json(program: ExportedProgram) -> Json:
    """The document of a program."""
    writer = GraphWriter(program._substitutions)
    graph = writer.graph(program.graph_module)
    ranges = {}
    for atom, (low, high) in program._ranges.items():
        bounds = [None if abs(bound) == float("inf") else int(bound) for bound in (low, high)]
        ranges[atom.name] = dict(zip(("min_val", "max_val"), bounds))
    return {
        "graph_module": {
            "graph": graph,
            "signature": {
                "input_specs": [_input_spec(spec) for spec in program.graph_signature.input_specs],
                "output_specs": [_output_spec(spec) for spec in program.graph_signature.output_specs],
            },
            "module_call_graph": [_module_call(entry) for entry in program.module_call_graph],
            "metadata": {},
            "treespec_namedtuple_fields": _named_tuples(program),
        },
        "opset_version": {"aten": schema.ATEN_VERSION},
        "range_constraints": ranges,
        "schema_version": {"major": schema.SCHEMA_VERSION[0], "minor": schema.SCHEMA_VERSION[1]},
        "verifiers": [program.dialect],
        "torch_version": schema.TORCH_VERSION,
        "guards_code": _guards(program),
    }


# ---------------------------------------------------------------------------------------------- the graph


class GraphWriter:
    """Writes graphs; those of branches and loops inside of others."""

    def __init__(self, substitutions: dict[Atom, Expr]) -> None:
        self.substitutions = substitutions
        self.tensors: dict[str, Json] = {}
        self.sizes: dict[str, Json] = {}
        self.floats: dict[str, Json] = {}
        self.booleans: dict[str, Json] = {}
        self.nodes: list[Json] = []
        self.grad = True
        self.values: dict[Node, Any] = {}

    def graph(self, module: Any, inner: bool = False) -> Json:
        module = with_regions(module)
        nodes = list(module.graph.nodes)
        inputs = [self._graph_input(node) for node in nodes if node.op == "placeholder"]
        for node in nodes:
            if node.op == "call_function":
                self._call(node, module)
        (output,) = (node for node in nodes if node.op == "output")
        results = output.args[0]
        single = isinstance(results, Node)
        return {
            "inputs": inputs,
            "outputs": [self._argument(value) for value in ((results,) if single else results)],
            "nodes": self.nodes,
            "tensor_values": self.tensors,
            "sym_int_values": self.sizes,
            "sym_bool_values": self.booleans,
            "is_single_tensor_return": single,
            "custom_obj_values": {},
            "sym_float_values": self.floats,
        }

    def _graph_input(self, node: Node) -> Json:
        value = node.meta.get("val")
        if isinstance(value, (fl.Tensor, *_SYMBOLIC)):
            return self._result(node.name, value)
        return self._argument(value)

    # ------------------------------------------------------------------------------------------ nodes

    def _call(self, node: Node, module: Any) -> None:
        target = node.target
        if target is operator.getitem:
            return
        if target is _C._set_grad_enabled:
            self.grad = bool(node.args[0])
            return
        if isinstance(target, OpOverload):
            self._operator(node)
        elif getattr(target, "is_higher_order", False):
            self._higher_order(node, module)
        else:
            self._arithmetic(node)

    def _emit(
        self, node: Node, target: str, inputs: list[Json], outputs: list[Json], single: bool | None = None
    ) -> None:
        self.nodes.append(
            {
                "target": target,
                "inputs": inputs,
                "outputs": outputs,
                "metadata": _metadata(node),
                "is_hop_single_tensor_return": single,
                "name": node.name,
            }
        )

    def _operator(self, node: Node) -> None:
        full: Any = node.target
        call = aten_call(full, node.args, dict(node.kwargs), _stands_for_tensor)
        space = full.namespace
        name = call.name if "." in call.name else f"{call.name}.default"
        if space != "aten":
            name = f"{full._opname}.{full._overloadname}"
        inputs = [self._named(key, value, POSITIONAL) for key, value in call.args.items()]
        inputs += [self._named(key, value, KEYWORD) for key, value in call.kwargs.items()]
        outputs = self._outputs(node)
        self._emit(node, f"torch.ops.{space}.{name}", inputs, outputs)
        if not self.grad:
            self._detach_results(node)

    def _detach_results(self, node: Node) -> None:
        """What was computed with gradients switched off carries none: each result is detached."""
        entry, overload = self.nodes[-1], cast(OpOverload, node.target)
        names = [out["as_tensor"]["name"] for out in entry["outputs"] if "as_tensor" in out]
        if any(a.is_written for a in overload._schema.arguments):
            return
        for name in names:
            if self.tensors[name]["dtype"] not in (6, 7, 8, 9, 10, 11, 13):
                continue
            raw = f"{name}_with_grad"
            self.tensors[raw] = self.tensors[name]
            for out in entry["outputs"]:
                if out.get("as_tensor", {}).get("name") == name:
                    out["as_tensor"] = {"name": raw}
            inputs = [{"name": "self", "arg": {"as_tensor": {"name": raw}}, "kind": POSITIONAL}]
            outputs = [{"as_tensor": {"name": name}}]
            self.nodes.append({**entry, "target": "torch.ops.aten.detach.default", "inputs": inputs, "outputs": outputs,
                               "name": name})  # fmt: skip
        if len(names) == 1 and entry["name"] == names[0]:
            entry["name"] = f"{names[0]}_with_grad"

    def _arithmetic(self, node: Node) -> None:
        """Arithmetic on sizes."""
        target = _target_text(node.target)
        names = parameter_names(node.target) or ["a", "b", "c"]
        inputs = [self._named(name, value, POSITIONAL) for name, value in zip(names, node.args)]
        value = self._value(node)
        self._emit(node, target, inputs, [] if value is None else [self._result(node.name, value)])

    def _higher_order(self, node: Node, module: Any) -> None:
        inputs = [{"name": "", "arg": self._argument(value, module), "kind": POSITIONAL} for value in node.args]
        value = node.meta.get("val")
        single, target = isinstance(value, fl.Tensor), cast(Any, node.target)
        outputs = [self._result(node.name, value)] if single else self._items(node, value)
        self._emit(node, f"torch.ops.higher_order.{target.__name__}", inputs, outputs, single)

    def _outputs(self, node: Node) -> list[Json]:
        returns = cast(OpOverload, node.target)._schema.returns
        value = node.meta.get("val")
        if not returns:
            return []
        if len(returns) == 1 and isinstance(value, (list, tuple)):
            return [{"as_tensors": [item["as_tensor"] for item in self._items(node, value)]}]
        if isinstance(value, (list, tuple)):
            return self._items(node, value)
        return [self._result(node.name, value)]

    def _items(self, node: Node, values: Any) -> list[Json]:
        """Results of a tuple, under the names of the nodes that fetch them."""
        fetched = {user.args[1]: user.name for user in node.users if user.target is operator.getitem}
        return [self._result(fetched.get(i, f"{node.name}_unused_{i}"), value) for i, value in enumerate(values)]

    # ------------------------------------------------------------------------------------------ values

    def _result(self, name: str, value: Any) -> Json:
        """A new value with its description."""
        if isinstance(value, fl.Tensor):
            self.tensors[name] = self.tensor_meta(value)
            return {"as_tensor": {"name": name}}
        if isinstance(value, SymInt) or type(value) is int:
            self.sizes[name] = self._size(value)
            return {"as_sym_int": {"as_name": name}}
        if isinstance(value, (SymBool, bool)):
            self.booleans[name] = _unknown(value) or {"as_bool": bool(value)}
            return {"as_sym_bool": {"as_name": name}}
        if isinstance(value, (SymFloat, float)):
            self.floats[name] = _unknown(value) or {"as_float": float(value)}
            return {"as_sym_float": {"as_name": name}}
        if value is None:
            return {"as_none": True}
        raise SerializeError(f"[export.save] expected tensors and numbers as results, got {type(value).__name__}")

    def tensor_meta(self, value: Any) -> Json:
        sizes, strides, offset = geometry_of(value)
        device = fl.device(getattr(value, "fake_device", None) or value.device)
        layout = fl.strided if type(value).__name__ == "FakeTensor" else value.layout
        return {
            "dtype": schema.DTYPE_NUMBER[value.dtype],
            "sizes": [self._size(size) for size in sizes],
            "requires_grad": bool(value.requires_grad),
            "device": {"type": device.type, "index": device.index},
            "strides": [self._size(size) for size in strides],
            "storage_offset": self._size(offset),
            "layout": schema.LAYOUT_NUMBER[layout],
        }

    def _size(self, value: Any) -> Json:
        if not isinstance(value, SymInt):
            return {"as_int": int(value)}
        expr = substitute(value.env.simplify(value.expr), self.substitutions)
        if expr.is_constant:
            return {"as_int": expr.constant}
        hint = value.hint
        return {"as_expr": {"expr_str": text_of(expr), "hint": None if hint is None else {"as_int": int(hint)}}}

    def _value(self, value: Any) -> Any:
        """The symbolic value of a node that computes with sizes."""
        if not isinstance(value, Node):
            return value
        if "val" in value.meta:
            return value.meta["val"]
        if value not in self.values:
            function: Any = value.target
            self.values[value] = function(*(self._value(arg) for arg in value.args))
        return self.values[value]

    def _named(self, name: str, value: Any, kind: int) -> Json:
        return {"name": name, "arg": self._argument(value), "kind": kind}

    def _argument(self, value: Any, module: Any = None) -> Json:
        if isinstance(value, Node):
            return self._node_argument(value, module)
        if value is None:
            return {"as_none": True}
        for kind, write in _PLAIN:
            if isinstance(value, kind):
                return write(value)
        if isinstance(value, (list, tuple)):
            return self._list(list(value))
        raise SerializeError(f"[export.save] expected a plain value, got {type(value).__name__}")

    def _node_argument(self, node: Node, module: Any) -> Json:
        if node.op == "get_attr":
            inner = GraphWriter(self.substitutions)
            return {"as_graph": {"name": node.target, "graph": inner.graph(getattr(module, str(node.target)), True)}}
        value = self._value(node)
        if isinstance(value, fl.Tensor):
            return {"as_tensor": {"name": node.name}}
        if isinstance(value, (list, tuple)):
            return {"as_tensors": [item["as_tensor"] for item in self._items(node, value)]}
        if node.op == "placeholder" and not isinstance(value, _SYMBOLIC):
            return self._argument(value)
        kind = "as_sym_bool" if isinstance(value, (SymBool, bool)) else "as_sym_float" if isinstance(value, (SymFloat, float)) else "as_sym_int"  # fmt: skip
        return {kind: {"as_name": node.name}}

    def _list(self, values: list[Any]) -> Json:
        items = [self._argument(value) for value in values]
        kinds = {next(iter(item)) for item in items}
        if not kinds:
            return {"as_ints": []}
        if kinds == {"as_tensor"}:
            return {"as_tensors": [item["as_tensor"] for item in items]}
        if kinds <= {"as_tensor", "as_none"}:
            return {"as_optional_tensors": items}
        if (kinds <= {"as_int", "as_sym_int"} and len(kinds) > 1) or kinds == {"as_sym_int"}:
            return {"as_sym_ints": [item.get("as_sym_int", item) for item in items]}
        if kinds <= {"as_int", "as_float"} and len(kinds) > 1:
            return {"as_floats": [_float_json(float(value)) for value in values]}
        if kinds <= {"as_tensor", "as_int", "as_sym_int", "as_float", "as_bool"} and len(kinds) > 1:
            raise SerializeError("[export.save] expected a list of values of one kind, got several kinds")
        (kind,) = kinds
        if kind in ("as_int", "as_float", "as_bool", "as_string"):
            return {f"{kind}s": [item[kind] for item in items]}
        if kind in ("as_ints", "as_floats"):
            return {f"{kind[:-1]}_lists": [item[kind] for item in items]}
        raise SerializeError(f"[export.save] expected a list of tensors or numbers, got one of {kind}")


def _float_json(value: float) -> Json:
    """JSON has no infinite numbers: PyTorch writes them as text."""
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _device_json(value: Any) -> Json:
    return {"as_device": {"type": value.type, "index": value.index}}


# bool before int, of which it is a kind.
_PLAIN: list[tuple[Any, Any]] = [
    (bool, lambda v: {"as_bool": v}),
    (int, lambda v: {"as_int": v}),
    (float, lambda v: {"as_float": _float_json(v)}),
    (str, lambda v: {"as_string": v}),
    (complex, lambda v: {"as_complex": {"real": v.real, "imag": v.imag}}),
    (type(fl.float32), lambda v: {"as_scalar_type": schema.DTYPE_NUMBER[v]}),
    (type(fl.strided), lambda v: {"as_layout": schema.LAYOUT_NUMBER[v]}),
    (type(fl.contiguous_format), lambda v: {"as_memory_format": schema.FORMAT_NUMBER[v]}),
    (fl.device, _device_json),
]


def _stands_for_tensor(value: Any) -> bool:
    return isinstance(value, Node) and isinstance(value.meta.get("val"), fl.Tensor)


def _unknown(value: Any) -> Json:
    """A float or a condition that depends on data."""
    if isinstance(value, (SymBool, SymFloat)) and value.hint is None:
        return {"as_expr": {"expr_str": str(value), "hint": None}}
    return None


# Arithmetic on sizes by Python's own functions.
_BUILTIN: dict[Any, str] = {
    max: "torch.sym_max", min: "torch.sym_min", float: "torch.sym_float", math.sqrt: "torch.sym_sqrt", abs: "_operator.abs",
}  # fmt: skip


def _target_text(target: Any) -> str:
    if getattr(target, "namespace", None) == "aten":
        return f"torch.ops.aten.{target.__name__}"
    if target is fl.Tensor.size:
        return "torch.ops.aten.sym_size.int"
    for name in ("sym_max", "sym_min", "sym_int", "sym_float", "sym_not"):
        if target is getattr(fl, name, None):
            return f"torch.{name}"
    if target in _BUILTIN:
        return _BUILTIN[target]
    name = getattr(target, "__name__", "")
    if getattr(math, name, None) is target:
        return f"math.{name}"
    if getattr(operator, name, None) is target:
        return f"_operator.{name}"
    raise SerializeError(f"[export.save] expected operators, got {getattr(target, '__name__', target)}()")


def _metadata(node: Node) -> dict[str, str]:
    known: dict[str, str] = {}
    if node.meta.get("stack_trace"):
        known["stack_trace"] = str(node.meta["stack_trace"])
    stack = node.meta.get("nn_module_stack") or _ROOT  # readers want to know a module of every node
    entries = [(key, path, type_text(kind)) for key, (path, kind) in stack.items()]
    known["nn_module_stack"] = ";".join(",".join(entry) for entry in entries)
    return known


_ROOT = {"L__self__": ("", "torch.nn.modules.module.Module")}


# ---------------------------------------------------------------------------------------------- signature


def _spec_argument(argument: Any) -> Json:
    if isinstance(argument, ConstantArgument):
        return {"as_none": True} if argument.value is None else _constant(argument.value)
    if isinstance(argument, SymIntArgument):
        return {"as_sym_int": {"as_name": argument.name}}
    return {"as_tensor": {"name": argument.name}}


def _constant(value: Any) -> Json:
    for kind, write in _PLAIN[:4]:
        if isinstance(value, kind):
            return write(value)
    if value is None:
        return {"as_none": True}
    raise SerializeError(f"[export.save] expected tensors and plain values, got {type(value).__name__}")


def _input_spec(spec: InputSpec) -> Json:
    tensor = {"name": spec.arg.name}
    if spec.kind is InputKind.USER_INPUT:
        if isinstance(spec.arg, ConstantArgument):
            return {"constant_input": {"name": spec.arg.name, "value": _constant(spec.arg.value)}}
        return {"user_input": {"arg": _spec_argument(spec.arg)}}
    if spec.kind is InputKind.PARAMETER:
        return {"parameter": {"arg": tensor, "parameter_name": spec.target}}
    if spec.kind is InputKind.BUFFER:
        return {"buffer": {"arg": tensor, "buffer_name": spec.target, "persistent": bool(spec.persistent)}}
    if spec.kind is InputKind.CONSTANT_TENSOR:
        return {"tensor_constant": {"arg": tensor, "tensor_constant_name": spec.target}}
    raise SerializeError(f"[export.save] expected tensors as inputs, got {spec.kind.name}")


_WRITTEN = {
    OutputKind.BUFFER_MUTATION: ("buffer_mutation", "buffer_name"),
    OutputKind.PARAMETER_MUTATION: ("parameter_mutation", "parameter_name"),
    OutputKind.USER_INPUT_MUTATION: ("user_input_mutation", "user_input_name"),
    OutputKind.GRADIENT_TO_PARAMETER: ("gradient_to_parameter", "parameter_name"),
    OutputKind.GRADIENT_TO_USER_INPUT: ("gradient_to_user_input", "user_input_name"),
}


def _output_spec(spec: OutputSpec) -> Json:
    if spec.kind is OutputKind.USER_OUTPUT:
        return {"user_output": {"arg": _spec_argument(spec.arg)}}
    if spec.kind is OutputKind.LOSS_OUTPUT:
        return {"loss_output": {"arg": {"name": spec.arg.name}}}
    kind, key = _WRITTEN[spec.kind]
    return {kind: {"arg": {"name": spec.arg.name}, key: spec.target}}


def _module_call(entry: Any) -> Json:
    signature = entry.signature
    if signature is None:
        return {"fqn": entry.fqn, "signature": None}
    return {
        "fqn": entry.fqn,
        "signature": {
            "inputs": [_spec_argument(argument) for argument in signature.inputs],
            "outputs": [_spec_argument(argument) for argument in signature.outputs],
            "in_spec": pytree.treespec_dumps(signature.in_spec),
            "out_spec": pytree.treespec_dumps(signature.out_spec),
            "forward_arg_names": signature.forward_arg_names,
        },
    }


def _named_tuples(program: ExportedProgram) -> Json:
    """The fields of named tuples among arguments and results."""
    fields: dict[str, Json] = {}

    def walk(spec: Any) -> None:
        if spec.type is not None and hasattr(spec.context, "_fields"):
            fields[pytree._namedtuple_name(spec.context)] = {"field_names": list(spec.context._fields)}
        for child in spec.children():
            walk(child)

    for entry in program.module_call_graph:
        if entry.signature is not None:
            walk(entry.signature.in_spec)
            walk(entry.signature.out_spec)
    return fields


def _guards(program: ExportedProgram) -> list[str]:
    """Conditions over sizes of inputs, as Python text that a call is held to."""
    places = program._size_places()
    return [
        python_condition(condition, lambda atom: places[atom])
        for condition in program._checks
        if condition.symbols <= places.keys()
    ]
