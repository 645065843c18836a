"""Exported programs in files: a zip archive of JSON (the graph, the signature, sizes) and a checkpoint with the tensors.

Reading runs no code: operators are looked up by name, and what is no known kind of value is refused.
"""

from __future__ import annotations

import io
import json
import operator
import os
import zipfile
from math import inf
from typing import Any

import flambeau as fl
from flambeau._dynamo.functions import AUTOCAST_SWITCHES
from flambeau._ops import OpOverload
from flambeau.export._trace import run_branch
from flambeau.export.exported_program import CallSpec, ExportedProgram, InputFacts
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
from flambeau.ops.symbolic import condition as conditions
from flambeau.ops.symbolic.condition import Condition
from flambeau.ops.symbolic.expr import Atom, Expr, constant, floordiv, maximum, minimum, single_symbol, symbol
from flambeau.utils import _pytree as pytree

VERSION = 1
_OPERATORS = {
    f"operator.{name}": getattr(operator, name)
    for name in "add sub mul floordiv mod neg getitem eq ne lt le gt ge truediv pow".split()
}
_OPERATORS |= {"Tensor.size": fl.Tensor.size, "sym_max": fl.sym_max, "sym_min": fl.sym_min, "cond": run_branch}
_OPERATORS |= {f"switch.{function.__name__}": function for function in (fl._C._set_grad_enabled, *AUTOCAST_SWITCHES)}
_ARGUMENTS = {"tensor": TensorArgument, "number": SymIntArgument}
_NAMED = {"dtype": type(fl.float32), "layout": type(fl.strided), "memory_format": type(fl.contiguous_format)}


def save(ep: ExportedProgram, f: Any, *, extra_files: dict[str, Any] | None = None, **ignored: Any) -> None:
    """Writes a program to a file or path."""
    if not isinstance(ep, ExportedProgram):
        raise TypeError(f"[export.save] expected an ExportedProgram, got {type(ep).__name__}")
    examples, spec = pytree.tree_flatten(ep.example_inputs)
    tensors = {
        "state": dict(ep.state_dict),
        "constants": dict(ep.constants),
        "examples": {str(i): v for i, v in enumerate(examples) if isinstance(v, fl.Tensor)},
    }
    held = io.BytesIO()
    fl.save(tensors, held)
    text = json.dumps(
        {
            "version": VERSION,
            "nodes": _graph(ep.graph_module),
            "inputs": [_input(spec) for spec in ep.graph_signature.input_specs],
            "outputs": [[o.kind.name, _argument(o.arg), o.target] for o in ep.graph_signature.output_specs],
            "in_spec": pytree.treespec_dumps(ep.call_spec.in_spec),
            "out_spec": pytree.treespec_dumps(ep.call_spec.out_spec),
            "facts": [_facts(facts) for facts in ep._facts],
            "ranges": [
                [_expr(_of(atom)), low, None if high == inf else high] for atom, (low, high) in ep._ranges.items()
            ],
            "checks": [_condition(check) for check in ep._checks],
            "example_spec": pytree.treespec_dumps(spec),
            "examples": [None if isinstance(v, fl.Tensor) else _value(v) for v in examples],
        }
    )
    target = f if hasattr(f, "write") else os.fspath(f)
    with zipfile.ZipFile(target, "w") as archive:
        archive.writestr("program.json", text)
        archive.writestr("tensors.pt", held.getvalue())
        for name, value in (extra_files or {}).items():
            archive.writestr(f"extra/{name}", value)


