"""Archives of jit.save: what comes back, what is refused, and that nothing in a file is run."""

import copy
import io
import os

import pytest

import flambeau as fl
from flambeau import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 2, 3)
        self.norm = nn.BatchNorm2d(2)
        self.encoder = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)
        self.act = nn.functional.relu
        self.out = nn.Linear(2, 3)

    def forward(self, x):
        return self.out(self.act(self.norm(self.conv(x))).mean((2, 3)))


def double(x):
    return x * 2


X = fl.arange(50.0).reshape(2, 1, 5, 5) / 25


def test_a_scripted_module(tmp_path):
    model = Net().eval()
    fl.jit.script(model).save(tmp_path / "model.pt")
    loaded = fl.jit.load(str(tmp_path / "model.pt"), map_location="cpu")
    assert fl.equal(loaded(X), model(X)) and not loaded.training and type(loaded) is Net
    assert list(loaded.state_dict()) == list(model.state_dict())
    loaded.save(tmp_path / "again.pt")
    assert not hasattr(Net(), "save")
    other = copy.deepcopy(loaded)
    assert other.save.module is other


def test_a_traced_module_with_files(tmp_path):
    model = Net().eval()
    traced = fl.jit.trace(model, X)
    fl.jit.save(traced, tmp_path / "model.pt", _extra_files={"labels": "a b"})
    files = {"labels": ""}
    loaded = fl.jit.load(tmp_path / "model.pt", _extra_files=files)
    assert isinstance(loaded, fl.jit.ScriptModule) and fl.equal(loaded(X), model(X)) and files == {"labels": b"a b"}


def test_files_in_memory_and_functions():
    buffer = io.BytesIO()
    fl.jit.save(fl.jit.trace(double, (X,)), buffer)
    buffer.seek(0)
    assert fl.equal(fl.jit.load(buffer)(X), X * 2)
    with pytest.raises(RuntimeError, match="found by its name"):
        fl.jit.save(fl.jit.trace(lambda x: x, (X,)), io.BytesIO())


class Command:
    def __reduce__(self):
        return os.system, ("exit 1",)


def test_what_is_refused(tmp_path):
    for content, said in ({"a": 1}, "another checkpoint"), ({"flambeau.jit": 1, "module": Command()}, "system"):
        fl.save(content, tmp_path / "bad.pt")
        with pytest.raises(RuntimeError, match=said):
            fl.jit.load(tmp_path / "bad.pt")


@pytest.mark.parametrize("name", ["os:system", "subprocess:call", "shutil:rmtree", "flambeau.hub:load", f"{__name__}:double_alone"])
def test_a_file_cannot_choose_a_function(tmp_path, name):
    fl.save({"flambeau.jit": 1, "traced": True, "extra": {}, "function": name}, tmp_path / "bad.pt")
    with pytest.raises(RuntimeError, match="that this program has scripted or traced"):
        fl.jit.load(tmp_path / "bad.pt")


def double_alone(x):
    return x * 2


def test_whole_modules_hold_functions_of_the_library(tmp_path):
    model = Net().eval()
    fl.save(model, tmp_path / "whole.pt")
    loaded = fl.load(tmp_path / "whole.pt", weights_only=False)
    assert loaded.act is nn.functional.relu and fl.equal(loaded(X), model(X))
