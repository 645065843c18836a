"""Packages: exported programs as files, run by native code with the results of eager mode at all promised sizes."""

import io
import subprocess
import sys
import threading
import zipfile

import pytest

import flambeau as fl
from flambeau import _C, nn
from flambeau._inductor import aot_compile, aoti_compile_and_load, aoti_compile_and_package, aoti_load_package, build
from flambeau.export import Dim, export

pytestmark = [
    pytest.mark.host,
    pytest.mark.skipif(build.compiler() is None, reason="packages need a C++ compiler to be made"),
]


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(6, 16), nn.Linear(16, 3)

    def forward(self, x):
        return self.second(fl.relu(self.first(x))).softmax(-1)


@pytest.fixture(scope="module")
def mlp(tmp_path_factory):
    """A model, and its package for batches of 1 to 20."""
    fl.manual_seed(0)
    model = Mlp().eval()
    path = tmp_path_factory.mktemp("package") / "mlp.pt2"
    program = export(model, (fl.randn(4, 6),), dynamic_shapes=({0: Dim("batch", min=1, max=20)},))
    assert aoti_compile_and_package(program, package_path=path) == str(path)
    return model, path


def check(model, package, *args):
    fl.testing.assert_close(package(*args), model(*args), check_stride=False)


@fl.no_grad()
def test_every_promised_size_gives_the_results_of_eager_mode(mlp):
    model, path = mlp
    package = aoti_load_package(path)
    for batch in range(1, 21):
        check(model, package, fl.randn(batch, 6))


def test_other_sizes_and_dtypes_are_errors(mlp):
    package = aoti_load_package(mlp[1])
    with pytest.raises(RuntimeError, match=r"x\.size\(0\) between 1 and 20, got 21"):
        package(fl.randn(21, 6))
    with pytest.raises(RuntimeError, match=r"x\.size\(1\) == 6"):
        package(fl.randn(2, 7))
    with pytest.raises(RuntimeError, match="dtype float32, got float64"):
        package(fl.randn(2, 6).double())
    with pytest.raises(RuntimeError, match="2 dimensions"):
        package(fl.randn(6))
    with pytest.raises(ValueError, match="structure"):
        package(fl.randn(2, 6), fl.randn(2, 6))


@fl.no_grad()
def test_inputs_of_other_strides_are_laid_out(mlp):
    model, path = mlp
    check(model, aoti_load_package(path), fl.randn(6, 5).t())


@fl.no_grad()
def test_a_package_loads_from_memory(mlp):
    model, path = mlp
    check(model, aoti_load_package(io.BytesIO(path.read_bytes())), fl.randn(3, 6))


def test_members_are_stored_and_aligned(mlp):
    with zipfile.ZipFile(mlp[1]) as archive:
        names = [info.filename.split("/", 1)[1] for info in archive.infolist()]
        assert all(info.compress_type == zipfile.ZIP_STORED for info in archive.infolist())
    for target in ("x86-64-v2", "x86-64-v3", "x86-64-v4"):
        assert f"data/aotinductor/model/kernels-{target}.so" in names
    package = aoti_load_package(mlp[1])
    assert all(t.data_ptr() % 64 == 0 for _, t in _C._package_constants(package._package))


@fl.no_grad()
def test_constants_are_replaced(mlp):
    model, path = mlp
    package = aoti_load_package(path)
    other = Mlp().eval()
    assert package.get_constant_fqns() == list(model.state_dict())
    with pytest.raises(RuntimeError, match="all constants"):
        package.load_constants({"first.bias": other.first.bias}, check_full_update=True)
    package.load_constants(other.state_dict(), check_full_update=True)
    x = fl.randn(7, 6)
    check(other, package, x)
    package.load_constants(other.state_dict(), check_full_update=True, user_managed=True)
    other.second.bias += 1
    check(other, package, x)
    check(model, aoti_load_package(path), x)  # the file is as it was


@fl.no_grad()
def test_one_model_runs_on_many_threads(mlp):
    model, path = mlp
    package = aoti_load_package(path)
    inputs = [fl.randn(1 + i % 20, 6) for i in range(80)]
    expected = [model(x) for x in inputs]
    found = [None] * len(inputs)

    def work(first):
        for i in range(first, len(inputs), 4):
            found[i] = package(inputs[i])

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for a, b in zip(found, expected):
        fl.testing.assert_close(a, b)


