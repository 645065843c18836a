"""fuse_modules: one module computes what several did."""

import pytest

import flambeau as fl
from flambeau import nn
from flambeau.ao.nn import intrinsic
from flambeau.ao.quantization import fuse_modules, fuse_modules_qat


def network():
    fl.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 5), nn.ReLU())
    model[1].running_mean.normal_()
    model[1].running_var.uniform_(0.5, 2.0)
    return model.eval()


def test_the_fused_model_computes_the_same():
    model, x = network(), fl.randn(2, 3, 6, 6)
    fused = fuse_modules(model, [["0", "1", "2"], ["4", "5"]])
    assert fl.allclose(fused(x), model(x), atol=1e-5)
    assert type(fused[0]) is intrinsic.ConvReLU2d and type(fused[4]) is intrinsic.LinearReLU
    assert all(type(fused[i]) is nn.Identity for i in (1, 2, 5))


def test_a_copy_is_changed_unless_told_otherwise():
    model = network()
    assert fuse_modules(model, ["0", "1"]) is not model and type(model[1]) is nn.BatchNorm2d
    assert fuse_modules(model, ["0", "1"], inplace=True) is model and type(model[1]) is nn.Identity


def test_modules_of_submodules_are_named_with_dots():
    model = nn.Sequential(nn.Sequential(nn.Linear(2, 3), nn.ReLU()))
    fused = fuse_modules(model, ["0.0", "0.1"])
    x = fl.randn(4, 2)
    assert type(fused[0][0]) is intrinsic.LinearReLU and fl.equal(fused(x), model(x))


def test_what_cannot_be_fused_is_refused():
    with pytest.raises(NotImplementedError, match="Flatten"):
        fuse_modules(network(), ["3", "4"])
    with pytest.raises(AssertionError, match="training"):
        fuse_modules(network().train(), ["0", "1"])


def test_for_training_batch_norms_stay():
    fused = fuse_modules_qat(network().train(), [["0", "1", "2"], ["4", "5"]])
    assert type(fused[0]) is intrinsic.ConvBnReLU2d and type(fused[0][1]) is nn.BatchNorm2d
    with pytest.raises(AssertionError, match="one of each"):
        model = network().train()
        model[1].eval()
        fuse_modules_qat(model, ["0", "1"])


def test_a_function_of_the_user_fuses():
    def keep_first(modules, is_qat, table):
        return [modules[0], *[nn.Identity() for _ in modules[1:]]]

    assert type(fuse_modules(network(), ["0", "1"], fuser_func=keep_first)[0]) is nn.Conv2d
