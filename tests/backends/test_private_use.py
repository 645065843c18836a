"""What programs written for PyTorch's PrivateUse1 expect of a device from outside, in a process of its own: the name is given once."""

import subprocess
import sys
import textwrap


def run(program):
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


RENAMED = """
import io, types
import flambeau as fl
fl.utils.rename_privateuse1_backend("npux")
fl.utils.generate_methods_for_privateuse1_backend(for_storage=True)
"""


def test_kernels_of_the_key_and_a_name_given_once():
    run(
        RENAMED
        + """
from flambeau.backends.reference.memory import read, write

with fl.library._scoped_library("aten", "IMPL") as lib:
    lib.impl("copy_", lambda self, src, non_blocking=False: write(self, read(src.expand(self.shape))) or self, "PrivateUse1")
    x = fl.ones(2).npux()
    assert x.is_npux and not fl.ones(1).is_npux and x.cpu().tolist() == [1, 1]
assert fl.Tensor.npux.__doc__ and fl.nn.Module.npux.__doc__
try:
    fl.utils.rename_privateuse1_backend("other")
except RuntimeError as error:
    assert "npux" in str(error)
else:
    raise AssertionError("renamed twice")
"""
    )


def test_the_runtime_module():
    run(
        RENAMED
        + """
module = types.ModuleType("npux_runtime")
module.device_count = lambda: 2
fl._register_device_module("npux", module)
assert fl.npux is module and fl.get_device_module("npux") is module and fl.get_device_module() is module
assert fl.accelerator.device_count() == 2 and fl.accelerator.current_accelerator().type == "npux"
assert module.is_available() and module.Stream  # what a module lacks is derived
try:
    fl._register_device_module("npux", module)
except RuntimeError as error:
    assert "one module" in str(error)
else:
    raise AssertionError("a second module was taken")
assert fl.device("privateuseone:1") == fl.device("npux:1")
"""
    )


def test_memory_of_the_device_travels_by_dlpack_and_checkpoints():
    run(
        RENAMED
        + """
x = fl.arange(4.0).npux()
assert x.__dlpack_device__() == (12, 0)
y = fl.from_dlpack(x)
assert y.device.type == "npux" and y.data_ptr() == x.data_ptr()
from flambeau.backends import register_device
register_device("another")
z = fl.from_dlpack(fl.arange(3.0).to("another"))
assert z.device.type == "another" and z.tolist() == [0, 1, 2]
file = io.BytesIO()
fl.save(x, file)
for place, kind in (None, "npux"), ("cpu", "cpu"), ({"npux:0": "cpu"}, "cpu"), ({"npux": "cpu"}, "cpu"):
    file.seek(0)
    loaded = fl.load(file, map_location=place)
    assert loaded.device.type == kind and loaded.tolist() == [0, 1, 2, 3], (place, loaded.device)
assert (fl.load(io.BytesIO(file.getvalue())).device, x.device) == (fl.device("npux"),) * 2
"""
    )


def test_pinned_memory():
    run(
        RENAMED
        + """
import gc
from flambeau.backends import register_device
locked = {}
register_device("npux", accelerator=True, pin=locked.__setitem__, unpin=lambda address, size: locked.pop(address))
x = fl.arange(6.0).reshape(2, 3).t()
pinned = x.pin_memory()
assert not x.is_pinned() and pinned.is_pinned() and pinned[1].is_pinned() and pinned.pin_memory() is pinned
assert pinned.tolist() == x.tolist() and pinned.stride() == x.stride() and list(locked.values()) == [24]
view = pinned[0]
del pinned
gc.collect()
assert locked and view.tolist() == [0, 3]  # a view holds the memory
del view
gc.collect()
assert not locked
loader = fl.utils.data.DataLoader([fl.ones(2)] * 4, batch_size=2, pin_memory=True)
assert all(batch.is_pinned() for batch in loader)
"""
    )
