"""Devices that bring their own printer, and devices that have none."""

import pytest

import flambeau as fl
from flambeau._inductor import printers
from flambeau._inductor.printers import CppPrinter, register_printer
from flambeau.backends import register_device
from flambeau.backends.reference.memory import read, write


@pytest.fixture(scope="module")
def chip():
    """A device in host memory whose operators run on the host."""
    device = register_device("compilechip", host_fallback=True)

    @device.kernel("copy_", any_device=True)
    def copy_(self, src, non_blocking=False):
        write(self, read(src.expand(self.shape)))
        return self

    return "compilechip"


def function(x, y):
    return ((x * 2 + y).relu() - y.sum(0)) * x


def test_tensors_without_data_are_compiled_as_operator_calls():
    x, y = fl.empty(3, 4, device="meta"), fl.empty(3, 4, device="meta")
    result = fl.compile(function)(x, y)
    assert result.is_meta and result.shape == (3, 4)


def test_a_device_without_a_printer_runs_its_operators(chip):
    x, y = fl.randn(3, 4), fl.randn(3, 4)
    result = fl.compile(function)(x.to(chip), y.to(chip))
    assert result.device.type == chip
    fl.testing.assert_close(result.to("cpu"), function(x, y))


def test_a_device_brings_its_printer(chip, monkeypatch):
    printed = []

    class ChipPrinter(CppPrinter):
        """Its memory is the host's, so that loops of the host can stand for its kernels."""

        host_memory = False
        epilogues = False

        def launches(self, work):
            printed.append(len(work))
            return super().launches(work)

    monkeypatch.setattr(printers, "_factories", dict(printers._factories))
    register_printer(chip, lambda device: ChipPrinter())
    x, y = fl.randn(3, 4), fl.randn(3, 4)
    given = [t.to(chip) for t in (x, y)]
    result = fl.compile(function)(*given)
    assert printed and result.device.type == chip
    fl.testing.assert_close(result.to("cpu"), function(x, y))
