"""Names of `torch._C` that concern scripts: the classes of graphs and types, signatures of operators, passes over graphs."""

from __future__ import annotations

from typing import Any

from flambeau.jit import _schemas
from flambeau.jit._evaluate import erase_types, fold_constants, propagate_types
from flambeau.jit._functions import BoundMethod as ScriptMethod  # noqa: F401
from flambeau.jit._functions import ScriptFunction
from flambeau.jit._ir import Block, Graph, Node, Use, Value  # noqa: F401
from flambeau.jit._modules import ModuleView as ScriptModule  # noqa: F401
from flambeau.jit._passes import eliminate_dead_code, inline_calls, pool_constants
from flambeau.jit._peephole import eliminate_common, lower_tuples, peephole
from flambeau.jit._script import CompilationUnit  # noqa: F401
from flambeau.jit._types import (  # noqa: F401
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
from flambeau.jit._values import ScriptDict, ScriptList, ScriptObject, to_script  # noqa: F401

Type = JitType
Argument = _schemas.Argument
_inline_everything = [False]


def _jit_pass_dce(graph: Graph) -> None:
    eliminate_dead_code(graph)


_jit_pass_dce_graph = _jit_pass_dce


def _jit_pass_inline(graph: Graph) -> None:
    inline_calls(graph)


def _jit_pass_lint(graph: Graph) -> None:
    graph.lint()


def _jit_pass_constant_pooling(graph: Graph) -> None:
    pool_constants(graph)


def _jit_pass_constant_propagation(graph: Graph) -> None:
    fold_constants(graph)


_jit_pass_constant_propagation_immutable_types = _jit_pass_constant_propagation


def _jit_pass_peephole(graph: Graph, disable_shape_peepholes: bool = False) -> bool:
    return peephole(graph, disable_shape_peepholes)


def _jit_pass_peephole_list_idioms(graph: Graph, refine_list_len: bool = False) -> bool:
    return peephole(graph, True)


def _jit_pass_cse(graph: Graph) -> bool:
    return eliminate_common(graph)


def _jit_pass_canonicalize(graph: Graph, keep_unique_names: bool = True) -> Graph:
    """The graph with values that are numbered in order."""
    twin = graph.copy()
    twin.renumber()
    return twin


def _jit_pass_lower_all_tuples(graph: Graph) -> None:
    lower_tuples(graph)


def _jit_pass_erase_shape_information(graph: Graph) -> None:
    erase_types(graph)


def _jit_erase_non_input_shape_information(graph: Graph) -> None:
    erase_types(graph, inputs=False)


def _jit_pass_propagate_shapes_on_graph(graph: Graph) -> None:
    propagate_types(graph)


_jit_pass_propagate_dtype = _jit_pass_propagate_shapes_on_graph


def _jit_pass_complete_shape_analysis(graph: Graph, inputs: Any, with_grad: bool) -> None:
    """Give the inputs the types of examples and the other values what follows."""
    for value, example in zip(graph.inputs(), inputs):
        if hasattr(example, "dtype"):
            value.inferTypeFrom(example)
    propagate_types(graph)


def _propagate_shapes(graph: Graph, inputs: Any, with_grad: bool = False) -> Graph:
    twin = graph.copy()
    _jit_pass_complete_shape_analysis(twin, inputs, with_grad)
    return twin


def _create_function_from_graph(name: str, graph: Graph) -> ScriptFunction:
    """A function that runs a graph."""
    from flambeau.jit._frontend.callables import unique_name
    from flambeau.jit._functions import Function

    arguments = [_schemas.Argument(v.debugName().partition(".")[0], v.type()) for v in graph.inputs()]
    results = [v.type() for v in graph.outputs()]
    kind = results[0] if len(results) == 1 else TupleType(results)
    signature = _schemas.Signature(name, "", arguments, [_schemas.Argument("", kind)])
    return ScriptFunction(Function.of_graph(unique_name(f"__torch__.{name}"), graph, signature))


def _freeze_module(
    module: Any, preservedAttrs: Any = (), freezeInterfaces: bool = True, preserveParameters: bool = False
) -> Any:
    from flambeau.jit._freeze import freeze

    return freeze(getattr(module, "module", module), list(preservedAttrs), False, preserveParameters)._c


def _infer_size(a: Any, b: Any) -> Any:
    import flambeau

    return flambeau.broadcast_shapes(tuple(a), tuple(b))


# ---------------------------------------------------------------------------------------------- switches


def _switch(name: str, value: Any) -> tuple[Any, Any]:
    """A setting that programs set and ask for, and that changes nothing: there is one way to run a graph."""
    held = [value]

    def get() -> Any:
        return held[0]

    def put(new: Any) -> Any:
        before, held[0] = held[0], new
        return before

    get.__name__, put.__name__ = f"get_{name}", f"set_{name}"
    return get, put


_debug_get_fusion_group_inlining, _debug_set_fusion_group_inlining = _switch("fusion_group_inlining", True)
_, _debug_set_autodiff_subgraph_inlining = _switch("autodiff_subgraph_inlining", True)
_jit_get_tracer_state_warn, _jit_set_tracer_state_warn = _switch("tracer_warnings", True)
_jit_symbolic_shapes_test_mode_enabled, _jit_set_symbolic_shapes_test_mode = _switch("symbolic_shapes", False)
_jit_get_te_must_use_llvm_cpu, _jit_set_te_must_use_llvm_cpu = _switch("llvm", False)
_jit_can_fuse_on_cpu_legacy, _jit_override_can_fuse_on_cpu_legacy = _switch("legacy_fuser", False)
_jit_can_fuse_on_cpu, _jit_override_can_fuse_on_cpu = _switch("cpu_fuser", False)
_jit_can_fuse_on_gpu, _jit_override_can_fuse_on_gpu = _switch("gpu_fuser", False)
_jit_get_logging_option, _jit_set_logging_option = _switch("logging", "")
_jit_get_num_profiled_runs, _jit_set_num_profiled_runs = _switch("profiled_runs", 1)
_, _set_graph_executor_optimize = _switch("executor", True)


def _jit_set_emit_hooks(module_hook: Any, function_hook: Any) -> None:
    """Nothing calls them."""


def _jit_get_emit_hooks() -> tuple[None, None]:
    return None, None


def _jit_clear_class_registry() -> None:
    """Types live as long as what has them."""


def parse_schema(schema: str) -> _schemas.Signature:
    """A signature from its text."""
    return _schemas.parse_signature(schema)


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
