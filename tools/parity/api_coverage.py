"""How many of PyTorch's public names a library has.

    python tools/parity/api_coverage.py [--lib flambeau] [--missing 20]

The names are those that PyTorch's own modules export (`__all__`, else what does not begin with an underscore), and the
attributes of Tensor.
"""

from __future__ import annotations

import argparse
import importlib
import pathlib
import sys
import types
import warnings

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import torch
from values import find

MODULES = (
    "", "amp", "ao.quantization", "autograd", "autograd.forward_ad", "autograd.functional", "autograd.graph", "backends",
    "backends.cuda", "backends.cudnn", "compiler", "cuda", "distributed", "distributions", "export", "fft", "func", "futures",
    "fx", "hub", "jit", "library", "linalg", "masked", "multiprocessing", "nested", "nn", "nn.attention", "nn.functional",
    "nn.init", "nn.parallel", "nn.utils", "nn.utils.parametrizations", "nn.utils.parametrize", "nn.utils.prune", "nn.utils.rnn",
    "optim", "optim.lr_scheduler", "optim.swa_utils", "overrides", "profiler", "random", "sparse", "special", "testing", "utils",
    "utils.benchmark", "utils.checkpoint", "utils.cpp_extension", "utils.data", "utils.dlpack",
)  # fmt: skip


def public_names(path: str) -> list[str]:
    module = importlib.import_module(f"torch.{path}".rstrip("."))
    listed = getattr(module, "__all__", None) or [name for name in dir(module) if not name.startswith("_")]
    values = {name: getattr(module, name, None) for name in listed}
    return sorted(f"{path}.{name}".lstrip(".") for name, value in values.items() if not _internal(value))


def _internal(value: object) -> bool:
    """Modules, and the classes and constants of PyTorch's native code that its top level shows."""
    return isinstance(value, types.ModuleType) or "pybind11" in f"{type(value)} {type(type(value))}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lib", default="flambeau")
    parser.add_argument("--missing", type=int, default=20, help="how many missing names to list")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    names = [name for path in MODULES for name in public_names(path)]
    names += sorted(f"Tensor.{name}" for name in dir(torch.Tensor) if not name.startswith("_"))
    library = importlib.import_module(options.lib)
    missing = [name for name in names if find(library, name) is None and find(torch, name) is not None]
    share = 100 * (1 - len(missing) / len(names))
    print(f"{options.lib}: {len(names) - len(missing)} of {len(names)} public names ({share:.1f}%)")
    for name in missing[: options.missing]:
        print(f"  {name}")


if __name__ == "__main__":
    main()
