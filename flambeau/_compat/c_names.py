"""Names that libraries look for in `torch._C` and that have no native counterpart here. Asked when `_C` lacks a name."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Any

import flambeau
from flambeau._compat import absent

_INSIDE = "it is a part of PyTorch's own native code"
# Functions with one answer: what they switch or ask for does not exist.
_ANSWERS: dict[str, Any] = {
    "_log_api_usage_once": None, "_log_api_usage_metadata": None, "_jit_set_profiling_mode": False,
    "_jit_set_profiling_executor": False, "_jit_override_can_fuse_on_cpu": None, "_jit_override_can_fuse_on_gpu": None,
    "_jit_set_texpr_fuser_enabled": None, "_jit_set_nvfuser_enabled": False, "_jit_set_fusion_strategy": [],
    "_jit_get_profiling_executor": False, "_jit_get_operation": (None, []), "_cuda_isInBadFork": False,
    "_mps_is_available": False, "_xpu_getDeviceCount": 0, "_get_nnpack_enabled": False,
    "_is_flash_attention_available": False, "_set_print_stack_traces_on_fatal_signal": None,
}  # fmt: skip
# Functions that ask another module.
_ASKED: dict[str, Callable[[], Any]] = {
    "_cuda_getDeviceCount": lambda: flambeau.cuda.device_count(),
    "_get_cudnn_enabled": lambda: flambeau.backends.cudnn.enabled,
    "_get_mkldnn_enabled": lambda: flambeau.backends.mkldnn.enabled,
    "_get_privateuse1_backend_name": lambda: flambeau.backends.private_use_name(),
    "_get_tracing_state": lambda: import_module("flambeau.jit._trace").current(),
    "_is_tracing": lambda: flambeau.jit.is_tracing(),
    "_is_torch_function_mode_enabled": lambda: flambeau._C._len_torch_function_stack() > 0,
    "_are_functorch_transforms_active": lambda: import_module("flambeau.autograd.transforming").is_inside(),
    "_is_any_autocast_enabled": lambda: any(
        flambeau.is_autocast_enabled(device) for device in ("cpu", "cuda", "xpu", "mtia", "mps")
    ),
    "_is_fwd_grad_enabled": lambda: flambeau.autograd.forward_ad._is_fwd_grad_enabled(),
    "_get_cpu_allow_fp16_reduced_precision_reduction": lambda: _permissions["half_sums"],
    "_get_deterministic_fill_uninitialized_memory": lambda: _deterministic().fill_uninitialized_memory,
    "_warn": lambda: _warn("Test message for TORCH_WARN", UserWarning),
    "_warn_deprecation": lambda: _warn("Test message for TORCH_WARN_DEPRECATION", DeprecationWarning),
}
# Functions of one argument that ask or tell another module.
_permissions = {"half_sums": False}  # products of half types are summed in float32, whatever is permitted
_TOLD: dict[str, Callable[[Any], Any]] = {
    "_set_cpu_allow_fp16_reduced_precision_reduction": lambda mode: _permissions.update(half_sums=bool(mode)),
    "_set_fwd_grad_enabled": lambda mode: flambeau.autograd.forward_ad._set_fwd_grad_enabled(mode),
    "_set_deterministic_fill_uninitialized_memory": lambda mode: setattr(
        _deterministic(), "fill_uninitialized_memory", mode
    ),
}
# Flags, and names that are another's.
_FLAGS: dict[str, Callable[[], Any]] = {
    "TensorBase": lambda: flambeau._C.Tensor,
    "_has_cuda": lambda: flambeau.cuda.is_available(),
    "_has_mps": lambda: False,
    "_has_mtia": lambda: False,
    "_has_xpu": lambda: False,
}
_CLASSES = frozenset("FunctionSchema PyTorchFileReader PyTorchFileWriter DeepCopyMemoTable Future CallStack".split())
# Names that scripts bring: classes of graphs and types, and passes.
_SCRIPTS = frozenset(
    "Graph Value Node Block Use ScriptModule ScriptFunction ScriptMethod ScriptObject ScriptDict ScriptList CompilationUnit "
    "TensorType ListType DictType OptionalType IntType FloatType BoolType ComplexType StringType NumberType AnyType TupleType "
    "NoneType ClassType EnumType FutureType InterfaceType UnionType DeviceObjType JitType Type Argument "
    "_get_graph_executor_optimize _jit_assert_is_instance _jit_get_all_schemas _jit_get_inline_everything_mode _jit_get_schemas_for_operator "
    "_jit_set_inline_everything_mode _create_function_from_graph _freeze_module _propagate_shapes _debug_get_fusion_group_inlining "
    "_debug_set_fusion_group_inlining _debug_set_autodiff_subgraph_inlining _set_graph_executor_optimize _infer_size parse_schema parse_ir".split()
)
_PASSES = (
    "_jit_pass_",
    "_jit_set_",
    "_jit_get_",
    "_jit_override_",
    "_jit_can_",
    "_jit_symbolic_",
    "_jit_erase_",
    "_jit_object_",
    "_jit_clear_",
)
# Names that a module puts here when it is imported.
_SET_BY = {
    "DisableTorchFunctionSubclass": "overrides", "DisableTorchFunction": "overrides", "DispatchKeySet": "_ops",
    "_ExcludeDispatchKeyGuard": "_ops", "_IncludeDispatchKeyGuard": "_ops", "_DisableTorchDispatch": "_ops",
    "_AutoDispatchBelowAutograd": "_ops",
}  # fmt: skip


def lookup(name: str) -> Any:
    """What `_C.name` is; AttributeError for unknown names."""
    if name in _SET_BY:
        import_module(f"flambeau.{_SET_BY[name]}")
        return vars(flambeau._C)[name]
    if name in _ANSWERS:
        value: Any = absent.answer(name, _ANSWERS[name])
    elif name in _ASKED:
        value = _ASKED[name]
    elif name in _TOLD:
        value = _TOLD[name]
    elif name in _FLAGS:
        return _FLAGS[name]()
    elif name == "_TensorMeta":
        value = type(flambeau.Tensor)
    elif name in ("_nn", "_special", "_linalg", "_fft"):
        value = _module(name)
    elif name == "_VariableFunctions":
        value = flambeau
    elif name == "_ImperativeEngine":
        value = type("_ImperativeEngine", (), {})
    elif name == "DispatchKey":
        value = _dispatch_keys()
    elif name in ("_WeakTensorRef", "_autograd", "_functions"):
        value = getattr(import_module("flambeau._compat.autograd_names"), name)
    elif name == "_distributed_c10d":
        value = import_module("flambeau._C._distributed_c10d")
    elif name in ("_functorch", "_onnx", "_dynamo", "_profiler"):
        value = _module(name)
    elif name in _SCRIPTS or name.startswith(_PASSES):
        value = getattr(import_module("flambeau.jit._native_names"), name)
    elif name in _CLASSES:
        value = absent.absent_class(f"torch._C.{name}", _INSIDE)
    elif name == "StorageBase":
        value = flambeau.storage.StorageBase
    elif name == "_LinAlgError":
        value = flambeau.linalg.LinAlgError
    elif name == "Generator":
        value = flambeau.Generator
    else:
        raise AttributeError(f"module 'flambeau._C' has no attribute {name!r}")
    setattr(flambeau._C, name, value)
    return value


def _deterministic() -> Any:
    return import_module("flambeau.utils.deterministic")


def _warn(message: str, category: type[Warning]) -> None:
    import warnings

    warnings.warn(message, category, stacklevel=3)


def _dispatch_keys() -> Any:
    """The dispatch keys by name, as members of an enumeration."""
    import enum

    from flambeau import _ops

    members = {}
    for name in (*_ops._KEY_NAMES, "PrivateUse1"):
        try:
            members[name] = _ops.dispatch_key(name)
        except Exception:
            continue
    return enum.IntEnum("DispatchKey", members)


def _module(name: str) -> ModuleType:
    full = f"flambeau._C.{name}"
    module = ModuleType(full, "Names of PyTorch's native code that are only asked for.")
    if name == "_nn":
        from flambeau.nn import functional
        from flambeau.nn.modules.module import _parse_to

        module.__dict__["_parse_to"] = _parse_to
        module.__getattr__ = lambda attribute: (  # type: ignore[method-assign]
            getattr(functional, attribute) if hasattr(functional, attribute) else getattr(flambeau.ops.aten, attribute)
        )
    elif name in ("_special", "_linalg", "_fft"):
        home, prefix = import_module(f"flambeau.{name[1:]}"), f"{name[1:]}_"
        module.__getattr__ = lambda attribute: getattr(home, attribute.removeprefix(prefix))  # type: ignore[method-assign]
    elif name == "_functorch":
        from flambeau.func.batching import Batched

        # Tensors that a gradient is followed for are ordinary ones here; those of vmap are of a class of their own.
        module.__dict__["is_batchedtensor"] = lambda tensor: isinstance(tensor, Batched)
        module.__dict__["is_functorch_wrapped_tensor"] = lambda tensor: isinstance(tensor, Batched)
        module.__dict__["is_gradtrackingtensor"] = absent.answer("is_gradtrackingtensor", False)
    sys.modules[full] = module
    return module
