"""Archives of jit.save: what comes back, what is refused, and that nothing in a file is run."""

import copy
import io
import os
import zipfile

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
    assert fl.allclose(loaded(X), model(X)) and not loaded.training and isinstance(loaded, fl.jit.ScriptModule)
    assert list(loaded.state_dict()) == list(model.state_dict())
    loaded.save(tmp_path / "again.pt")
    assert fl.equal(fl.jit.load(tmp_path / "again.pt")(X), loaded(X))
    assert not hasattr(Net(), "save")
    assert fl.equal(copy.deepcopy(loaded)(X), loaded(X))


def test_a_traced_module_with_files(tmp_path):
    model = Net().eval()
    traced = fl.jit.trace(model, X)
    fl.jit.save(traced, tmp_path / "model.pt", _extra_files={"labels": "a b"})
    files = {"labels": ""}
    loaded = fl.jit.load(tmp_path / "model.pt", _extra_files=files)
    assert isinstance(loaded, fl.jit.ScriptModule) and fl.allclose(loaded(X), model(X)) and files == {"labels": b"a b"}


def test_files_in_memory_and_functions():
    buffer = io.BytesIO()
    fl.jit.save(fl.jit.trace(double, (X,)), buffer)
    buffer.seek(0)
    assert fl.equal(fl.jit.load(buffer)(X), X * 2)
    buffer = io.BytesIO()
    fl.jit.save(fl.jit.trace(lambda x: x + 1, (X,)), buffer)
    buffer.seek(0)
    assert fl.equal(fl.jit.load(buffer)(X), X + 1)
    with pytest.raises(RuntimeError, match="scripted or traced"):
        fl.jit.save(Net(), io.BytesIO())


class Command:
    def __reduce__(self):
        return os.system, ("exit 1",)


def test_what_is_refused(tmp_path):
    for content in {"a": 1}, {"flambeau.jit": 1, "module": Command()}:
        fl.save(content, tmp_path / "bad.pt")
        with pytest.raises(RuntimeError, match="a checkpoint"):
            fl.jit.load(tmp_path / "bad.pt")
    with pytest.raises(ValueError, match="does not exist"):
        fl.jit.load(tmp_path / "absent.pt")


@pytest.mark.parametrize("name", ["os:system", "subprocess:call", "shutil:rmtree", "flambeau.hub:load"])
def test_a_file_cannot_choose_a_function(tmp_path, name):
    fl.save({"flambeau.jit": 1, "traced": True, "extra": {}, "function": name}, tmp_path / "bad.pt")
    with pytest.raises(RuntimeError, match="a checkpoint"):
        fl.jit.load(tmp_path / "bad.pt")


def rewritten(replace):
    """An archive of a small module with some of its records replaced."""
    buffer = io.BytesIO()
    fl.jit.script(nn.Linear(2, 2)).save(buffer)
    made = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(buffer.getvalue())) as old, zipfile.ZipFile(made, "w") as new:
        for name in old.namelist():
            data = old.read(name)
            for part, function in replace.items():
                if part in name:
                    data = function(data)
            new.writestr(name, data)
    made.seek(0)
    return made


@pytest.mark.parametrize(
    "replace",
    [
        {"data.pkl": lambda data: b"cos\nsystem\n(S'exit 1'\ntR."},
        {"data.pkl": lambda data: data[:40]},
        {"data.pkl": lambda data: data.replace(b"Linear", b"Absent")},
        {"modules/linear": lambda data: data.replace(b"torch.linear", b"__import__('os').system")},
        {"modules/linear": lambda data: data.replace(b"return torch", b"import os; return torch")},
        {"modules/linear": lambda data: data.replace(b"torch.linear", b"torch.no_such_operator")},
        {"modules/linear": lambda data: data.replace(b"weight : Tensor", b"weight : List[int]")},
        {"modules/linear": lambda data: b"(" * 5000},
        {"version": lambda data: b"99\n"},
        {"constants.pkl": lambda data: b"\x80\x02K\x01."},
    ],
)
def test_crafted_archives_raise(replace):
    with pytest.raises(Exception) as raised:
        fl.jit.load(rewritten(replace))
    assert type(raised.value).__module__ in (
        "builtins",
        "_pickle",
        "flambeau.jit.frontend",
        "flambeau.serialization.archive",
    )


