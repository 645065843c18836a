"""Devices that bring their own printer, and devices that have none."""

import pytest

import flambeau as fl
from flambeau import nn
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


@pytest.mark.host
def test_a_device_without_a_printer_runs_its_operators(chip):
    x, y = fl.randn(3, 4), fl.randn(3, 4)
    result = fl.compile(function)(x.to(chip), y.to(chip))
    assert result.device.type == chip
    fl.testing.assert_close(result.to("cpu"), function(x, y))


@pytest.fixture
def printed(chip, monkeypatch):
    """Numbers of kernels that the device's printer was asked for."""
    counts = []

    class ChipPrinter(CppPrinter):
        """Its memory is the host's, so that loops of the host can stand for its kernels."""

        host_memory = False
        epilogues = False

        def launches(self, work):
            counts.append(len(work))
            return super().launches(work)

    monkeypatch.setattr(printers, "_factories", dict(printers._factories))
    register_printer(chip, lambda device: ChipPrinter())
    return counts


@pytest.mark.host
def test_a_device_brings_its_printer(chip, printed):
    x, y = fl.randn(3, 4), fl.randn(3, 4)
    given = [t.to(chip) for t in (x, y)]
    result = fl.compile(function)(*given)
    assert printed and result.device.type == chip
    fl.testing.assert_close(result.to("cpu"), function(x, y))


@pytest.mark.host
@pytest.mark.parametrize(
    "make",
    [
        lambda v: fl.ones(2, 3),
        lambda v: fl.add(fl.ones(2), 1, alpha=v),
        lambda v: fl.ones(3) * v.item(),
        lambda v: nn.functional.leaky_relu(-fl.ones(2), v),
    ],
)
def test_what_is_made_without_tensors_is_made_on_the_default_device(chip, printed, make):
    compiled = fl.compile(make, fullgraph=True)
    try:
        fl.set_default_device(chip)
        for value in (0.5, 0.25, 0.75):
            result = compiled(fl.tensor(value, device="cpu"))
            assert result.device.type == chip and printed
            fl.testing.assert_close(result.to("cpu"), make(fl.tensor(value, device="cpu")).to("cpu"))
    finally:
        fl.set_default_device("cpu")
