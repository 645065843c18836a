"""Names that exist because programs written for PyTorch ask for them, apart from the engine.

    torch/           modules that only such programs import, each at its path: `torch/fx/passes/shape_prop.py` is the
                     module `flambeau.fx.passes.shape_prop`
    absent.py        stand-ins for what is not written; `absent_names.py` lists them with the reasons
    c_names.py       names in `_C` that have no native counterpart
    alias.py         `import torch` as a name of flambeau; `bootstrap/` installs it in child processes
    hooks.py         libraries that take tensors of flambeau without that name: einops_backend.py, safetensors_backend.py
    torchvision_extension.py  in place of torchvision's compiled libraries

Two finders serve them. The first answers for `torch/` and for modules that PyTorch has under another path (`RENAMED`). It
comes before Python's own finders, because they would take a folder without Python files (one that an older version left
behind with its byte code) for a package. The second comes last: a module that is written takes the place of its stand-in
by itself.
"""

from __future__ import annotations

import os
import sys
from importlib.machinery import ModuleSpec

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType
    from typing import Any

TREE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "torch")
_PREFIX = "flambeau."
# A path of PyTorch's -> the module that is found there too. Modules below a package follow it.
RENAMED = {
    "_VF": "",
    "_absent": "_compat.absent",  # where test harnesses outside the project look for stand-ins
    "_custom_ops": "library",
    "_dynamo.backends.registry": "_dynamo.backends",
    "_inductor.decomposition": "_decomp",
    "_tensor_str": "_tensor.printing",
    "ao.nn.intrinsic.modules": "ao.nn.intrinsic",
    "ao.nn.intrinsic.modules.fused": "ao.nn.intrinsic",
    "ao.nn.intrinsic.qat.modules": "ao.nn.intrinsic.qat",
    "ao.nn.intrinsic.qat.modules.conv_fused": "ao.nn.intrinsic.qat",
    "ao.nn.intrinsic.qat.modules.linear_fused": "ao.nn.intrinsic.qat",
    "ao.nn.intrinsic.qat.modules.linear_relu": "ao.nn.intrinsic.qat",
    "ao.nn.intrinsic.quantized.modules": "ao.nn.intrinsic.quantized",
    "ao.nn.qat.modules": "ao.nn.qat",
    "ao.nn.qat.modules.conv": "ao.nn.qat",
    "ao.nn.qat.modules.linear": "ao.nn.qat",
    "ao.nn.quantized.modules.batchnorm": "ao.nn.quantized.modules.normalization",
    "ao.nn.quantized.modules.dropout": "ao.nn.quantized.modules.activation",
    "ao.nn.quantized.modules.utils": "ao.nn.quantized.modules.base",
    "ao.quantization.fx._decomposed": "ao.quantization.graphs.decomposed",
    "ao.torchao.quantization.pt2e.fake_quantize": "ao.quantization.fake_quantize",
    "ao.torchao.quantization.pt2e.observer": "ao.quantization.observer",
    "ao.torchao.quantization.pt2e.quantize_pt2e": "ao.quantization.quantize_pt2e",
    "ao.torchao.quantization.pt2e.quantizer": "ao.quantization.quantizer",
    "ao.torchao.quantization.pt2e.quantizer.composable_quantizer": "ao.quantization.quantizer",
    "ao.torchao.quantization.pt2e.quantizer.quantizer": "ao.quantization.quantizer",
    "ao.torchao.quantization.quant_api": "ao.torchao.quantization",
    "autograd.profiler_legacy": "autograd.profiler",
    "autograd.profiler_util": "profiler",
    "autograd.variable": "autograd",
    "distributed._composable.fsdp": "distributed.fsdp",
    "distributed._tensor": "distributed.tensor",
    "distributed._tensor.experimental": "distributed.tensor.experimental",
    "distributed._tensor.api": "distributed.tensor._api",
    "distributed._tensor.placement_types": "distributed.tensor.placement_types",
    "distributed.checkpoint.api": "distributed.checkpoint.state_dict_saver",
    "distributed.elastic.agent.server.local_elastic_agent": "distributed.elastic.agent.server",
    "distributed.elastic.events.api": "distributed.elastic.events",
    "distributed.elastic.metrics.api": "distributed.elastic.metrics",
    "distributed.elastic.multiprocessing.errors.error_handler": "distributed.elastic.multiprocessing.errors",
    "distributed.elastic.multiprocessing.errors.handlers": "distributed.elastic.multiprocessing.errors",
    "distributed.elastic.rendezvous.api": "distributed.elastic.rendezvous",
    "distributed.elastic.rendezvous.registry": "distributed.elastic.rendezvous",
    "distributed.elastic.timer.api": "distributed.elastic.timer",
    "distributed.elastic.timer.file_based_local_timer": "distributed.elastic.timer",
    "distributed.elastic.timer.local_timer": "distributed.elastic.timer",
    "distributed.elastic.utils.api": "distributed.elastic.utils",
    "distributed.optim.utils": "distributed.optim.functional",
    "distributed.tensor._dtensor_spec": "distributed.tensor._spec",
    "distributed.tensor._utils": "distributed.tensor._spec",
    "distributed.tensor.device_mesh": "distributed.device_mesh",
    "distributed.tensor.experimental._func_map": "distributed.tensor.experimental",
    "distributed.tensor.experimental._register_sharding": "distributed.tensor.experimental",
    "fx.passes.utils.matcher_utils": "fx._matcher",
    "fx.passes.utils.ordering": "fx._ordering",
    "nn.intrinsic": "ao.nn.intrinsic",
    "nn.qat": "ao.nn.qat",
    "nn.quantized": "ao.nn.quantized",
    "onnx.utils": "onnx",
    "quantization": "ao.quantization",
    "utils.benchmark.utils": "utils.benchmark",
    "utils.benchmark.utils.common": "utils.benchmark",
    "utils.benchmark.utils.timer": "utils.benchmark",
    "vision.models.detection.mask_rcnn": "vision.models.detection.faster_rcnn",
    "vision.models.googlenet": "vision.models.inception",
    "vision.models.segmentation.deeplabv3": "vision.models.segmentation",
    "vision.models.segmentation.fcn": "vision.models.segmentation",
    "vision.models.segmentation.lraspp": "vision.models.segmentation",
    "xla.amp.syncfree": "optim",
    "xla.experimental.pjrt": "xla.runtime",
    "xla.experimental.xla_sharding": "xla.distributed.spmd",
    "xla.utils.checkpoint": "utils.checkpoint",
    "xla.version": "xla",
}
# Modules of other libraries that are changed when they are imported (`hooks.py`), or that are found here.
_HOOKED = frozenset({"einops._backends", "safetensors.torch", "safetensors.flambeau"})
# The top-level names that there is something under; all others are answered without a look at the disk.
_HEADS = {name.partition(".")[0] for name in (*os.listdir(TREE), *RENAMED)}


