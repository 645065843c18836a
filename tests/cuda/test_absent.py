"""What the device lacks is known: the operators that have neither a CUDA kernel nor a definition. Needs no device."""

import re
from pathlib import Path

import pytest

import flambeau as fl
from flambeau.ops import samples

ROOT = Path(__file__).resolve().parents[2]
KERNEL = re.compile(r'(?:FL_CUDA_KERNEL(?:_MIXED)?\(|Register \w+\{)\s*"([^"]+)"')

pytestmark = pytest.mark.without_device

# Operators that the compiler makes of others for the CPU, and no device is asked for.
ABSENT = {
    "_convolution_packed",
    "_convolution_prepack",
    "_convolution_prepacked",
    "_product_finished",
    "_product_packed",
}


def absent():
    written = set()
    for path in sorted((ROOT / "csrc/cuda").rglob("*.c*")):
        written |= set(KERNEL.findall(path.read_text()))
    found = []
    for name, record in samples.load().items():
        if record.kind != "native" or name in written or record.definition is not None:
            continue
        op = fl._C._operator_object(name)
        keys = ("CUDA", "CompositeImplicitAutograd")
        if not any(op.has_kernel_for_dispatch_key(key) for key in keys):
            found.append(name)
    return found


def test_nothing_else_is_absent():
    assert sorted(set(absent()) - ABSENT) == []
