"""Building Triton kernels: sources become machine code for the GPU, kept on disk under the hash of what they depend on.

Triton is used as a compiler only, in processes that import nothing else, several at a time. The images are loaded and
launched by our own runtime. Files are written under another name and renamed; an image that is not what was written is
built again.
"""

from __future__ import annotations

import atexit
import base64
import functools
import hashlib
import importlib.metadata
import json
import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import flambeau as fl
from flambeau import _C
from flambeau._inductor import build, config, triton_math
from flambeau._inductor.ir import Buffer, OperatorCall
from flambeau._inductor.printers import Launch, Printer, Work
from flambeau._inductor.schedule import Group
from flambeau._inductor.steps import KernelStep, Location, Step
from flambeau._inductor.tiles import Target, is_small
from flambeau._inductor.triton import HEADER, Kernel, Tuner, print_all
from flambeau._inductor.triton_joining import gathered, is_copy
from flambeau.ops.expr import Expr

__all__ = ["Image", "TritonPrinter", "available", "images", "loaded"]


@dataclass(frozen=True)
class Image:
    """A kernel as the driver loads it."""

    name: str
    code: bytes
    shared: int
    threads: int


@functools.cache
def version() -> str | None:
    """Triton's version, without importing it; None when it is not installed."""
    try:
        return importlib.metadata.version("triton")
    except importlib.metadata.PackageNotFoundError:
        return None


def available() -> bool:
    return version() is not None


# ---------------------------------------------------------------- compiling


def _request(kernel: Kernel, capability: int) -> dict[str, Any]:
    """What the compiler is asked, with the name by which the answer is kept."""
    asked = {
        "source": kernel.source,
        "signature": kernel.signature(),
        "multiples": kernel.multiples(),
        "constants": kernel.constants,
        "options": {"num_warps": kernel.warps, "num_stages": kernel.stages, "maxnreg": kernel.registers},
        "capability": capability,
    }
    digest = hashlib.sha256(json.dumps([asked, version(), HEADER, _OPTIONS]).encode()).hexdigest()[:24]
    name = f"k_{digest}"
    return {**asked, "name": name, "source": HEADER + kernel.source.replace("@NAME@", name)}


_OPTIONS = 2  # to be raised when the worker compiles differently


