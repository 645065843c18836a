"""Packages beside PyTorch's AOTInductor, TorchScript and onnxruntime: time to compile, to load and of a run on one thread, and bytes.

    python benchmarks/packages.py prepare FOLDER [names]     compiles every model by every library
    python benchmarks/packages.py measure FOLDER [names] [--record benchmarks/results/packages.txt]

Preparing takes minutes and may go on beside other work; measuring runs what was prepared, one library in one process after the
other, and wants the machine for itself. Packages take batches from 1 to 64. Loading is measured in a C program from the start of
`fl_load` in a fresh process, the time to the first result from the start of that process.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

LOADER = """
#define _GNU_SOURCE
#include <flambeau/flambeau.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
static double now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec * 1e3 + t.tv_nsec * 1e-6; }
int main(int argc, char** argv) { /* package, dtype bits, sizes */
  fl_model* model;
  const double begin = now();
  fl_set_num_threads(1);
  if (argc < 4 || fl_load(argv[1], &model) != FL_OK) return fprintf(stderr, "%s\\n", fl_error()), 1;
  const double loaded = now();
  int64_t shape[8], count = 1;
  for (int i = 3; i < argc; ++i) count *= shape[i - 3] = atoll(argv[i]);
  const int bits = atoi(argv[2]);
  void* data = calloc((size_t)count, (size_t)bits / 8);
  DLManagedTensor input = {{data, {kDLCPU, 0}, argc - 3, {bits == 64 ? kDLInt : kDLFloat, bits, 1}, shape, NULL, 0}, NULL, NULL};
  DLManagedTensor *inputs[] = {&input}, *output;
  if (fl_run(model, inputs, 1, &output, 1) != FL_OK) return fprintf(stderr, "%s\\n", fl_error()), 1;
  printf("%f", loaded - begin);
  return 0;
}
"""
COLD = ("resnet18", "gpt")  # models that PyTorch compiles again, with an empty cache
BATCHES = {"mlp": (1, 8), "lstm": (1, 8), "gpt": (1, 8), "resnet18": (1, 16), "vit": (1, 8), "unet": (1, 4)}


def models(torch: Any) -> dict[str, Any]:
    """Functions that make a model and an input for it, in either library."""
    nn, functional = torch.nn, torch.nn.functional

    class Block(nn.Module):
        def __init__(self, width: int, heads: int, causal: bool) -> None:
            super().__init__()
            self.first, self.second, self.heads, self.causal = nn.LayerNorm(width), nn.LayerNorm(width), heads, causal
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

        def forward(self, x: Any) -> Any:
            batch, length, width = x.shape
            parts = self.qkv(self.first(x)).split(width, 2)
            q, k, v = (t.view(batch, length, self.heads, -1).transpose(1, 2) for t in parts)
            y = functional.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
            x = x + self.out(y.transpose(1, 2).reshape(batch, length, width))
            return x + self.mlp(self.second(x))

    class Patches(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.project, self.place = nn.Conv2d(3, 192, 8, 8), nn.Parameter(torch.randn(1, 64, 192) * 0.02)

        def forward(self, x: Any) -> Any:
            return self.project(x).flatten(2).transpose(1, 2) + self.place

    class First(nn.Module):
        def forward(self, x: Any) -> Any:
            return x[:, 0]

    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding, self.lstm = nn.Embedding(1000, 128), nn.LSTM(128, 128, 2, batch_first=True)
            self.head = nn.Linear(128, 10)

        def forward(self, x: Any) -> Any:
            return self.head(self.lstm(self.embedding(x))[0][:, -1])

    class Residual(nn.Module):
        def __init__(self, inner: int, width: int, stride: int) -> None:
            super().__init__()
            self.one, self.two = (nn.Conv2d(a, width, 3, s, 1, bias=False) for a, s in ((inner, stride), (width, 1)))
            self.norms = nn.ModuleList([nn.BatchNorm2d(width), nn.BatchNorm2d(width)])
            self.short = nn.Identity()
            if stride != 1 or inner != width:
                self.short = nn.Sequential(nn.Conv2d(inner, width, 1, stride, bias=False), nn.BatchNorm2d(width))

        def forward(self, x: Any) -> Any:
            y = self.norms[1](self.two(self.norms[0](self.one(x)).relu()))
            return (y + self.short(x)).relu()

    def double(inner: int, width: int) -> Any:
        layers = [(nn.Conv2d(a, width, 3, 1, 1), nn.BatchNorm2d(width), nn.ReLU()) for a in (inner, width)]
        return nn.Sequential(*layers[0], *layers[1])

    class UNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.down = nn.ModuleList([double(3, 16), double(16, 32), double(32, 64)])
            self.up = nn.ModuleList([double(96, 32), double(48, 16)])
            self.head = nn.Conv2d(16, 2, 1)

        def forward(self, x: Any) -> Any:
            skipped = []
            for k, layer in enumerate(self.down):
                x = layer(x if k == 0 else functional.max_pool2d(x, 2))
                skipped.append(x)
            for layer, other in zip(self.up, skipped[-2::-1]):
                x = layer(torch.cat([functional.interpolate(x, scale_factor=2.0), other], 1))
            return self.head(x)

    def resnet() -> Any:
        stem = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
        widths = [64, 64, 64, 128, 128, 256, 256, 512, 512]
        blocks = [Residual(a, b, 1 if a == b else 2) for a, b in itertools.pairwise(widths)]
        return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000))

    def gpt() -> Any:
        blocks = [Block(256, 4, True) for _ in range(4)]
        return nn.Sequential(nn.Embedding(1000, 256), *blocks, nn.LayerNorm(256), nn.Linear(256, 1000))

    def vit() -> Any:
        blocks = [Block(192, 3, False) for _ in range(4)]
        return nn.Sequential(Patches(), *blocks, nn.LayerNorm(192), First(), nn.Linear(192, 10))

    return {
        "mlp": lambda: (nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10)), lambda b: torch.randn(b, 64)),
        "lstm": lambda: (Recurrent(), lambda b: torch.randint(0, 1000, (b, 32))),
        "gpt": lambda: (gpt(), lambda b: torch.randint(0, 1000, (b, 128))),
        "resnet18": lambda: (resnet(), lambda b: torch.randn(b, 3, 112, 112)),
        "vit": lambda: (vit(), lambda b: torch.randn(b, 3, 64, 64)),
        "unet": lambda: (UNet(), lambda b: torch.randn(b, 3, 64, 64)),
    }


# ------------------------------------------------------------------------------------------ preparing


def prepare_here(torch: Any, name: str, folder: Path) -> None:
    """The package of one library; with PyTorch also a script and ONNX. What fails is said, and left out."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model, make = models(torch)[name]()
    model.eval()
    facts: dict[str, Any] = {"weights": sum(t.numel() * t.element_size() for t in model.state_dict().values())}
    dims = ({0: torch.export.Dim("batch", min=1, max=64)},)
    program = torch.export.export(model, (make(4),), dynamic_shapes=dims)
    library = torch.__name__
    begin = time.perf_counter()
    path = folder / f"{name}-{library}.pt2"
    try:
        torch._inductor.aoti_compile_and_package(program, package_path=str(path))
        facts["compile, s"] = time.perf_counter() - begin
        facts["bytes"] = path.stat().st_size
    except Exception as error:
        facts["failed"] = f"{type(error).__name__}: {str(error)[:200]}"
    if library == "torch":
        torch.jit.trace(model, (make(4),), check_trace=False).save(str(folder / f"{name}.script"))
        torch.onnx.export(
            model, (make(4),), str(folder / f"{name}.onnx"), dynamic_shapes=dims, dynamo=True, verbose=False
        )
    (folder / f"{name}-{library}.json").write_text(json.dumps(facts))


