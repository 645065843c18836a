"""The client of PJRT plugins, against a plugin written for tests; and against a real one that FLAMBEAU_PJRT_PLUGIN names."""

import ctypes
import os
import shutil
import subprocess
from pathlib import Path

import pytest

import flambeau as fl
from flambeau import xla
from flambeau.xla import engine

SOURCE = Path(__file__).with_name("pjrt_plugin.c")


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler")
    path = tmp_path_factory.mktemp("plugin") / "plugin.so"
    subprocess.run([compiler, "-O1", "-w", "-shared", "-fPIC", str(SOURCE), "-o", str(path)], check=True)
    return str(path)


def test_what_a_plugin_says_of_itself(library):
    plugin = xla.load(library, {"a": True, "b": 3, "c": 0.5, "d": "text"})
    assert plugin.api_version == (0, 50) and plugin.attributes == {"answer": "42"}
    assert (plugin.platform, plugin.platform_version, plugin.devices) == ("test", "1", ["TestDevice(id=0)"])
    assert ctypes.CDLL(library).plugin_options_seen() == 4


@pytest.mark.parametrize("dtype", [fl.float32, fl.int64, fl.bool, fl.float64])
def test_programs_run_and_leave_no_buffers(library, dtype):
    plugin = xla.load(library)
    a, b = (fl.randn(3, 4) * 3).to(dtype), (fl.randn(5) * 3).to(dtype)
    first, second = plugin.compile("swap")([a.t(), b])
    assert first.tolist() == b.tolist() and second.tolist() == a.t().tolist() and second.dtype is dtype
    assert ctypes.CDLL(library).plugin_live_buffers() == 0


def test_errors_of_a_plugin_are_raised(library):
    plugin = xla.load(library)
    with pytest.raises(RuntimeError, match=r"\[xla.compile\].*no such program"):
        plugin.compile("halve")
    with pytest.raises(RuntimeError, match=r"\[xla.run\].*another number of arguments"):
        plugin.compile("double")([fl.ones(1), fl.ones(1)])
    assert ctypes.CDLL(library).plugin_live_buffers() == 0


def test_what_is_no_plugin_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="path of a PJRT plugin"):
        xla.load(str(tmp_path / "nothing.so"))
    (tmp_path / "text.so").write_text("no library")
    with pytest.raises(ValueError, match="shared library"):
        xla.load(str(tmp_path / "text.so"))
    with pytest.raises(ValueError, match="GetPjrtApi"):
        xla.load(fl._C.__file__)


def test_the_device_runs_on_a_plugin(library, monkeypatch):
    plugin = xla.load(library)
    monkeypatch.setattr("flambeau.xla.printer.print_graph", lambda replay, inputs: _printed("double"))
    try:
        plugin.use()
        assert (fl.tensor([1.0, 2.5], device="xla") + 7).tolist() == [2, 5] and engine.platform() == "test"
    finally:
        engine.use(None)


def _printed(text):
    from flambeau.xla.printer import Printed

    return Printed(text, 1, [], [0])


@pytest.mark.skipif("FLAMBEAU_PJRT_PLUGIN" not in os.environ, reason="FLAMBEAU_PJRT_PLUGIN names no plugin")
def test_training_on_a_real_plugin():
    plugin = xla.load(os.environ["FLAMBEAU_PJRT_PLUGIN"])
    plugin.use()

    def losses(device):
        fl.manual_seed(0)
        model = fl.nn.Sequential(fl.nn.Linear(8, 16), fl.nn.GELU(), fl.nn.Linear(16, 4)).to(device)
        optimizer = fl.optim.SGD(model.parameters(), lr=0.1)
        x, y = fl.randn(8, 8).to(device), fl.randint(0, 4, (8,)).to(device)
        history = []
        for _ in range(3):
            optimizer.zero_grad()
            loss = fl.nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            history.append(loss.item())
        return history

    try:
        assert losses("xla") == pytest.approx(losses("cpu"), abs=1e-3)
    finally:
        engine.use(None)
