"""The frame of the programs beside it: each case runs on every rank, and what it returns is written down as JSON.

`tests/parity/test_distributed.py` runs a program under PyTorch and under flambeau and compares what they wrote.
"""

import datetime
import enum
import json
import os
import sys
import time
import traceback
import warnings

import torch
import torch.distributed as dist

warnings.simplefilter("ignore")
CASES = []


def case(function):
    CASES.append(function)
    return function


def filled(module):
    """Parameters that do not depend on the generator of random numbers."""
    with torch.no_grad():
        for i, parameter in enumerate(module.parameters()):
            values = torch.sin(torch.arange(parameter.numel(), dtype=torch.float32) * 0.7 + i + 1) * 0.5
            parameter.copy_(values.view(parameter.shape))
    return module


def plain(value):
    """Tensors and containers as lists and numbers."""
    if hasattr(value, "to_local"):
        return {
            "placements": [str(p) for p in value.placements],
            "local": plain(value.to_local()),
            "size": list(value.shape),
        }
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu()
        kind = str(value.dtype).rpartition(".")[2]
        if value.is_sparse:
            value = value.to_dense()
        if value.is_complex():
            value = torch.view_as_real(value)
        if kind.startswith("float8") or kind == "bfloat16":
            value = value.float()
        return {"dtype": kind, "shape": list(value.shape), "values": value.tolist()}
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if isinstance(value, set):
        return sorted(map(str, value))
    if isinstance(value, enum.Enum) or value is None or isinstance(value, (bool, int, float, str)):
        return value if not isinstance(value, enum.Enum) else str(value)
    return str(value)


def main():
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=30))
    rank, chosen = dist.get_rank(), sys.argv[1:]
    results = {}
    for function in CASES:
        if chosen and function.__name__ not in chosen:
            continue
        torch.manual_seed(0)
        started = time.monotonic()
        try:
            results[function.__name__] = plain(function())
        except Exception as error:
            results[function.__name__] = {
                "raised": [c.__name__ for c in type(error).__mro__],
                "message": str(error)[:300],
            }
            if os.environ.get("SHOW"):
                traceback.print_exc()
        if os.environ.get("SHOW"):
            print(f"{function.__name__}: {time.monotonic() - started:.1f} s", flush=True)
    with open(os.path.join(os.environ["RESULTS"], f"{rank}.json"), "w") as file:
        json.dump(results, file)
    if dist.is_initialized():
        dist.destroy_process_group()