def load(f: Any, *, extra_files: dict[str, Any] | None = None, **ignored: Any) -> ExportedProgram:
    """Reads a program that `save` wrote."""
    with zipfile.ZipFile(f if hasattr(f, "read") else os.fspath(f)) as archive:
        if "program.json" not in archive.namelist():
            raise ValueError("[export.load] expected a file that export.save wrote, got another archive")
        data = json.loads(archive.read("program.json"))
        if data["version"] != VERSION:
            raise ValueError(f"[export.load] expected version {VERSION} of the format, got {data['version']}")
        tensors = fl.load(io.BytesIO(archive.read("tensors.pt")), weights_only=True)
        for name in extra_files or ():
            extra_files[name] = archive.read(f"extra/{name}").decode()  # type: ignore[index]
    nodes: dict[str, Node] = {}
    module = _read_graph(data["nodes"], nodes)
    inputs = [InputSpec(InputKind[k], _read_argument(a), t, p) for k, a, t, p in data["inputs"]]
    outputs = [OutputSpec(OutputKind[k], _read_argument(a), t) for k, a, t in data["outputs"]]
    examples = [
        tensors["examples"][str(i)] if str(i) in tensors["examples"] else _read(v, nodes)
        for i, v in enumerate(data["examples"])
    ]
    ranges = {_symbol_of(e): (low, inf if high is None else high) for e, low, high in data["ranges"]}
    return ExportedProgram(
        module,
        ExportGraphSignature(inputs, outputs),
        tensors["state"],
        tensors["constants"],
        CallSpec(pytree.treespec_loads(data["in_spec"]), pytree.treespec_loads(data["out_spec"])),
        [_read_facts(entry) for entry in data["facts"]],
        ranges,
        [_read_condition(entry) for entry in data["checks"]],
        pytree.tree_unflatten(examples, pytree.treespec_loads(data["example_spec"])),
    )


# ---------------------------------------------------------------------------------------------- nodes


def _target(target: Any) -> str:
    if isinstance(target, OpOverload):
        return f"ops.{target.namespace}.{target._full_name}"
    for name, function in _OPERATORS.items():
        if function == target:
            return name
    raise NotImplementedError(f"[export.save] expected operators, got a call of {target}")


def _read_target(name: str) -> Any:
    if name in _OPERATORS:
        return _OPERATORS[name]
    kind, namespace, packet, *overload = name.split(".")
    if kind != "ops":
        raise ValueError(f"[export.load] expected the name of an operator, got {name!r}")
    return getattr(getattr(getattr(fl.ops, namespace), packet), overload[0] if overload else "default")


def _graph(module: Any) -> list[dict[str, Any]]:
    return [_node(module, node) for node in module.graph.nodes]


def _node(module: Any, node: Node) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "op": node.op,
        "name": node.name,
        "args": _value(node.args),
        "kwargs": _value(dict(node.kwargs)),
    }
    entry["target"] = _target(node.target) if node.op == "call_function" else node.target
    if node.op == "get_attr":  # a branch of cond()
        entry["graph"] = _graph(getattr(module, node.target))
    return entry


def _read_graph(entries: list[dict[str, Any]], nodes: dict[str, Node]) -> GraphModule:
    graph, root = Graph(), fl.nn.Module()
    for entry in entries:
        kind = entry["op"]
        if kind not in ("placeholder", "call_function", "output", "get_attr"):
            raise ValueError(f"[export.load] expected a graph of operators, got a node {kind!r}")
        if kind == "get_attr":
            root.add_module(entry["target"], _read_graph(entry["graph"], {}))
        target = _read_target(entry["target"]) if kind == "call_function" else entry["target"]
        args, kwargs = _read(entry["args"], nodes), _read(entry["kwargs"], nodes)
        nodes[entry["name"]] = graph.create_node(kind, target, args, kwargs, name=entry["name"])
    return GraphModule(root, graph)


def _value(value: Any) -> Any:
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return {"float": value.hex()}
    if isinstance(value, complex):
        return {"complex": [value.real.hex(), value.imag.hex()]}
    if isinstance(value, Node):
        return {"node": value.name}
    if isinstance(value, (list, tuple)):
        return {"list" if isinstance(value, list) else "tuple": [_value(v) for v in value]}
    if isinstance(value, dict):
        return {"dict": [[_value(k), _value(v)] for k, v in value.items()]}
    if isinstance(value, slice):
        return {"slice": [_value(v) for v in (value.start, value.stop, value.step)]}
    if isinstance(value, fl.device):
        return {"device": str(value)}
    for kind, cls in _NAMED.items():
        if isinstance(value, cls):
            return {kind: str(value).rpartition(".")[2]}
    raise NotImplementedError(f"[export.save] expected a plain value, got {type(value).__name__}")