class Nested(nn.Module):
    def forward(self, pair, *, scale, offset=1.0):
        a, b = pair
        return {"sum": (a + b) * scale + offset, "rest": [a.mean(), 3, None], "count": a.shape[0]}


@fl.no_grad()
def test_arguments_and_results_are_nested():
    model = Nested()
    args, kwargs = ((fl.randn(4, 3), fl.randn(4, 3)),), {"scale": fl.randn(3), "offset": 2.0}
    n = Dim("n", min=1, max=9)
    shapes = {"pair": ({0: n}, {0: n}), "scale": None, "offset": None}
    package = aoti_compile_and_load(export(model, args, kwargs, dynamic_shapes=shapes))
    pair = (fl.randn(7, 3), fl.randn(7, 3))
    found = package(pair, offset=2.0, scale=kwargs["scale"])
    expected = model(pair, **kwargs)
    assert found["count"] == 7 and found["rest"][1:] == [3, None]
    fl.testing.assert_close(found["sum"], expected["sum"])
    fl.testing.assert_close(found["rest"][0], expected["rest"][0])
    with pytest.raises(ValueError, match=r"value 2\.0"):
        package(pair, offset=3.0, scale=kwargs["scale"])


class Attend(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.layer = nn.Embedding(11, 8), nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)

    def forward(self, tokens):
        return self.layer(self.embed(tokens)).mean(1)


@fl.no_grad()
def test_two_sizes_vary():
    model = Attend().eval()
    shapes = ({0: Dim("batch", min=1, max=12), 1: Dim("length", min=1, max=24)},)
    package = aoti_compile_and_load(export(model, (fl.randint(0, 11, (3, 7)),), dynamic_shapes=shapes))
    for batch, length in [(1, 1), (1, 9), (5, 1), (2, 2), (6, 13), (11, 23), (12, 24), (9, 2)]:
        check(model, package, fl.randint(0, 11, (batch, length)))


class Products(nn.Module):
    def forward(self, x, y):
        return x @ y.transpose(1, 2), y.mean(2)


@fl.no_grad()
def test_three_sizes_vary():
    batch, n, k = Dim("batch", min=1, max=16), Dim("n", min=2, max=40), Dim("k", min=2, max=40)
    shapes = ({0: batch, 1: n}, {0: batch, 1: k})
    package = aoti_compile_and_load(export(Products(), (fl.randn(3, 4, 8), fl.randn(3, 5, 8)), dynamic_shapes=shapes))
    for b, rows, columns in [(1, 2, 2), (16, 40, 40), (7, 13, 29), (2, 3, 31)]:
        check(Products(), package, fl.randn(b, rows, 8), fl.randn(b, columns, 8))


class Halving(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 2, 3, stride=2, padding=1)

    def forward(self, x):
        return fl.max_pool2d(self.conv(x), 2).mean((2, 3))


@fl.no_grad()
def test_sizes_that_are_divided():
    model = Halving().eval()
    shapes = ({2: Dim("height", min=8, max=40)},)
    package = aoti_compile_and_load(export(model, (fl.randn(1, 1, 16, 12),), dynamic_shapes=shapes))
    for height in range(8, 41):
        check(model, package, fl.randn(1, 1, height, 12))


class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("calls", fl.zeros(()))

    def forward(self, x):
        self.calls.add_(1)
        return x + self.calls


def test_buffers_that_are_written():
    package = aoti_compile_and_load(export(Counter(), (fl.zeros(2),)))
    assert [float(package(fl.zeros(2))[0]) for _ in range(3)] == [1, 2, 3]