class _Worker:
    """A process that compiles."""

    def __init__(self) -> None:
        path = str(Path(__file__).with_name("triton_worker.py"))
        # -P: the script's folder, where a module is called triton, is not searched for modules.
        self.process = subprocess.Popen(
            [sys.executable, "-P", path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def build(self, request: dict[str, Any]) -> dict[str, Any]:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            return {"error": f"the compiler's process ended with code {self.process.wait()}"}
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()


class _Workers:
    """The processes that are idle; they live as long as this one."""

    def __init__(self) -> None:
        self.idle: list[_Worker] = []
        self.lock = threading.Lock()
        atexit.register(self.close)

    def build(self, request: dict[str, Any]) -> dict[str, Any]:
        with self.lock:
            worker = self.idle.pop() if self.idle else None
        worker = worker or _Worker()
        answer = worker.build(request)
        if worker.process.poll() is None:
            with self.lock:
                self.idle.append(worker)
        return answer

    def close(self) -> None:
        for worker in self.idle:
            worker.close()


@functools.cache
def _workers() -> _Workers:
    return _Workers()


def _folder() -> Path:
    path = build.cache_dir() / "cubin"
    path.mkdir(mode=0o700, exist_ok=True)
    return path


def _from_disk(name: str) -> Image | None:
    """An image that was built before; None if there is none or it is not what was written."""
    try:
        data = build.read(_folder() / name)
        head, _, code = data.partition(b"\n")
        said = json.loads(head)
        if hashlib.sha256(code).hexdigest() != said["digest"]:
            return None
        return Image(name, code, said["shared"], said["threads"])
    except (OSError, ValueError, KeyError):
        return None


def _to_disk(image: Image) -> None:
    said = {
        "digest": hashlib.sha256(image.code).hexdigest(),
        "shared": image.shared,
        "threads": image.threads,
    }
    path = _folder() / f"{image.name}.{os.getpid()}.{threading.get_ident()}"
    path.write_bytes(json.dumps(said).encode() + b"\n" + image.code)
    os.replace(path, _folder() / image.name)


_made: dict[str, Image] = {}


def images(kernels: list[Kernel], capability: int) -> list[Image]:
    """The machine code of each kernel, built where needed, all that are missing side by side."""
    requests = [_request(k, capability) for k in kernels]
    missing = {}
    for request in requests:
        name = request["name"]
        if name not in _made and name not in missing:
            cached_image = _from_disk(name)
            if cached_image is not None:
                _made[name] = cached_image
            else:
                missing[name] = request
    if missing:
        with ThreadPoolExecutor(min(len(missing), max(os.cpu_count() or 1, 1), 16)) as pool:
            for request, answer in zip(missing.values(), pool.map(_workers().build, missing.values())):
                if "error" in answer:
                    raise build.BuildError(
                        f"[inductor] expected the generated Triton kernel to compile, got:\n{answer['error']}\n"
                        f"{request['source']}"
                    )
                code = base64.b64decode(answer["image"])
                image = Image(request["name"], code, answer["shared"], answer["threads"])
                _to_disk(image)
                _made[image.name] = image
    return [_made[request["name"]] for request in requests]


# ---------------------------------------------------------------- launches

_functions: dict[tuple[int, str], int] = {}  # by device and name: what the driver loaded


def loaded(image: Image, device: int) -> int:
    """The driver's handle of a kernel."""
    key = (device, image.name)
    if key not in _functions:
        _functions[key] = _C._load_kernel(image.code, image.name, image.shared, device)
    return _functions[key]


class _TritonLaunch:
    def __init__(self, kernel: Kernel, image: Image, function: int) -> None:
        self.kernel = kernel
        self.image = image
        self.function = function
        self.pointers = kernel.pointers
        self.scratch: Sequence[Buffer] = kernel.scratch

    def step(self, pointers: list[Location]) -> Step:
        kernel, image = self.kernel, self.image
        return KernelStep(
            self.function, kernel.grid, image.threads, image.shared, pointers, kernel.numbers, kernel.wide, kernel.waits
        )


# In packages, in place of the address of the flag that kernels report indices with: `csrc/runtime/package_plan.h` has the same.
_PACKAGED_FLAG = 0x464C4147_464C4147


class TritonPrinter(Printer):
    """Triton kernels for one GPU."""

    fuses = True
    random = True
    indices = True
    guards = True
    overwrites = True
    places = True
    matrix_vectors = True
    column_groups = True
    orders_by_memory = True
    converts_loads = True
    channels_last = (fl.float32, fl.bfloat16, fl.float16)
    channels_last_weights = True
    pads_rows = True
    specializes_alignment = True
    keeps_layouts = False
    records_graphs = True
    saves_shared_operands = True

    def __init__(self, device: int, target: Target) -> None:
        self.device = device
        self.target = target
        self.float8 = target.capability >= 89

    @classmethod
    def of(cls, device: Any) -> TritonPrinter:
        index = device.index if device.index is not None else fl.cuda.current_device()
        properties = fl.cuda.get_device_properties(index)
        capability = properties.major * 10 + properties.minor
        from flambeau.cuda import _library

        failure = _library.call("failure_flag") if build.collection() is None else _PACKAGED_FLAG
        return cls(index, Target(capability, properties.multi_processor_count, failure=failure))

    def knows(self, expr: Expr, dtype: Any) -> bool:
        return triton_math.known(expr, dtype.is_floating_point)

    def launches(self, work: list[Work]) -> list[list[Launch] | None]:
        return self.launches_by_step(work, range(len(work)))

    def launches_by_step(self, work: list[Work], steps: Sequence[int]) -> list[list[Launch] | None]:
        printed = print_all(work, self.target, self._tuner(), steps)
        flat = [kernel for kernels in printed for kernel in kernels or ()]
        compiled = iter(zip(flat, images(flat, self.target.capability)))
        return [None if kernels is None else [self._launch(*next(compiled)) for _ in kernels] for kernels in printed]

    def small(self, group: Group) -> bool:
        measured = config.max_autotune or config.max_autotune_pointwise  # those are measured one by one
        return not measured and (is_copy(group) or is_small(group, self.target))

    def arranged(self, scheduled: list[Group | OperatorCall]) -> list[Group | OperatorCall]:
        return gathered(scheduled)

    def _tuner(self) -> Tuner | None:
        products = config.max_autotune or config.max_autotune_gemm
        loops = config.max_autotune or config.max_autotune_pointwise
        if not products and not loops:
            return None
        from flambeau._inductor.triton_tune import MeasuringTuner

        return MeasuringTuner(self.device, self.target, products, loops)

    def _launch(self, kernel: Kernel, image: Image) -> Launch:
        collected = build.collection()
        function = loaded(image, self.device) if collected is None else collected.image_number(image)
        return _TritonLaunch(kernel, image, function)
