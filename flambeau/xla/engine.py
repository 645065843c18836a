"""Programs on jaxlib's PJRT client. Tensors go in and out by DLPack; memory that is aligned to 64 bytes is not copied."""

from __future__ import annotations

import functools
from typing import Any

import flambeau as fl
from flambeau.utils.dlpack import from_dlpack, to_dlpack

__all__ = ["Program", "load", "platform"]


@functools.cache
def _client() -> Any:
    try:
        from jaxlib import xla_client
    except ImportError as error:
        raise ImportError("[xla] expected jaxlib; install flambeau[xla]") from error
    return xla_client.make_cpu_client()


def platform() -> str:
    return str(_client().platform)


class Program:
    """A compiled module, and which of its results are written over inputs."""

    def __init__(self, text: str, outputs: int, written: list[int], used: list[int], draws: int = 0) -> None:
        from jaxlib import _jax

        self._jax = _jax
        client = _client()
        self.device = client.local_devices()[0]
        self.executable = client.compile_and_load(
            text.encode(), _jax.DeviceList(tuple(client.local_devices())), _jax.CompileOptions()
        )
        self.outputs, self.written, self.used, self.draws = outputs, written, used, draws
        self.text = text

    def __call__(self, inputs: list[Any]) -> list[Any]:
        jax = self._jax
        given = [inputs[i] for i in self.used]
        if self.draws:
            from flambeau.xla.draws import state_rows

            given.append(state_rows(self.draws))
        buffers = [jax.dlpack_managed_tensor_to_buffer(to_dlpack(_plain(t)), self.device, None) for t in given]
        results = self.executable.execute_sharded(buffers).disassemble_into_single_device_arrays()
        tensors = [from_dlpack(jax.buffer_to_dlpack_managed_tensor(r[0], None)) for r in results]
        for place, result in zip(self.written, tensors[self.outputs :]):
            inputs[place].copy_(result.reshape(inputs[place].shape).to(inputs[place].dtype))
        return tensors[: self.outputs]


def _plain(t: Any) -> Any:
    """Contiguous, of a dtype that DLPack has; numbers as 0-dim tensors."""
    t = t.detach()
    if t.dtype is fl.bool:
        return t.contiguous()
    return t.contiguous()


def load(printed: Any) -> Program:
    """The program of a printed graph."""
    return Program(printed.text, printed.outputs, printed.written, printed.used, printed.draws)
