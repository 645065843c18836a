"""Names of `torch._C` that concern scripts: the classes of graphs and types, signatures of operators, passes over graphs."""

from __future__ import annotations

from typing import Any

from flambeau.jit import _schemas
from flambeau.jit._functions import BoundMethod as ScriptMethod
from flambeau.jit._functions import ScriptFunction
from flambeau.jit._ir import Block, Graph, Node, Use, Value
from flambeau.jit._modules import ModuleView as ScriptModule
from flambeau.jit._passes import eliminate_dead_code, fold_branches, inline_calls, pool_constants
from flambeau.jit._script import CompilationUnit
from flambeau.jit._types import (
    AnyType,
    BoolType,
    ClassType,
    ComplexType,
    DeviceObjType,
    DictType,
    EnumType,
    FloatType,
    FutureType,
    InterfaceType,
    IntType,
    JitType,
    ListType,
    NoneType,
    NumberType,
    OptionalType,
    StringType,
    TensorType,
    TupleType,
    UnionType,
)
from flambeau.jit._values import ScriptDict, ScriptList, ScriptObject, to_script

Type = JitType
Argument = _schemas.Argument
_inline_everything = [False]


def _jit_pass_dce(graph: Graph) -> None:
    eliminate_dead_code(graph)


def _jit_pass_inline(graph: Graph) -> None:
    inline_calls(graph)


def _jit_pass_lint(graph: Graph) -> None:
    graph.lint()


def _jit_pass_constant_pooling(graph: Graph) -> None:
    pool_constants(graph)


def _jit_pass_constant_propagation(graph: Graph) -> None:
    fold_branches(graph)


def _jit_get_schemas_for_operator(name: str) -> list[Any]:
    return list(_schemas.signatures(name))


def _jit_get_all_schemas() -> list[Any]:
    if not _schemas._lines:
        _schemas._load()
    return [signature for name in _schemas._lines for signature in _schemas.signatures(name)]


def _jit_get_inline_everything_mode() -> bool:
    return _inline_everything[0]


def _jit_set_inline_everything_mode(enabled: bool) -> None:
    """Remembered; graphs are inlined on request, by `inlined_graph`."""
    _inline_everything[0] = enabled


def _jit_assert_is_instance(obj: Any, kind: JitType) -> None:
    """Raise RuntimeError unless a value is of a type."""
    to_script(obj, kind)


def _get_graph_executor_optimize(enabled: bool | None = None) -> bool:
    return True


__all__ = [
    "AnyType", "Argument", "Block", "BoolType", "ClassType", "CompilationUnit", "ComplexType", "DeviceObjType", "DictType", "EnumType", "FloatType", "FutureType", "Graph",
    "IntType", "InterfaceType", "JitType", "ListType", "Node", "NoneType", "NumberType", "OptionalType", "ScriptDict", "ScriptFunction", "ScriptList", "ScriptMethod", "ScriptModule",
    "ScriptObject", "StringType", "TensorType", "TupleType", "Type", "UnionType", "Use", "Value", "_get_graph_executor_optimize", "_jit_assert_is_instance", "_jit_get_all_schemas",
    "_jit_get_inline_everything_mode", "_jit_get_schemas_for_operator", "_jit_pass_constant_pooling", "_jit_pass_constant_propagation", "_jit_pass_dce", "_jit_pass_inline",
    "_jit_pass_lint", "_jit_set_inline_everything_mode",
]  # fmt: skip
