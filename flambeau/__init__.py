"""flambeau: PyTorch's public API over an engine of its own.

The names of this module come from three places: the native module (`_C`: Tensor, dtypes, and every operator of the
op records, installed from the generated table), a few small Python modules (`_tensor.py`: making tensors,
`functional.py`: functions that are not operators, `_settings.py`: switches), and the subpackages, which are imported on
first use. Importing stays cheap: nothing here imports NumPy or the compile stack.
"""

from __future__ import annotations

import os as _os
import sys
from importlib import import_module

# Kernels run on the library's own threads. Where oneDNN cannot use those, it has OpenMP's, which spin at barriers for
# milliseconds before they sleep; the runtime reads how long when it is loaded.
_unset = {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"}.isdisjoint(_os.environ)
if _unset:
    _os.environ["GOMP_SPINCOUNT"] = "1000"

try:
    from flambeau._C import Tensor as _Tensor
except ImportError as _error:
    from importlib.util import find_spec as _find_spec

    if (_spec := _find_spec("flambeau._C")) is not None and _spec.origin is not None:
        raise  # it is there, and does not load: the loader says why
    raise ImportError(
        f"flambeau's native module is not built in {_os.path.dirname(__file__)} for this Python "
        f"({sys.version_info.major}.{sys.version_info.minor}): run `make dev` in the checkout, or start Python from "
        "another folder to use an installed flambeau"
    ) from _error
from flambeau import _C, _compat, _libraries

if _unset:
    del _os.environ["GOMP_SPINCOUNT"]
del _unset, _Tensor
from flambeau._C import *
from flambeau.version import __version__ as __version__

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

float = _C.float32
double = _C.float64
half = _C.float16
int = _C.int32
long = _C.int64
short = _C.int16
bool = _C.bool
chalf = _C.complex32
cfloat = _C.complex64
cdouble = _C.complex128

inf = 1e400
nan = inf - inf
pi = 3.141592653589793
e = 2.718281828459045
newaxis = None
legacy_contiguous_format = _C.contiguous_format


def _operator_module(name: str) -> Any:
    """The module that holds the operators of a group."""
    return import_module(f"{__package__}.{name}") if name else sys.modules[__package__]


def _native_name(name: str) -> Any:
    """A name that `_C` lacks, if programs for PyTorch ask for it. Python itself asks for special ones at each import."""
    if name.startswith("__"):
        raise AttributeError(f"module 'flambeau._C' has no attribute {name!r}")
    return import_module("flambeau._compat.c_names").lookup(name)


_compat.install()
_C.__getattr__ = _native_name  # type: ignore[method-assign]
_C.__path__ = []  # some of its names are modules that programs import from
_C._install(_operator_module, Tensor)  # type: ignore[misc]
_libraries.locate()

from flambeau import _tensor
from flambeau._settings import *
from flambeau._tensor import *
from flambeau._tensor import methods as _tensor_methods
from flambeau._tensor.device import get_default_device as get_default_device, set_default_device as set_default_device
from flambeau._tensor.methods import eig, lstsq, matrix_rank, solve, symeig
from flambeau._tensor.variadic import *
from flambeau.autograd.grad_mode import (
    enable_grad as enable_grad,
    inference_mode as inference_mode,
    no_grad as no_grad,
    set_grad_enabled as set_grad_enabled,
)
from flambeau.functional import *

if TYPE_CHECKING:  # what is imported on first use
    from flambeau._C.package import *

_tensor_methods.make_overridable()
spmm = dsmm = globals()["mm"]  # products with a sparse matrix take dense ones too
for _name in ("tensor", "as_tensor", "asarray", "frombuffer", "from_numpy"):
    globals()[_name] = _C._overridable(globals()[_name], False)

# Subpackages and modules, imported on first use.
_MODULES = frozenset(
    "ops linalg special fft nn optim utils autograd random testing overrides library cuda backends signal cpu xpu mps "
    "accelerator amp jit fx onnx export distributed multiprocessing storage functional types version __config__ "
    "distributions lazy xla profiler compiler serialization hub sparse masked nested func futures package quantization "
    "array_api _dynamo _inductor _functorch return_types monitor mtia ao torch_version quasirandom numa classes vision _utils "
    "_tensor_str _jit_internal _logging _subclasses _higher_order_ops _VF _prims _refs _decomp _guards _export".split()
)
# Names that live in a module of their own, imported on first use.
_LAZY = {
    name: home
    for home, names in {
        "_higher_order_ops": "cond while_loop",
        "_tensor.checks": (
            "_check _check_index _check_is_size _check_not_implemented _check_tensor_all _check_tensor_all_with _check_type "
            "_check_value _check_with"
        ),
        "_tensor.legacy_types": "set_default_tensor_type tensortype",
        "_tensor.beside_torch": "from_torch",
        "_tensor.limits": "finfo iinfo",
        "_tensor.printing": "set_printoptions get_printoptions",
        "accelerator": "Stream Event",
        "amp": "GradScaler autocast",
        "amp.autocast_mode": (
            "autocast_decrement_nesting autocast_increment_nesting clear_autocast_cache get_autocast_cpu_dtype "
            "get_autocast_dtype get_autocast_gpu_dtype get_autocast_ipu_dtype get_autocast_xla_dtype "
            "is_autocast_cache_enabled is_autocast_cpu_enabled is_autocast_enabled is_autocast_ipu_enabled "
            "is_autocast_xla_enabled set_autocast_cache_enabled set_autocast_cpu_dtype set_autocast_cpu_enabled "
            "set_autocast_dtype set_autocast_enabled set_autocast_gpu_dtype set_autocast_ipu_dtype "
            "set_autocast_ipu_enabled set_autocast_xla_dtype set_autocast_xla_enabled"
        ),
        "ao.fake_quantize": (
            "fake_quantize_per_tensor_affine fake_quantize_per_channel_affine fused_moving_avg_obs_fake_quant "
            "_fake_quantize_learnable_per_tensor_affine _fake_quantize_learnable_per_channel_affine"
        ),
        "ao.quantized_tensor": (
            "dequantize quantize_per_tensor quantize_per_channel quantize_per_tensor_dynamic _empty_affine_quantized "
            "_empty_per_channel_affine_quantized _make_per_tensor_quantized_tensor _make_per_channel_quantized_tensor "
            "_choose_qparams_per_tensor"
        ),
        "ao.quantized_operators.ranges": "choose_qparams_optimized",
        "_tensor.quantized_types": (
            "qint8 quint8 quint4x2 quint2x4 qint32 qscheme per_tensor_affine per_tensor_symmetric per_channel_affine per_channel_symmetric "
            "per_channel_affine_float_qparams"
        ),
        "compiler": "_disable_dynamo compile",
        "backends": "_register_device_module",
        "cuda": "OutOfMemoryError",
        "func": "vmap",
        "functional": "_assert _assert_async",
        "futures": "Future",
        "jit": "ScriptModule",
        "nested._internal.nested_tensor": "jagged",
        "ops.as_aten.beside_records": "_unique _unique2 unique_dim",
        "ops.as_aten.tags": "Tag",
        "ops.symbolic.numbers": (
            "SymInt SymFloat SymBool sym_float sym_int sym_ite sym_max sym_min sym_not sym_sqrt sym_sum"
        ),
        "quasirandom": "SobolEngine",
        "random": "manual_seed seed initial_seed get_rng_state set_rng_state",
        "serialization": "save load",
        "sparse.construction": (
            "sparse_coo_tensor sparse_csr_tensor sparse_csc_tensor sparse_bsr_tensor sparse_bsc_tensor sparse_compressed_tensor "
            "_sparse_coo_tensor_unsafe _validate_sparse_compressed_tensor_args _validate_sparse_coo_tensor_args "
            "_validate_compressed_sparse_indices _convert_indices_from_coo_to_csr _convert_indices_from_csr_to_coo"
        ),
        "sparse.broadcasting": "_sparse_broadcast_to",
        "sparse.products": "hsmm hspmm saddmm smm sspaddmm",
        "storage": "UntypedStorage TypedStorage",
    }.items()
    for name in names.split()
}


def _module(name: str) -> Any:
    """A module of the package, or AttributeError when there is none of that name."""
    try:
        return import_module(f"{__package__}.{name}")
    except ModuleNotFoundError as error:
        if error.name != f"{__package__}.{name}":
            raise
        raise AttributeError(f"module 'flambeau' has no attribute {name!r}") from None


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        value = getattr(_module(_LAZY[name]), name)
    elif name in _MODULES:
        return _module(name)
    elif (name.endswith("Tensor") and name in (classes := _module("_tensor.legacy_types").CLASSES)) or (
        name.endswith("Storage") and name in (classes := _module("storage").LEGACY_CLASSES)
    ):
        value = classes[name]
    elif name in ("_tensor_classes", "_storage_classes"):
        of_tensors = name == "_tensor_classes"
        table = _module("_tensor.legacy_types").CLASSES if of_tensors else _module("storage").LEGACY_CLASSES
        value = set(table.values())
    elif name == "Storage":  # of the default dtype, which may change
        storages = _module("storage")
        return storages.LEGACY_CLASSES[storages._dtype_to_storage_type_map()[_C.get_default_dtype()]]
    elif name == "torch":  # programs write torch.torch by mistake
        value = sys.modules[__package__]
    elif name[0] == "_" and name[1:2] != "_" and isinstance(inner := getattr(_module("_ops"), name, None), _C.Function):
        value = inner  # operators that programs call although they are no part of the documented functions
    elif name[0].isupper() and hasattr(_C, name):  # torch has the classes of torch._C
        return getattr(_C, name)
    else:
        return import_module("flambeau._compat.absent").attribute(__package__, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY, *_MODULES})
