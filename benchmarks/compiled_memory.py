"""Peak memory of compiled train steps beside torch.compile's, a process each.

    python benchmarks/compiled_memory.py [MODEL ...]

What a step adds at its peak to the memory that the process keeps between steps: model, optimizer and libraries are loaded
and the step has run before. Pages that allocators hold back for reuse are returned first, so that both start alike.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import os
import pathlib
import subprocess
import sys
from typing import Any

HERE = pathlib.Path(__file__).resolve().parent


def _status(field: str) -> float:
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(field)) / 1024


def peak(library: str, name: str) -> float:
    """Megabytes."""
    torch = importlib.import_module(library)
    sys.path.insert(0, str(HERE))
    task = importlib.import_module("models").make(torch, name)
    torch.set_num_threads(os.cpu_count() or 1)
    model = torch.compile(task.model)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    x, y = task.batch(0)

    def step() -> Any:
        loss = task.loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    for _ in range(3):
        step()
    optimizer.zero_grad()
    gc.collect()
    if library == "flambeau":
        torch._C._empty_cache()
    ctypes.CDLL(None).malloc_trim(0)
    before = _status("VmRSS")
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")  # the highest resident size starts again from here
    for _ in range(3):
        step()
    return _status("VmHWM") - before


def main() -> None:
    if sys.argv[1:2] == ["--peak"]:
        print(json.dumps(peak(*sys.argv[2:4])))
        return
    for name in sys.argv[1:] or ("gpt", "resnet18"):
        peaks = []
        for library in ("flambeau", "torch"):
            environment = dict(os.environ, PYTHONPATH=str(HERE.parent))
            command = [sys.executable, __file__, "--peak", library, name]
            out = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
            peaks.append(json.loads(out.stdout.splitlines()[-1]))
        print(
            f"{name:10} peak {peaks[0]:7.1f} MB  torch.compile {peaks[1]:7.1f} MB   x {peaks[0] / peaks[1]:.2f}   (at most 0.9)"
        )


if __name__ == "__main__":
    main()