def _read(data: Any, nodes: dict[str, Node]) -> Any:
    if not isinstance(data, dict):
        return data
    ((kind, held),) = data.items()
    if kind == "node":
        return nodes[held]
    if kind == "float":
        return float.fromhex(held)
    if kind == "complex":
        return complex(*map(float.fromhex, held))
    if kind in ("list", "tuple"):
        items = [_read(v, nodes) for v in held]
        return items if kind == "list" else tuple(items)
    if kind == "dict":
        return {_read(k, nodes): _read(v, nodes) for k, v in held}
    if kind == "slice":
        return slice(*(_read(v, nodes) for v in held))
    if kind == "device":
        return fl.device(held)
    found = getattr(fl, held, None)
    if kind not in _NAMED or not isinstance(found, _NAMED[kind]):
        raise ValueError(f"[export.load] expected a known kind of value, got {kind!r} {held!r}")
    return found


# ---------------------------------------------------------------------------------------------- signature and sizes


def _argument(argument: Any) -> Any:
    if isinstance(argument, ConstantArgument):
        return ["constant", argument.name, _value(argument.value)]
    return ["tensor" if isinstance(argument, TensorArgument) else "number", argument.name]


def _read_argument(data: Any) -> Any:
    kind, name, *value = data
    return ConstantArgument(name, _read(value[0], {})) if kind == "constant" else _ARGUMENTS[kind](name)


def _input(spec: InputSpec) -> Any:
    return [spec.kind.name, _argument(spec.arg), spec.target, spec.persistent]


def _facts(facts: InputFacts) -> Any:
    shape = None if facts.shape is None else [_expr(s) if isinstance(s, Expr) else s for s in facts.shape]
    return [facts.name, None if facts.dtype is None else _value(facts.dtype), shape, _value(facts.value)]


def _read_facts(data: Any) -> InputFacts:
    name, dtype, shape, value = data
    sizes = None if shape is None else tuple(_read_expr(s) if isinstance(s, list) else s for s in shape)
    return InputFacts(name, _read(dtype, {}), sizes, _read(value, {}))


def _of(atom: Atom) -> Expr:
    return symbol(atom.name, atom.lower)


def _symbol_of(data: Any) -> Atom:
    atom = single_symbol(_read_expr(data))
    assert atom is not None
    return atom


def _expr(expr: Expr) -> Any:
    return [[factor, [_atom(atom) for atom in monomial]] for monomial, factor in expr.terms.items()]


def _atom(atom: Atom) -> Any:
    if atom.kind == "symbol":
        return [atom.name, None if atom.lower == -inf else atom.lower]
    return [atom.kind, *(_expr(arg) for arg in atom.args)]


def _read_expr(data: Any) -> Expr:
    total = constant(0)
    for factor, atoms in data:
        term = constant(factor)
        for atom in atoms:
            term = term * _read_atom(atom)
        total = total + term
    return total


def _read_atom(data: Any) -> Expr:
    kind, *rest = data
    if len(rest) == 1 and not isinstance(rest[0], list):
        return symbol(kind, -inf if rest[0] is None else rest[0])
    parts = [_read_expr(part) for part in rest]
    if kind == "floordiv":
        return floordiv(*parts)
    return {"max": maximum, "min": minimum}[kind](*parts)


def _condition(condition: Condition) -> Any:
    if condition.kind in ("and", "or"):
        return [condition.kind, [_condition(part) for part in condition.parts]]
    return [condition.kind, _expr(condition.expr)]


def _read_condition(data: Any) -> Condition:
    kind, held = data
    if kind in ("and", "or"):
        join = conditions.conjunction if kind == "and" else conditions.disjunction
        return join(*(_read_condition(part) for part in held))
    return conditions.COMPARISONS[kind](_read_expr(held))
