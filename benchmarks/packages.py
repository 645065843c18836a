"""Packages beside PyTorch's AOTInductor: time to compile, to load, and of a run on one thread; bytes beside the weights.

    python benchmarks/packages.py [names]

Each model is compiled by flambeau in this process, and by PyTorch in another one where it is installed. Loading is measured in a C program, from
the start of `fl_load` in a fresh process.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

LOADER = """
#include <flambeau/flambeau.h>
#include <stdio.h>
#include <time.h>
static double now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec * 1e3 + t.tv_nsec * 1e-6; }
int main(int argc, char** argv) {
  fl_model* model;
  const double begin = now();
  if (argc != 2 || fl_load(argv[1], &model) != FL_OK) return 1;
  printf("%f", now() - begin);
  return 0;
}
"""


def models(torch: Any) -> dict[str, tuple[Any, Any]]:
    """Models with inputs for them, in either library."""
    nn = torch.nn

    class Block(nn.Module):
        def __init__(self, width: int, heads: int) -> None:
            super().__init__()
            self.first, self.second, self.heads = nn.LayerNorm(width), nn.LayerNorm(width), heads
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

        def forward(self, x: Any) -> Any:
            batch, length, width = x.shape
            parts = self.qkv(self.first(x)).split(width, 2)
            q, k, v = (t.view(batch, length, self.heads, -1).transpose(1, 2) for t in parts)
            y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(y.transpose(1, 2).reshape(batch, length, width))
            return x + self.mlp(self.second(x))

    mlp = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))
    gpt = nn.Sequential(
        nn.Embedding(1000, 256), *(Block(256, 4) for _ in range(4)), nn.LayerNorm(256), nn.Linear(256, 1000)
    )
    convolutions = nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 3, padding=1),
        nn.BatchNorm2d(64), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10),
    )  # fmt: skip
    return {
        "mlp": (mlp.eval(), torch.randn(8, 64)),
        "gpt": (gpt.eval(), torch.randint(0, 1000, (8, 64))),
        "convolutions": (convolutions.eval(), torch.randn(8, 3, 64, 64)),
    }


def measure(torch: Any, name: str, folder: str) -> dict[str, float]:
    """One model in one library."""
    torch.set_num_threads(1)
    model, x = models(torch)[name]
    batch = torch.export.Dim("batch", min=2, max=64)
    program = torch.export.export(model, (x,), dynamic_shapes=({0: batch},))
    path = os.path.join(folder, f"{name}-{torch.__name__}.pt2")
    begin = time.perf_counter()
    torch._inductor.aoti_compile_and_package(program, package_path=path)
    compiled = time.perf_counter() - begin
    begin = time.perf_counter()
    loaded = torch._inductor.aoti_load_package(path)
    load = time.perf_counter() - begin
    weights = sum(t.numel() * t.element_size() for t in model.state_dict().values())
    with torch.no_grad():
        times = []
        for _ in range(30):
            begin = time.perf_counter()
            loaded(x)
            times.append(time.perf_counter() - begin)
    return {
        "compile, s": compiled,
        "load, ms": load * 1e3,
        "run, ms": statistics.median(times) * 1e3,
        "beside weights, KB": (os.path.getsize(path) - weights) / 1024,
    }


def load_in_c(path: str, folder: str) -> float:
    """Milliseconds of a load in a fresh process."""
    import flambeau

    package, program = Path(flambeau.__file__).parent, os.path.join(folder, "load")
    if not os.path.exists(program):
        Path(program + ".c").write_text(LOADER)
        flags = [f"-I{package / 'include'}", f"-L{package}", "-lflambeau", f"-Wl,-rpath,{package}"]
        subprocess.run(["cc", program + ".c", "-o", program, *flags], check=True)
    return statistics.median(
        float(subprocess.run([program, path], check=True, capture_output=True).stdout) for _ in range(5)
    )


def theirs(name: str) -> dict[str, float] | None:
    """The same in a process with PyTorch; None where there is none."""
    command = [sys.executable, __file__, "--torch", name]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("FLAMBEAU")}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    return dict(json.loads(done.stdout.strip().splitlines()[-1])) if done.returncode == 0 else None


def main(arguments: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        if arguments[:1] == ["--torch"]:
            import torch

            print(json.dumps(measure(torch, arguments[1], folder)))
            return
        import flambeau

        for name in arguments or ["mlp", "gpt", "convolutions"]:
            ours = measure(flambeau, name, folder)
            ours["load in C, ms"] = load_in_c(os.path.join(folder, f"{name}-flambeau.pt2"), folder)
            other = theirs(name) or {}
            print(name)
            for figure, value in ours.items():
                print(f"  {figure:20} {value:10.2f}" + (f"   PyTorch {other[figure]:10.2f}" if figure in other else ""))


if __name__ == "__main__":
    main(sys.argv[1:])