def test_whole_modules_hold_functions_of_the_library(tmp_path):
    model = Net().eval()
    fl.save(model, tmp_path / "whole.pt")
    loaded = fl.load(tmp_path / "whole.pt", weights_only=False)
    assert loaded.act is nn.functional.relu and fl.equal(loaded(X), model(X))


class Dividing(nn.Module):
    def forward(self, x, y):
        return x / y, x / 2, fl.full([2], 3), x.size(0) / 2


@pytest.mark.parametrize(("version", "integers"), [(b"3\n", True), (b"4\n", False)])
def test_operators_mean_what_they_did_when_the_archive_was_written(version, integers):
    content = io.BytesIO()
    fl.jit.save(fl.jit.script(Dividing()), content)
    old = io.BytesIO()
    with zipfile.ZipFile(content) as source, zipfile.ZipFile(old, "w") as target:
        for name in source.namelist():
            data = version if name.endswith("/version") else source.read(name)
            target.writestr(name, data)
    old.seek(0)
    loaded = fl.jit.load(old)
    tensors, number, filled, plain = loaded(fl.tensor([7, -7]), fl.tensor([2, 2]))
    expected = [3, -3] if integers else [3.5, -3.5]
    assert tensors.tolist() == number.tolist() == expected
    assert filled.dtype == fl.float32
    assert plain == 1.0
    assert loaded(fl.tensor([7.0]), fl.tensor([2.0]))[0].tolist() == [3.5]
    again = io.BytesIO()
    fl.jit.save(loaded, again)
    again.seek(0)
    assert fl.jit.load(again)(fl.tensor([7, -7]), fl.tensor([2, 2]))[0].tolist() == expected


class Twice(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(2, 2)
        self.second = self.first
        self.third = nn.Linear(2, 2)
        self.third.weight = self.first.weight
        self.place = fl.device("cpu")

    def forward(self, x):
        return self.first(x) + self.second(x) + self.third(x), str(self.place)


def test_shared_modules_and_parameters_stay_shared():
    model = Twice()
    file = io.BytesIO()
    fl.jit.save(fl.jit.script(model), file)
    file.seek(0)
    extra = {"absent": "before"}
    loaded = fl.jit.load(file, _extra_files=extra)
    assert extra == {"absent": b""}
    assert len(list(loaded.parameters())) == 3 and loaded.first.weight is loaded.third.weight
    assert fl.allclose(loaded(fl.ones(1, 2))[0], model(fl.ones(1, 2))[0]) and loaded.place == fl.device("cpu")


def test_code_names_what_has_a_name_and_writes_the_rest_where_it_is_used():
    def steps(x, n: int):
        if n > 2:
            y = x + 1
        else:
            y = x - 1
        for _ in range(n):
            y = y.sin() * 2
        return y

    assert fl.jit.script(steps).code == (
        "def steps(x: Tensor,\n    n: int) -> Tensor:\n  if torch.gt(n, 2):\n    y = torch.add(x, 1)\n  else:\n    y = torch.sub(x, 1)\n"
        "  y0 = y\n  for _ in range(n):\n    y0 = torch.mul(torch.sin(y0), 2)\n  return y0\n"
    )


def test_load_hands_archives_of_scripts_on():
    file = io.BytesIO()
    fl.jit.save(fl.jit.script(nn.ReLU()), file)
    file.seek(0)
    with pytest.warns(UserWarning, match="dispatching to 'torch.jit.load'"):
        assert fl.load(file, weights_only=False)(-fl.ones(1)).item() == 0
    file.seek(0)
    with pytest.raises(RuntimeError, match="weights_only=True"):
        fl.load(file)


def test_annotations_have_types():
    from flambeau.jit.annotations import ann_to_type, try_ann_to_type

    assert ann_to_type(dict[str, tuple[int, float]]).annotation_str == "Dict[str, Tuple[int, float]]"
    assert try_ann_to_type(set[int]) is None
    with pytest.raises(ValueError, match="Unknown type annotation"):
        ann_to_type(set[int])