def new_name(name: str) -> str | None:
    """Where a renamed module is; None for a module that is not renamed."""
    if name in RENAMED:
        return RENAMED[name]
    parent, dot, leaf = name.rpartition(".")
    if not dot or (home := new_name(parent)) is None:
        return None
    return f"{home}.{leaf}" if home else leaf


class SameModule:
    """Loads a module under a second name: the object is the same."""

    def __init__(self, target: str) -> None:
        self.target = target

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        from importlib import import_module

        module = import_module(self.target)
        self.spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self.spec  # the import system has just put that of the second name there


class Finder:
    """Finds modules of the tree, and those that have another name."""

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: Any = None) -> ModuleSpec | None:
        if not name.startswith(_PREFIX):
            return _of_library(name, path) if name in _HOOKED else None
        own = name[len(_PREFIX) :]
        if own.partition(".")[0] not in _HEADS:
            return None
        place = os.path.join(TREE, *own.split("."))
        package = os.path.join(place, "__init__.py")
        if os.path.isfile(package):
            return _file_spec(name, package, [place])
        if os.path.isfile(place + ".py"):
            return _file_spec(name, place + ".py", None)
        home = new_name(own)
        return None if home is None else ModuleSpec(name, SameModule(f"{_PREFIX}{home}".rstrip(".")))  # type: ignore[arg-type]


def _file_spec(name: str, file: str, locations: list[str] | None) -> ModuleSpec | None:
    from importlib.util import spec_from_file_location

    return spec_from_file_location(name, file, submodule_search_locations=locations)


def _of_library(name: str, path: Sequence[str] | None) -> ModuleSpec | None:
    if name == "safetensors.flambeau":
        return ModuleSpec(name, SameModule("flambeau.utils.safetensors"))  # type: ignore[arg-type]
    from flambeau._compat import hooks

    return hooks.spec(name, path)  # type: ignore[no-any-return]


class AbsentFinder:
    """Makes the modules of stand-ins."""

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: Any = None) -> ModuleSpec | None:
        if not name.startswith(_PREFIX):
            return None
        from flambeau._compat import absent

        return absent.module_spec(name)


def install() -> None:
    sys.meta_path.insert(0, Finder())  # type: ignore[arg-type]
    sys.meta_path.append(AbsentFinder())  # type: ignore[arg-type]
    if not sys.modules.keys().isdisjoint(_HOOKED):
        from flambeau._compat import hooks

        hooks.add_to_loaded()