def in_process(arguments: list[str], cold: bool = False) -> subprocess.CompletedProcess[str]:
    """Another process of this file; with `cold`, with an empty cache of kernels."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("FLAMBEAU_AS_TORCH")}
    with tempfile.TemporaryDirectory() as cache:
        if cold:
            environment |= {"FLAMBEAU_CACHE_DIR": cache, "TORCHINDUCTOR_CACHE_DIR": cache}
        command = [sys.executable, __file__, *arguments]
        return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)


# ------------------------------------------------------------------------------------------ measuring


def runner(library: str, name: str, folder: Path, torch: Any) -> Any:
    """What runs a prepared model on a tensor."""
    if library == "onnxruntime":
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        session = onnxruntime.InferenceSession(
            str(folder / f"{name}.onnx"), options, providers=["CPUExecutionProvider"]
        )
        first = session.get_inputs()[0].name
        return lambda x: session.run(None, {first: x.numpy()})
    if library == "script":
        loaded = torch.jit.load(str(folder / f"{name}.script"))
        return torch.jit.optimize_for_inference(loaded)
    return torch._inductor.aoti_load_package(str(folder / f"{name}-{library}.pt2"))


def measure_here(library: str, name: str, folder: Path) -> dict[str, float]:
    """Times of loading and of runs in this process, in milliseconds."""
    if library == "flambeau":
        import flambeau as torch
    else:
        import torch

    torch.set_num_threads(1)
    make = models(torch)[name]()[1]
    begin = time.perf_counter()
    run = runner(library, name, folder, torch)
    figures = {"load, ms": (time.perf_counter() - begin) * 1e3}
    with torch.no_grad():
        for batch in BATCHES[name]:
            x, times = make(batch), []
            until = time.perf_counter() + 1.0
            run(x), run(x)
            while len(times) < 5 or (time.perf_counter() < until and len(times) < 200):
                begin = time.perf_counter()
                run(x)
                times.append(time.perf_counter() - begin)
            figures[f"run b{batch}, ms"] = statistics.median(times) * 1e3
    return figures


def in_c(name: str, folder: Path) -> dict[str, float]:
    """Of a C program: milliseconds of a load, and of the process until it has its first result."""
    import flambeau

    package, program = Path(flambeau.__file__ or "").parent, folder / "load"
    if not program.exists():
        (folder / "load.c").write_text(LOADER)
        flags = [f"-I{package / 'include'}", f"-L{package}", "-lflambeau", f"-Wl,-rpath,{package}"]
        subprocess.run(["cc", "-O2", str(folder / "load.c"), "-o", str(program), *flags], check=True)
    x = models(flambeau)[name]()[1](1)
    command = [str(program), str(folder / f"{name}-flambeau.pt2"), str(8 * x.element_size()), *map(str, x.shape)]
    loads, processes = [], []
    for _ in range(7):
        begin = time.perf_counter()
        loads.append(float(subprocess.run(command, check=True, capture_output=True).stdout))
        processes.append((time.perf_counter() - begin) * 1e3)
    return {"load in C, ms": statistics.median(loads), "process to first result, ms": statistics.median(processes)}


def measure(name: str, folder: Path) -> list[str]:
    rows: dict[str, dict[str, float]] = {}
    for library in ("flambeau", "torch", "script", "onnxruntime"):
        done = in_process(["--one", library, name, str(folder)])
        if done.returncode == 0:
            rows[library] = json.loads(done.stdout.strip().splitlines()[-1])
        facts = folder / f"{name}-{library}.json"
        if facts.exists() and library in rows:
            known = json.loads(facts.read_text())
            if "bytes" in known:
                rows[library]["beside weights, KB"] = (known["bytes"] - known["weights"]) / 1024
    for library in ("flambeau", *(["torch"] if name in COLD else [])):
        with tempfile.TemporaryDirectory() as scratch:
            cold = in_process(["--prepare", library, name, scratch], cold=True)
            if cold.returncode == 0:
                facts = json.loads(Path(scratch, f"{name}-{library}.json").read_text())
                rows[library]["cold compile, s"] = facts["compile, s"]
    rows["flambeau"] |= in_c(name, folder)
    lines = [name]
    for figure in dict.fromkeys(f for row in rows.values() for f in row):
        cells = "".join(f"  {library} {row[figure]:9.3f}" for library, row in rows.items() if figure in row)
        others = [row[figure] for library, row in rows.items() if library != "flambeau" and figure in row]
        ratio = ""
        if others and figure.startswith("run"):
            ratio = f"   {rows['flambeau'][figure] / min(others):.2f} of the best other"
        lines.append(f"  {figure:28}{cells}{ratio}")
    return lines


def runtime_megabytes(names: list[str], folder: Path) -> float:
    """The library that has what these packages need, for one instruction set and without oneDNN."""
    target = folder / "libflambeau.so"
    packages = [str(folder / f"{name}-flambeau.pt2") for name in names]
    command = [sys.executable, "-m", "flambeau", "package", "--runtime", *packages, "-o", str(target)]
    subprocess.run(command, check=True, capture_output=True)
    return target.stat().st_size / 1e6


def ratios(lines: list[str]) -> list[float]:
    return [float(line.split(" of the best other")[0].split()[-1]) for line in lines if "of the best other" in line]


def main(arguments: list[str]) -> None:
    if arguments[0] in ("--prepare", "--one"):
        _, library, name, folder = arguments
        if arguments[0] == "--one":
            print(json.dumps(measure_here(library, name, Path(folder))))
            return
        import importlib

        prepare_here(importlib.import_module(library), name, Path(folder))
        return
    record = Path(arguments.pop(arguments.index("--record") + 1)) if "--record" in arguments else None
    step, folder, *names = [a for a in arguments if a != "--record"]
    Path(folder).mkdir(parents=True, exist_ok=True)
    lines = []
    for name in names or BATCHES:
        if step == "prepare":
            for library in ("flambeau", "torch"):
                done = in_process(["--prepare", library, name, folder])
                print(name, library, "prepared" if done.returncode == 0 else done.stderr[-500:], flush=True)
        else:
            lines += measure(name, Path(folder))
            print("\n".join(lines[-9:]), flush=True)
    if lines and (known := ratios(lines)):
        lines.append(
            f"geometric mean of runs: {math.exp(statistics.fmean(map(math.log, known))):.2f} of the best other"
        )
        lines.append(
            f"runtime library of these packages, MB: {runtime_megabytes(names or list(BATCHES), Path(folder)):.2f}"
        )
        print("\n".join(lines[-2:]))
    if record:
        record.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
