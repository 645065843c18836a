"""Models as libraries of their own, and the parts of the runtime that they are linked from."""

import os
import pathlib
import shutil
import subprocess

import pytest

import flambeau as fl
from flambeau import nn
from flambeau._commands.package import main
from flambeau._inductor import build
from flambeau._inductor.package import compile_self_contained
from flambeau._inductor.package.standalone import StaticLibrary
from flambeau.export import Dim, export

HERE = pathlib.Path(__file__).parent
SYSTEM = ("linux-vdso", "ld-linux", "libc.so", "libm.so", "libmvec.so", "libgomp.so", "libpthread.so", "libdl.so")


def has_library():
    try:
        StaticLibrary.find()
    except FileNotFoundError:
        return False
    return shutil.which("nm") is not None and build.compiler() is not None


pytestmark = pytest.mark.skipif(not has_library(), reason="models are linked from libflambeau.a by a C++ compiler")


def classifier():
    fl.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3), nn.Softmax(-1)).eval()


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    target = tmp_path_factory.mktemp("standalone") / "libclassifier.so"
    program = export(classifier(), (fl.randn(4, 6),), dynamic_shapes=({0: Dim("batch", min=1, max=20)},))
    compile_self_contained(program, target)
    return target


def test_it_needs_the_systems_libraries_alone(library):
    shown = subprocess.run(["ldd", library], capture_output=True, text=True, check=True).stdout
    assert all(any(name in line for name in SYSTEM) for line in shown.splitlines()), shown


def test_it_exports_the_functions_of_its_header(library):
    listed = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True).stdout
    names = {line.split()[-1] for line in listed.splitlines()}
    assert names == {
        f"classifier_{n}" for n in "load free error inputs outputs input_name output_name set_num_threads run".split()
    }


def test_a_c_program_runs_it_without_the_package(library, tmp_path):
    compiler = shutil.which("gcc") or shutil.which("cc")
    command = [
        compiler,
        "-std=c11",
        "-Wall",
        "-Wextra",
        HERE / "standalone.c",
        f"-I{library.parent}",
        "-o",
        tmp_path / "run",
    ]
    subprocess.run([*command, f"-L{library.parent}", "-lclassifier", f"-Wl,-rpath,{library.parent}"], check=True)
    done = subprocess.run([tmp_path / "run"], capture_output=True, text=True, env={}, cwd="/", timeout=60)
    assert done.returncode == 0, done.stderr
    assert "between 1 and 20, got 21" in done.stderr
    found = fl.tensor([float(line) for line in done.stdout.split()])
    inputs = [(fl.arange(rows * 6) % 7).float().reshape(rows, 6) / 7 - 0.5 for rows in (1, 5)]
    with fl.no_grad():
        fl.testing.assert_close(found, fl.cat([classifier()(x).flatten() for x in inputs]), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["convolutions", "attention", "recurrent"])
def test_other_models_find_the_kernels_that_they_call(name, tmp_path):
    fl.manual_seed(0)
    if name == "convolutions":
        model = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.AdaptiveAvgPool2d(1), nn.Flatten()
        )  # fmt: skip
        example = fl.randn(4, 3, 8, 8)
    elif name == "attention":
        model, example = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), fl.randn(4, 5, 16)
    else:
        model, example = nn.Sequential(nn.Embedding(10, 8), nn.LSTM(8, 8, batch_first=True)), fl.randint(0, 10, (4, 5))
    program = export(model.eval(), (example,), dynamic_shapes=({0: Dim("batch", min=2, max=16)},))
    compile_self_contained(program, tmp_path / "model.so")  # compares its results
    assert os.path.getsize(tmp_path / "model.so") < 6e6


def test_a_runtime_has_the_kernels_of_some_packages(tmp_path):
    """Programs for the whole runtime run with one that was made for their packages."""
    from flambeau._inductor import aoti_compile_and_package

    packages = [tmp_path / "classifier.pt2", tmp_path / "convolutions.pt2"]
    shapes = ({0: Dim("batch", min=1, max=20)},)
    aoti_compile_and_package(export(classifier(), (fl.randn(4, 6),), dynamic_shapes=shapes), package_path=packages[0])
    convolution = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1)).eval()
    aoti_compile_and_package(export(convolution, (fl.randn(2, 3, 8, 8),)), package_path=packages[1])
    target = tmp_path / "libflambeau.so"
    assert main(["--runtime", *map(str, packages), "-o", str(target)]) == 0
    assert target.stat().st_size < 5e6
    compiler = shutil.which("gcc") or shutil.which("cc")
    include = pathlib.Path(fl.__file__).parent / "include"
    command = [compiler, "-std=c11", HERE / "package.c", f"-I{include}", "-o", tmp_path / "run", f"-L{tmp_path}"]
    subprocess.run([*command, "-lflambeau", f"-Wl,-rpath,{tmp_path}"], check=True)
    done = subprocess.run([tmp_path / "run", packages[0], "5"], capture_output=True, text=True, env={}, timeout=60)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.split()) == 15


def test_a_library_that_is_not_there_is_an_error_that_says_where_it_is(monkeypatch, tmp_path):
    monkeypatch.setenv("FLAMBEAU_STATIC", str(tmp_path))
    with pytest.raises(FileNotFoundError, match="make dev"):
        StaticLibrary.find()
