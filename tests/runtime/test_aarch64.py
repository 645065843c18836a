"""Models for aarch64: cross-compiled, run by an emulator with processors of several generations, equal to this machine's results."""

import os
import pathlib
import shutil
import subprocess
import sys

import pytest

import flambeau as fl
from flambeau import nn
from flambeau._commands.package import main
from flambeau._inductor.package import compile_package, compile_self_contained
from flambeau._inductor.toolchains import NATIVE, toolchain
from flambeau.export import Dim, export

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parents[1]
SYSTEM = "/usr/aarch64-linux-gnu"  # its C library
PROCESSORS = (
    "cortex-a53",
    "cortex-a76",
    "max",
)  # without dot products, with those of bytes, with those of bfloat16 as well

MISSING = [
    program
    for program in ("aarch64-linux-gnu-g++", "aarch64-linux-gnu-gcc", "qemu-aarch64", "g++", "nm")
    if shutil.which(program) is None
]
if not (ROOT / "flambeau" / "static" / "objects.txt").is_file():
    MISSING.append("libflambeau.a of a checkout")
pytestmark = pytest.mark.skipif(
    bool(MISSING) or NATIVE != "x86_64", reason=f"models for aarch64 are built and run by {', '.join(MISSING)}"
)


class SmallNumbers(nn.Module):
    """Products of bfloat16, of bytes, and conversions to half precision."""

    def __init__(self):
        super().__init__()
        self.wide = nn.Linear(40, 24).bfloat16()
        self.register_buffer("bytes", fl.randint(-100, 100, (24, 32), dtype=fl.int8))

    def forward(self, x):
        hidden = fl.relu(self.wide(x.bfloat16())).float()
        product = fl._int_mm((hidden * 20).round().clamp(-128, 127).to(fl.int8), self.bytes)
        return product.float().half().float() / 7


def models():
    fl.manual_seed(0)
    return {
        "perceptron": (nn.Sequential(nn.Linear(6, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 3)), (5, 6)),
        "convolutions": (
            nn.Sequential(
                nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.AdaptiveAvgPool2d(1), nn.Flatten()
            ),
            (5, 3, 8, 8),
        ),
        "attention": (nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), (5, 7, 16)),
        "small numbers": (SmallNumbers(), (20, 40)),
    }  # fmt: skip


@pytest.fixture(scope="module")
def packages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("packages")
    paths = {}
    for name, (model, shape) in models().items():
        program = export(model.eval(), (fl.randn(shape),), dynamic_shapes=({0: Dim("batch", min=2, max=64)},))
        paths[name] = folder / f"{name.replace(' ', '_')}.pt2"
        compile_package(program, paths[name], processors=["aarch64"])
    return paths


@pytest.fixture(scope="module")
def static_library(packages):
    """The objects that the packages need, kept between runs."""
    folder = ROOT / "build" / "aarch64-packages"
    command = [sys.executable, ROOT / "tools" / "cross_runtime.py", folder, *packages.values()]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return folder / "static"


@pytest.fixture(scope="module")
def programs(packages, static_library, tmp_path_factory):
    """A program that evaluates packages, with a runtime that has their kernels: here, and for aarch64."""
    built = []
    paths = [str(path) for path in packages.values()]
    for compiler, options in (("gcc", []), ("aarch64-linux-gnu-gcc", ["--target", "aarch64"])):
        folder = tmp_path_factory.mktemp("runtime")
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("FLAMBEAU_STATIC_AARCH64", str(static_library))
            assert main(["--runtime", *paths, *options, "-o", str(folder / "libflambeau.so")]) == 0
        command = [compiler, "-std=c11", HERE / "evaluate.c", f"-I{ROOT / 'flambeau' / 'include'}", f"-L{folder}"]
        subprocess.run([*command, "-lflambeau", f"-Wl,-rpath,{folder}", "-o", folder / "evaluate"], check=True)
        built.append(folder / "evaluate")
    return built


def results(*command):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, env={}, timeout=300)
    assert done.returncode == 0, done.stderr
    return fl.tensor([float(line) for line in done.stdout.split()]), done.stderr.strip()


@pytest.mark.parametrize("processor", PROCESSORS)
@pytest.mark.parametrize("name", ["perceptron", "convolutions", "attention", "small numbers"])
def test_results_are_those_of_this_machine(name, processor, packages, programs):
    shape = "x".join(map(str, models()[name][1]))
    expected, here = results(programs[0], packages[name], shape)
    found, there = results("qemu-aarch64", "-cpu", processor, "-L", SYSTEM, programs[1], packages[name], shape)
    assert here.startswith("x86-64") and there == "aarch64"
    tolerance = 2e-2 if name == "small numbers" else 1e-4
    fl.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance * float(expected.abs().max()))


def test_a_library_of_its_own(static_library, tmp_path, monkeypatch):
    monkeypatch.setenv("FLAMBEAU_STATIC_AARCH64", str(static_library))
    fl.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3), nn.Softmax(-1)).eval()
    program = export(model, (fl.randn(4, 6),), dynamic_shapes=({0: Dim("batch", min=1, max=20)},))
    compile_self_contained(program, tmp_path / "libclassifier.so", processor="aarch64")
    command = ["aarch64-linux-gnu-gcc", "-std=c11", HERE / "standalone.c", f"-I{tmp_path}", f"-L{tmp_path}"]
    subprocess.run([*command, "-lclassifier", f"-Wl,-rpath,{tmp_path}", "-o", tmp_path / "run"], check=True)
    found, _ = results("qemu-aarch64", "-L", SYSTEM, tmp_path / "run")
    inputs = [(fl.arange(rows * 6) % 7).float().reshape(rows, 6) / 7 - 0.5 for rows in (1, 5)]
    with fl.no_grad():
        fl.testing.assert_close(found, fl.cat([model(x).flatten() for x in inputs]), rtol=1e-4, atol=1e-5)


def test_packages_are_for_this_machine_as_well(packages):
    from flambeau._inductor import aoti_load_package

    model, shape = models()["perceptron"]
    x = fl.randn(shape)
    fl.testing.assert_close(aoti_load_package(packages["perceptron"])(x), model.eval()(x))


def test_a_compiler_that_is_not_there_is_an_error_that_names_it(monkeypatch):
    monkeypatch.setenv("FLAMBEAU_CXX_AARCH64", "no-such-compiler")
    with pytest.raises(RuntimeError, match="no-such-compiler is not found"):
        toolchain("aarch64")
