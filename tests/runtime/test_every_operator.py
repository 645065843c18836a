"""Every operator of the table runs in a process that has no kernels of Python."""

import importlib.util
import json
import os
import pathlib
import subprocess
import sys

import pytest

import flambeau as fl
from flambeau.ops import samples

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
import sampled

HERE = pathlib.Path(__file__).parent
LIBRARY = pathlib.Path(fl.__file__).parent / "libflambeau.so"
DTYPES = {
    fl.uint8: 0, fl.int8: 1, fl.int16: 2, fl.int32: 3, fl.int64: 4, fl.float16: 5, fl.float32: 6, fl.float64: 7,
    fl.complex64: 9, fl.complex128: 10, fl.bool: 11, fl.bfloat16: 15,
}  # fmt: skip


class Other(Exception):
    """A value that the C interface does not have."""


def tensor(t):
    if t.layout is not fl.strided or t.is_quantized or t.dtype not in DTYPES or t.device.type != "cpu":
        raise Other
    plain = t.detach().resolve_conj().resolve_neg().contiguous()
    data = bytes(plain.reshape(-1).view(fl.uint8).tolist()) if plain.numel() else b""
    return {"dtype": DTYPES[t.dtype], "sizes": list(t.shape), "data": data.hex()}


def described(x):
    if x is None:
        return {"none": 0}
    if isinstance(x, fl.Tensor):
        return {"tensor": tensor(x)}
    if isinstance(x, fl.dtype):
        if x not in DTYPES:
            raise Other
        return {"dtype": DTYPES[x]}
    if isinstance(x, fl.device):
        return {"device": str(x)}
    if isinstance(x, complex):
        return {"complex": [x.real, x.imag]}
    if isinstance(x, (bool, int, float, str)):
        return {type(x).__name__: x}
    if isinstance(x, (list, tuple)):
        for kind, key in ((bool, "bools"), (int, "ints"), ((int, float), "floats")):
            if all(isinstance(v, kind) for v in x):
                return {key: list(x)}
        if all(v is None or isinstance(v, fl.Tensor) for v in x):
            return {"tensors": [None if v is None else tensor(v) for v in x]}
    raise Other


def write_calls(path):
    """Two calls of each operator; returns the names of those that were written."""
    written = set()
    with open(path, "w", encoding="utf-8") as file:
        for name in sampled.NAMES:
            for call in sampled.calls(name, fl.float32)[:2]:
                args, kwargs = samples.plain((list(call.args), call.kwargs))
                pairs = [*((None, a) for a in args), *kwargs.items()]
                try:
                    arguments = [(key, described(value)) for key, value in pairs]
                except Other:
                    continue
                record = sampled.RECORDS[name]
                line = {"name": record.schema.name, "method": not record.function, "arguments": arguments}
                file.write(json.dumps(line) + "\n")
                written.add(name)
    return written


@pytest.mark.filterwarnings("ignore")
def test_operators_run_without_python(tmp_path):
    calls = tmp_path / "calls"
    written = write_calls(calls)
    assert len(written) > 1100
    lapack = importlib.util.find_spec("scipy_openblas32")  # may be in another environment than this one
    prefix = pathlib.Path(lapack.origin).parents[4] if lapack and lapack.origin else sys.prefix
    command = [sys.executable, HERE / "call_operators.py", LIBRARY, calls]
    environment = {**os.environ, "VIRTUAL_ENV": str(prefix)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
