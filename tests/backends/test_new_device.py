"""The guide to writing a device runs; and what it does not show of registering one."""

import pathlib
import re

import pytest

import flambeau as torch
from flambeau import library
from flambeau.backends import register_device

GUIDE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "new-device.md"


def test_the_guide_runs():
    blocks = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    assert len(blocks) > 5
    scope = {"__name__": "guide"}
    for number, block in enumerate(blocks):
        exec(compile(block, f"new-device.md block {number + 1}", "exec"), scope)


def test_a_device_brings_its_own_memory():
    import ctypes

    live = {}

    def allocate(count):
        block = ctypes.create_string_buffer(max(count, 1))
        live[ctypes.addressof(block)] = block
        return ctypes.addressof(block)

    register_device("ownmem", allocate=allocate, free=lambda address, count: live.pop(address))
    x = torch.empty(4, device="ownmem")
    assert list(live) == [x.data_ptr()]
    view = x[1:]
    del x
    assert len(live) == 1
    del view
    assert not live


def test_host_fallback_runs_anything():
    device = register_device("lazydev", host_fallback=True)
    from flambeau.backends.reference import copy_ as reference_copy
    from flambeau.backends.reference.memory import read, write

    @device.kernel("copy_", any_device=True)
    def copy_(self, src, non_blocking=False):
        write(self, read(src.expand(self.shape)))
        return self

    assert reference_copy is not copy_
    x = torch.tensor([[2.0, 0.0], [0.0, 4.0]]).to("lazydev")
    assert torch.linalg.inv(x).tolist() == [[0.5, 0], [0, 0.25]]
    assert (x + 1).device.type == "lazydev"


def test_names_are_checked():
    for name in ("cpu", "cuda", "Bad Name", ""):
        with pytest.raises((ValueError, RuntimeError)):
            register_device(name)
    with pytest.raises(ValueError):
        register_device("half", allocate=lambda n: 0)
    with pytest.raises(RuntimeError):
        torch.empty(1, device="nosuchdevice")


def test_a_fallback_receives_every_operator():
    register_device("catchall")
    seen = []
    with library._scoped_library("_", "IMPL") as lib:

        def fallback(op, *args, **kwargs):
            seen.append(str(op))
            return torch.zeros(1)

        lib.fallback(fallback, "catchall")
        torch.sin(torch.empty(2, device="catchall"))
    assert seen == ["aten.sin.default"]