def test_damaged_packages_are_errors(mlp, tmp_path):
    content = mlp[1].read_bytes()
    for damaged in (b"", b"PK", content[: len(content) // 2], content[:-30], b"x" * 100):
        with pytest.raises(RuntimeError, match="package"):
            aoti_load_package(io.BytesIO(damaged))
    at = content.index(b"FLPLAN") + 40
    with pytest.raises(RuntimeError, match="checksum"):
        aoti_load_package(io.BytesIO(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]))
    with pytest.raises(RuntimeError, match="can be read"):
        aoti_load_package(tmp_path / "absent.pt2")


def test_metadata_and_older_names(tmp_path):
    program = export(nn.Linear(2, 2), (fl.randn(1, 2),))
    path = aoti_compile_and_package(
        program, package_path=tmp_path / "a.pt2", inductor_configs={"aot_inductor.metadata": {"author": "me"}}
    )
    assert aoti_load_package(path).get_metadata()["author"] == "me"
    assert aoti_load_package(aot_compile(program, (fl.randn(1, 2),)))(fl.randn(1, 2)).shape == (1, 2)
    with pytest.raises(AssertionError, match=r"\.pt2"):
        aoti_compile_and_package(program, package_path=tmp_path / "a.zip")
    with pytest.raises(RuntimeError, match="an option among"):
        aoti_compile_and_package(program, inductor_configs={"max_autotun": True})


def test_command(tmp_path):
    (tmp_path / "model.py").write_text("import torch\ndef make(): return torch.nn.Linear(3, 2), (torch.randn(1, 3),)\n")
    target = tmp_path / "model.pt2"
    command = [sys.executable, "-m", "flambeau", "package", f"{tmp_path}/model.py:make", "-o", str(target)]
    assert "MB in" in subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert aoti_load_package(target)(fl.zeros(1, 3)).shape == (1, 2)


class Normalized(nn.Module):
    """A convolution with a norm behind it, and a product: what packages compute from weights alone, once."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.head = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.Linear(8, 5)
        self.norm.running_mean.uniform_()
        self.norm.running_var.uniform_(0.5, 2)

    def forward(self, x):
        return self.head(self.norm(self.conv(x)).relu().mean((2, 3)))


@pytest.fixture
def normalized(tmp_path):
    model = Normalized().eval()
    program = export(model, (fl.randn(4, 3, 8, 8),), dynamic_shapes=({0: Dim("batch", min=1, max=20)},))
    path = tmp_path / "normalized.pt2"
    aoti_compile_and_package(program, package_path=path)
    return model, path


@fl.no_grad()
def test_what_is_kept_of_constants_follows_their_updates(normalized):
    model, path = normalized
    package, x = aoti_load_package(path), fl.randn(6, 3, 8, 8)
    assert any("_product_packed" in name for name in _C._package_operators(package._package))
    check(model, package, x)
    other = Normalized().eval()
    package.load_constants({"head.weight": other.head.weight}, check_full_update=False)
    model.head.weight.copy_(other.head.weight)
    check(model, package, x)
    package.load_constants(other.state_dict(), check_full_update=True)
    check(other, package, x)
    check(other, package, fl.randn(2, 3, 8, 8))


@fl.no_grad()
@pytest.mark.parametrize("memory", ["own", "foreign", "data", "inference"])
def test_constants_that_are_written_in_place_are_seen(normalized, memory):
    model, path = normalized
    package, x = aoti_load_package(path), fl.randn(6, 3, 8, 8)
    weight = model.head.weight.detach()
    if memory == "foreign":
        weight = fl.from_numpy(weight.numpy().copy())
    if memory == "data":
        weight = weight.clone().data
    if memory == "inference":
        with fl.inference_mode():
            weight = weight.clone()
    package.load_constants({"head.weight": weight}, check_full_update=False, user_managed=True)
    check(model, package, x)
    with fl.inference_mode():
        if memory == "foreign":
            weight.numpy()[...] *= 2
        else:
            weight *= 2
    model.head.weight.copy_(weight)
    check(model, package, x)


def test_packages_loaded_in_inference_mode_keep_what_they_computed(normalized):
    model, path = normalized
    with fl.inference_mode():
        package, x = aoti_load_package(path), fl.randn(6, 3, 8, 8)
        check(model, package, x)
        package.load_constants(model.state_dict(), check_full_update=True)
        check(model, package, x)


@fl.no_grad()
def test_constants_change_while_threads_run(normalized):
    model, path = normalized
    package, x = aoti_load_package(path), fl.randn(6, 3, 8, 8)
    other = Normalized().eval()
    expected, failures = [model(x), other(x)], []

    def work():
        for _ in range(30):
            result = package(x)
            if not any(fl.allclose(result, e, atol=1e-4) for e in expected):
                failures.append(result)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for i in range(20):
        package.load_constants((model, other)[i % 2].state_dict(), check_full_update=True)
    for t in threads:
        t.join()
    assert not failures


@fl.no_grad()
def test_weights_may_stay_as_they_are(tmp_path):
    model = Mlp().eval()
    path = tmp_path / "plain.pt2"
    program = export(model, (fl.randn(4, 6),), dynamic_shapes=({0: Dim("batch", min=1, max=20)},))
    aoti_compile_and_package(program, package_path=path, inductor_configs={"freezing": False})
    package = aoti_load_package(path)
    assert not any("packed" in name for name in _C._package_operators(package._package))
    check(model, package, fl.randn(7, 6))
