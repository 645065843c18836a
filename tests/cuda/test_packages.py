"""Packages for a GPU: exported programs with the images of their kernels, run from Python, C++ and C."""

import os
import pathlib
import subprocess
import sys

import pytest

import flambeau as fl
from flambeau import nn
from flambeau._inductor import aoti_compile_and_load, aoti_compile_and_package, aoti_load_package, build, triton_build
from flambeau.export import Dim, export

HERE = pathlib.Path(__file__).parent
PACKAGE = pathlib.Path(fl.__file__).parent
pytestmark = pytest.mark.skipif(not triton_build.available(), reason="kernels for GPUs are compiled by Triton")


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm, self.second = nn.Linear(32, 64), nn.LayerNorm(64), nn.Linear(64, 5)

    def forward(self, x):
        return self.second(nn.functional.gelu(self.norm(self.first(x)))).softmax(-1)


class Images(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)

    def forward(self, x):
        return fl.max_pool2d(fl.relu(self.norm(self.conv(x))), 2).mean((2, 3))


class Attend(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.layer = nn.Embedding(11, 16), nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)

    def forward(self, tokens):
        return self.layer(self.embed(tokens)).mean(1)


@pytest.fixture(scope="module")
def block(tmp_path_factory):
    fl.manual_seed(0)
    model = Block().eval().to("cuda")
    path = tmp_path_factory.mktemp("package") / "block.pt2"
    program = export(model, (fl.randn(3, 32, device="cuda"),), dynamic_shapes=({0: Dim("batch", min=1, max=9)},))
    aoti_compile_and_package(program, package_path=path)
    return model, path


@fl.no_grad()
def test_every_promised_size_gives_the_results_of_eager_mode(block):
    model, path = block
    package = aoti_load_package(path)
    for batch in range(1, 10):
        x = fl.randn(batch, 32, device="cuda")
        fl.testing.assert_close(package(x), model(x), rtol=1e-4, atol=1e-5)
    x = fl.randn(32 * 4 + 1, device="cuda")[1:].reshape(4, 32)  # not at a multiple of sixteen bytes
    fl.testing.assert_close(package(x), model(x), rtol=1e-4, atol=1e-5)
    fl.testing.assert_close(package(x.t().contiguous().t()), model(x), rtol=1e-4, atol=1e-5)


def test_what_it_does_not_take_is_an_error(block):
    package = aoti_load_package(block[1])
    with pytest.raises(RuntimeError, match="expected x on cuda:0, got cpu"):
        package(fl.randn(3, 32))
    with pytest.raises(RuntimeError, match="between 1 and 9"):
        package(fl.randn(10, 32, device="cuda"))
    with pytest.raises(RuntimeError, match="current device"):
        aoti_load_package(block[1], device_index=7)


@fl.no_grad()
def test_constants_are_replaced(block):
    package, other = aoti_load_package(block[1]), Block().eval().to("cuda")
    package.load_constants(other.state_dict(), check_full_update=True)
    x = fl.randn(5, 32, device="cuda")
    fl.testing.assert_close(package(x), other(x), rtol=1e-4, atol=1e-5)


@fl.no_grad()
def test_convolutions_and_attention():
    images = Images().eval().to("cuda")
    x = fl.randn(4, 3, 8, 8, device="cuda")
    fl.testing.assert_close(aoti_compile_and_load(export(images, (x,)))(x), images(x), rtol=1e-3, atol=1e-4)
    attend = Attend().eval().to("cuda")
    shapes = ({0: Dim("batch", min=1, max=4), 1: Dim("length", min=2, max=9)},)
    tokens = fl.randint(0, 11, (2, 5), device="cuda")
    package = aoti_compile_and_load(export(attend, (tokens,), dynamic_shapes=shapes))
    for batch, length in ((1, 2), (2, 5), (4, 9), (3, 7)):
        tokens = fl.randint(0, 11, (batch, length), device="cuda")
        fl.testing.assert_close(package(tokens), attend(tokens), rtol=1e-3, atol=1e-4)


def test_indices_that_do_not_exist_are_reported(tmp_path):
    """Also by a package of another process, whose flag lies elsewhere."""
    path = tmp_path / "attend.pt2"
    tokens = fl.randint(0, 11, (2, 5), device="cuda")
    aoti_compile_and_package(export(Attend().eval().to("cuda"), (tokens,)), package_path=path)
    program = (
        "import sys, flambeau as fl\n"
        "package = fl._inductor.aoti_load_package(sys.argv[1])\n"
        "package(fl.full((2, 5), 10, device='cuda')), fl.cuda.synchronize()\n"
        "try:\n"
        "    package(fl.full((2, 5), 11, device='cuda')), fl.cuda.synchronize()\n"
        "except (IndexError, RuntimeError) as error:\n"
        "    print('reported', error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program, path], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and "reported" in done.stdout, done.stdout + done.stderr


@fl.no_grad()
def test_it_runs_in_cpp_and_c(block, tmp_path):
    model, path = block
    target = tmp_path / "package"
    command = [
        build.compiler(),
        "-std=c++17",
        "-O0",
        f"-I{PACKAGE / 'include'}",
        str(HERE / "package.cpp"),
        "-o",
        target,
    ]
    subprocess.run([*command, f"-L{PACKAGE}", "-lflambeau", f"-Wl,-rpath,{PACKAGE}", "-pthread"], check=True)
    done = subprocess.run([target, path, "6", "32"], capture_output=True, text=True, env=dict(os.environ), timeout=120)
    assert done.returncode == 0, done.stderr
    assert "expected x on cuda:0, got cpu" in done.stderr
    found = fl.tensor([float(line) for line in done.stdout.split()]).reshape(2, 6, 5)
    x = ((fl.arange(6 * 32) % 7) / 7).reshape(6, 32).to("cuda")
    for part in found:
        fl.testing.assert_close(part, model(x).cpu(), rtol=1e-4, atol=1e-5)
