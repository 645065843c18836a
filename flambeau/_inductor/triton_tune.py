"""Choosing the fastest of several Triton kernels by measuring, for `max_autotune`.

Kernels run on memory as large as the program's. Products and convolutions are measured as captured graphs of a few runs,
so that the device's time counts and not the host's. Winners are remembered on disk, so that a machine measures once.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
from collections.abc import Callable
from typing import Any

import flambeau as fl
from flambeau._inductor.ir import Buffer
from flambeau._inductor.tiles import Target
from flambeau._inductor.triton import Kernel
from flambeau._inductor.triton_build import Image, images, loaded
from flambeau._inductor.triton_products import Matrix
from flambeau._inductor.tune import quickest

__all__ = ["MeasuringTuner"]

_RUNS = 4  # in a graph


class MeasuringTuner:
    """What to take on one GPU."""

    def __init__(self, device: int, target: Target, products: bool, loops: bool) -> None:
        self.device = device
        self.target = target
        self.products = products
        self.loops = loops
        self.stream = fl.cuda.Stream(device)

    def product(self, product: Matrix, finished: list[Kernel], separate: list[Kernel]) -> int | None:
        """Which kernel takes less time than the others and than the library's product followed by separate kernels."""
        if not self.products:
            return None
        memory = _Memory(self.device)

        def ways() -> list[Callable[[], Any]]:
            after = self._runs(separate, memory)
            call = product.call()
            inputs = {id(v): memory.of(b).as_strided(v.size, v.stride, v.offset) for b, v in product.item.reads}
            args = [inputs.get(id(a), a) for a in call.args]
            kwargs = {k: inputs.get(id(a), a) for k, a in call.kwargs.items()}
            candidates = [*self._runs(finished, memory), lambda: [call.op(*args, **kwargs), *(run() for run in after)]]
            return list(map(self._recorded, candidates))

        winner = self._quickest(f"product {product}", [*finished, *separate], ways, len(finished) + 1)
        return winner if winner < len(finished) else None

    def loop(self, kernels: list[Kernel]) -> int:
        """Which of several kernels that compute the same takes the least time."""
        if not self.loops:
            return 0
        return self._quickest("loop", kernels, lambda: self._runs(kernels, _Memory(self.device)), len(kernels))

    def _quickest(
        self, what: str, kernels: list[Kernel], ways: Callable[[], list[Callable[[], Any]]], count: int
    ) -> int:
        told = [(k.source, k.numbers, k.constants, k.warps, k.stages, k.registers) for k in kernels]
        digest = hashlib.sha256(repr(told).encode()).hexdigest()
        measured_ways = functools.cache(ways)  # only where they have to be measured

        def way(at: int) -> Callable[[], Any]:
            return lambda: measured_ways()[at]()

        with fl.no_grad():
            return quickest(f"{what} {digest} {self.target}", list(map(way, range(count))), self._wait)

    def _wait(self) -> None:
        fl.cuda.synchronize(self.device)

    def _recorded(self, way: Callable[[], Any]) -> Callable[[], Any]:
        """A graph of some runs; the way itself where it cannot be captured."""
        graph = fl.cuda.CUDAGraph()
        with fl.cuda.device(self.device):
            way()  # what is made at first use is made now
            self._wait()
            try:
                with fl.cuda.stream(self.stream):
                    graph.capture_begin(capture_error_mode="thread_local")
                    try:
                        for _ in range(_RUNS):
                            way()
                    finally:
                        graph.capture_end()
            except RuntimeError:
                return way
        return graph.replay

    def _runs(self, kernels: list[Kernel], memory: _Memory) -> list[Callable[[], None]]:
        compiled = images(kernels, self.target.capability)
        return [self._run(kernel, image, memory) for kernel, image in zip(kernels, compiled)]

    def _run(self, kernel: Kernel, image: Image, memory: _Memory) -> Callable[[], None]:
        """A kernel with its arguments, outside of any program."""
        from flambeau.cuda import _library

        addresses = [memory.of(b).data_ptr() + offset * b.dtype.itemsize for b, offset in kernel.pointers]
        values = (ctypes.c_int64 * (len(addresses) + len(kernel.numbers) + 2))(*addresses, *kernel.numbers, 0, 0)
        first = ctypes.addressof(values)
        params = (ctypes.c_void_p * len(values))(*(first + 8 * i for i in range(len(values))))
        grid, block = (ctypes.c_uint * 3)(*kernel.grid), (ctypes.c_uint * 3)(image.threads, 1, 1)
        function = loaded(image, self.device)

        def run(held: Any = (values, memory)) -> None:
            stream = _library.call("current_stream", self.device)
            _library.call("launch", function, grid, block, image.shared, stream, params)

        return run


class _Memory:
    """Memory for the buffers of kernels, each as large as its own."""

    def __init__(self, device: int) -> None:
        self.device = device
        self.held: dict[Buffer, Any] = {}

    def of(self, buffer: Buffer) -> Any:
        whole = buffer.memory
        if whole not in self.held:
            count = 1 + sum((n - 1) * s for n, s in zip(whole.size, whole.stride)) if 0 not in whole.size else 1
            self.held[whole] = fl.zeros(count, dtype=whole.dtype, device=f"cuda:{self.device}")
        return self.held[whole]
