"""Programs on a PJRT client: jaxlib's, or that of a plugin (`pjrt.py`).

With jaxlib tensors go in and out by DLPack; memory that is aligned to 64 bytes is not copied. A program remembers the buffers
of its last inputs: parameters lie where they lay before, so that the next run passes them on as they are.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import os
import sys
from pathlib import Path
from typing import Any

import flambeau as fl
from flambeau.utils.dlpack import from_dlpack, to_dlpack

__all__ = ["Program", "load", "platform", "use"]

_plugin: Any = None  # in place of jaxlib


@functools.cache
def _client() -> Any:
    try:
        from jaxlib import xla_client
    except ImportError as error:
        raise ImportError("[xla] expected jaxlib; install flambeau[xla]") from error
    if importlib.util.find_spec("jax") is None:
        # jaxlib asks for it with each array that it makes, and would search all of sys.path each time.
        modules: dict[str, Any] = sys.modules
        modules.setdefault("jax._src.sharding_impls", None)
    return xla_client.make_cpu_client(asynchronous=False)  # results are wanted at once: no other thread need wake up


def platform() -> str:
    return str(_client().platform if _plugin is None else _plugin.platform)


def use(plugin: Any) -> None:
    """Programs run on a plugin from now on; None stands for jaxlib. Those that were compiled before are forgotten."""
    global _plugin
    _plugin = plugin
    fl._C._lazy_set("xla", fl.device("cpu"), 0)


_kept: tuple[Path, bool] | None = None  # the folder of compiled programs, and whether it is only read


def keep_programs(path: str, readonly: bool) -> None:
    """Looks for compiled programs in a folder, and writes new ones there unless it is only read."""
    global _kept
    _kept = Path(path), readonly
    if not readonly:
        _kept[0].mkdir(parents=True, exist_ok=True)


def _loaded(client: Any, text: str) -> Any:
    """The executable of a module, from the folder of programs where it lies there."""
    from jaxlib import _jax, version

    devices, options = _jax.DeviceList(tuple(client.local_devices())), _jax.CompileOptions()
    if _kept is None:
        return client.compile_and_load(text.encode(), devices, options)
    folder, readonly = _kept
    stamp = hashlib.sha256(f"{version.__version__}\0{client.platform_version}\0{text}".encode()).hexdigest()
    path = folder / f"{stamp}.xla"
    if path.exists():
        return client.deserialize_executable(path.read_bytes(), devices, options)
    executable = client.compile_and_load(text.encode(), devices, options)
    if not readonly:
        temporary = path.with_suffix(f".{os.getpid()}")
        temporary.write_bytes(client.serialize_executable(executable))
        os.replace(temporary, path)
    return executable


class _JaxProgram:
    """A compiled module on jaxlib's client."""

    def __init__(self, text: str) -> None:
        from jaxlib import _jax

        self._import = _jax.dlpack_managed_tensor_to_buffer
        self._export = _jax.buffer_to_dlpack_managed_tensor
        client = _client()
        self._device = client.local_devices()[0]
        self._execute = _loaded(client, text).execute_sharded
        self._addresses: list[int] = []  # of the inputs of the last run, whose buffers keep their memory
        self._buffers: list[Any] = []

    def __call__(self, inputs: list[Any], replaced: dict[int, int] | None = None) -> list[Any]:
        """The results; `replaced` says by place which results the caller passes in place of inputs the next time."""
        known, buffers = self._addresses, self._buffers
        if len(known) != len(inputs):
            known, buffers = [0] * len(inputs), [None] * len(inputs)
        for at, tensor in enumerate(inputs):
            address = tensor.data_ptr()
            if known[at] != address or not address:
                plain = tensor.detach().contiguous()
                buffers[at] = self._import(to_dlpack(plain), self._device, None)
                # A copy says nothing about the memory that it was made of.
                known[at] = address if buffers[at].unsafe_buffer_pointer() == address else 0
        self._addresses, self._buffers = known, buffers
        results = self._execute(buffers).disassemble_into_single_device_arrays()
        tensors = [from_dlpack(self._export(r[0], None)) for r in results]
        for place, result in (replaced or {}).items():
            known[place], buffers[place] = tensors[result].data_ptr(), results[result][0]
        return tensors


class Program:
    """A compiled module, and which of its results are the new values of inputs."""

    def __init__(self, text: str, outputs: int, written: list[int], used: list[int], draws: int = 0) -> None:
        self._run = _JaxProgram(text) if _plugin is None else _plugin.compile(text)
        self.outputs, self.written, self.used, self.draws = outputs, written, used, draws
        self.text = text
        by_input = {place: outputs + at for at, place in enumerate(written)}
        self._replaced = {at: by_input[place] for at, place in enumerate(used) if place in by_input}

    def __call__(self, inputs: list[Any]) -> list[Any]:
        """The results; inputs are written to."""
        tensors = self.results(inputs)
        for place, result in zip(self.written, tensors[self.outputs :]):
            inputs[place].copy_(result)
        return tensors[: self.outputs]

    def results(self, inputs: list[Any]) -> list[Any]:
        """The results, then the values of the inputs in `written`, which keep their memory as it was."""
        used_inputs = inputs if len(self.used) == len(inputs) else [inputs[i] for i in self.used]
        if self.draws:
            from flambeau.xla.draws import state_rows

            used_inputs = [*used_inputs, state_rows(self.draws)]
        tensors: list[Any] = self._run(used_inputs, self._replaced)
        for at, place in enumerate(self.written, self.outputs):
            if tensors[at].shape != inputs[place].shape or tensors[at].dtype is not inputs[place].dtype:
                tensors[at] = tensors[at].reshape(inputs[place].shape).to(inputs[place].dtype)
        return tensors


def load(printed: Any) -> Program:
    """The program of a printed graph."""
    return Program(printed.text, printed.outputs, printed.written, printed.used, printed.draws)
