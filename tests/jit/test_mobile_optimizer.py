"""Scripted modules prepared for small machines, saved and loaded by the lite interpreter."""

import io

import pytest

import flambeau as fl
from flambeau.jit.mobile import _load_for_lite_interpreter
from flambeau.utils.mobile_optimizer import (
    LintCode,
    MobileOptimizerType,
    generate_mobile_module_lints,
    optimize_for_mobile,
)


class Net(fl.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = fl.nn.Sequential(fl.nn.Conv2d(1, 2, 3), fl.nn.BatchNorm2d(2), fl.nn.ReLU(), fl.nn.Dropout(0.5))

    def forward(self, x):
        return self.body(x)

    @fl.jit.export
    def twice(self, x):
        return self.body(x) * 2


def test_a_module_is_frozen_and_loads_in_the_lite_interpreter():
    scripted = fl.jit.script(Net())
    for _ in range(2):
        scripted(fl.randn(4, 1, 5, 5))  # running statistics that are not the initial ones
    x = fl.randn(2, 1, 5, 5)
    optimized = optimize_for_mobile(scripted, preserved_methods=["twice"])
    assert scripted.training and not list(optimized.parameters())
    scripted.eval()
    want = scripted(x)
    fl.testing.assert_close(optimized(x), want)
    fl.testing.assert_close(optimized.twice(x), want * 2)
    assert "batch_norm" not in str(optimized.graph) and "dropout" not in str(optimized.graph)
    unfused = optimize_for_mobile(scripted, {MobileOptimizerType.CONV_BN_FUSION})
    assert "batch_norm" in str(unfused.graph)
    loaded = _load_for_lite_interpreter(io.BytesIO(optimized._save_to_buffer_for_lite_interpreter()))
    fl.testing.assert_close(loaded(x), want)


def test_lints_and_refusals():
    scripted = fl.jit.script(Net())
    names = {lint["name"] for lint in generate_mobile_module_lints(scripted)}
    assert names == {code.name for code in LintCode}
    with pytest.raises(TypeError, match="ScriptModule"):
        optimize_for_mobile(Net())
    with pytest.raises(TypeError, match="backend"):
        optimize_for_mobile(scripted, backend="Vulkan")
    with pytest.raises(AttributeError, match="nothing"):
        optimize_for_mobile(scripted, preserved_methods=["nothing"])
