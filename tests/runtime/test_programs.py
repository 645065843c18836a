"""Programs in C and C++ against the library, built with the system's compiler and run without Python."""

import importlib.util
import os
import pathlib
import shutil
import struct
import subprocess
import sys

import pytest

import flambeau as fl
from flambeau import nn
from flambeau._inductor import aoti_compile_and_package, build
from flambeau.export import Dim, export

HERE = pathlib.Path(__file__).parent
PACKAGE = pathlib.Path(fl.__file__).parent
EXAMPLES = HERE.parents[1] / "examples" / "cpp"
pytestmark = pytest.mark.skipif(build.compiler() is None, reason="programs need a C++ compiler")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    fl.manual_seed(0)
    module = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3), nn.Softmax(-1)).eval()
    path = tmp_path_factory.mktemp("package") / "model.pt2"
    program = export(module, (fl.randn(4, 6),), dynamic_shapes=({0: Dim("batch", min=1, max=20)},))
    aoti_compile_and_package(program, package_path=path)
    return module, path


def built(source, folder, *flags):
    compiler = build.compiler()
    if source.suffix == ".c":
        compiler = shutil.which("gcc") or shutil.which("cc") or compiler
    target = folder / source.stem
    command = [compiler, "-O0", "-Wall", "-Wextra", "-Wno-unused-parameter", f"-I{PACKAGE / 'include'}", *flags]
    command += [str(source), "-o", str(target), f"-L{PACKAGE}", "-lflambeau", f"-Wl,-rpath,{PACKAGE}", "-pthread"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0 and "warning" not in done.stderr, done.stderr
    return target


def run(program, *arguments, folder=None):
    lapack = importlib.util.find_spec("scipy_openblas32")  # may be in another environment than this one
    prefix = pathlib.Path(lapack.origin).parents[4] if lapack and lapack.origin else sys.prefix
    environment = {"PATH": os.environ["PATH"], "VIRTUAL_ENV": str(prefix)}
    return subprocess.run(
        [program, *arguments], capture_output=True, text=True, env=environment, timeout=300, cwd=folder
    )


def test_c_program_gives_the_results_of_python(model, tmp_path):
    module, path = model
    done = run(built(HERE / "package.c", tmp_path, "-std=c11"), path, "5")
    assert done.returncode == 0, done.stderr
    x = (fl.arange(30) % 7).float().reshape(5, 6) / 7 - 0.5
    found = fl.tensor([float(line) for line in done.stdout.split()]).reshape(5, 3)
    fl.testing.assert_close(found, module(x).detach())
    assert "4 constants" in done.stderr


def test_mistakes_of_callers_are_errors(model, tmp_path):
    done = run(built(HERE / "mistakes.c", tmp_path, "-std=c11"), model[1])
    assert done.returncode == 0, done.stderr


def test_c_program_runs_a_quantized_model(model, tmp_path):
    from flambeau.ao.quantization.quantize_pt2e import convert_pt2e, prepare_pt2e
    from flambeau.ao.quantization.quantizer import x86_inductor_quantizer as x86

    sizes = ({0: Dim("batch", min=2, max=20)},)
    quantizer = x86.X86InductorQuantizer().set_global(x86.get_default_x86_inductor_quantization_config())
    prepared = prepare_pt2e(export(model[0], (fl.randn(4, 6),), dynamic_shapes=sizes).module(), quantizer)
    prepared(fl.randn(64, 6))
    small = convert_pt2e(prepared)
    path = tmp_path / "quantized.pt2"
    aoti_compile_and_package(export(small, (fl.randn(4, 6),), dynamic_shapes=sizes), package_path=path)
    done = run(built(HERE / "package.c", tmp_path, "-std=c11"), path, "5")
    assert done.returncode == 0, done.stderr
    x = (fl.arange(30) % 7).float().reshape(5, 6) / 7 - 0.5
    found = fl.tensor([float(line) for line in done.stdout.split()]).reshape(5, 3)
    fl.testing.assert_close(found, small(x), atol=0.01, rtol=0)
    fl.testing.assert_close(found, model[0](x).detach(), atol=0.02, rtol=0)


def test_cpp_interface(model, tmp_path):
    done = run(built(HERE / "interface.cpp", tmp_path, "-std=c++17"), model[1])
    assert done.returncode == 0, done.stderr


def test_cpp_functions_options_and_optimizers(tmp_path):
    done = run(built(HERE / "functions.cpp", tmp_path, "-std=c++17"))
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", sorted(path.stem for path in (HERE / "libtorch").glob("*.cpp")))
def test_libtorch_programs(name, tmp_path):
    """Programs as LibTorch's users write them, which compile against either library."""
    done = run(built(HERE / "libtorch" / f"{name}.cpp", tmp_path, "-std=c++17"), tmp_path, folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_cpp_derivatives_of_derivatives(tmp_path):
    done = run(built(HERE / "derivatives.cpp", tmp_path, "-std=c++17"))
    assert done.returncode == 0, done.stdout + done.stderr


def write_digits(folder, prefix, count):
    """Files as MNIST's, of images that are bright above (label 0) or below (1)."""
    labels = fl.randint(0, 2, (count,))
    bright = (fl.arange(8) < 4).reshape(8, 1) == (labels == 0).reshape(-1, 1, 1)
    images = fl.where(bright, fl.randint(150, 256, (count, 8, 8)), fl.randint(0, 80, (count, 8, 8)))
    (folder / f"{prefix}-images-idx3-ubyte").write_bytes(
        struct.pack(">IIII", 0x803, count, 8, 8) + bytes(images.flatten().tolist())
    )
    (folder / f"{prefix}-labels-idx1-ubyte").write_bytes(struct.pack(">II", 0x801, count) + bytes(labels.tolist()))


def test_cpp_datasets_and_loaders(tmp_path):
    fl.manual_seed(0)
    write_digits(tmp_path, "train", 64)
    write_digits(tmp_path, "t10k", 32)
    done = run(built(HERE / "data.cpp", tmp_path, "-std=c++17"), tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_many_threads_run_one_model(tmp_path):
    """Natively; `make races` does the same under ThreadSanitizer."""
    package = tmp_path / "model.pt2"
    subprocess.run([sys.executable, HERE.parents[1] / "tools" / "make_package.py", package], check=True)
    done = run(built(HERE / "threads.cpp", tmp_path, "-std=c++17"), package, "100")
    assert done.returncode == 0, done.stdout + done.stderr


def test_damaged_packages_are_errors(model, tmp_path):
    done = run(built(HERE / "fuzz.cpp", tmp_path, "-std=c++17"), model[1], "300", "1")
    assert done.returncode == 0, done.stderr


def saved_scripts(library, folder):
    """Archives of the modules in tests/parity/script/deployed.py, saved in a process of their own."""
    first = "import flambeau.as_torch; " if library == "flambeau" else ""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("FLAMBEAU_AS_TORCH")}
    command = [sys.executable, "-W", "ignore", "-c", f"{first}import deployed; deployed.save_all({str(folder)!r})"]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, cwd=HERE.parent / "parity" / "script"
    )
    assert done.returncode == 0, done.stderr
    return sorted(folder.glob("*.pt"))


@pytest.mark.parametrize("library", ["flambeau", "torch"])
def test_scripts_run_without_python(library, tmp_path):
    if library == "torch":
        pytest.importorskip("torch")
    archives = saved_scripts(library, tmp_path)
    assert len(archives) == 7
    done = run(built(HERE / "script.cpp", tmp_path, "-std=c++17"), *archives)
    assert done.returncode == 0, done.stderr


def test_damaged_scripts_are_errors(tmp_path):
    archives = saved_scripts("flambeau", tmp_path)
    script = HERE.parent / "jit" / "damaged_archives.py"
    command = [sys.executable, script, PACKAGE / "libflambeau.so", "300", tmp_path / "control.pt", *archives[-1:]]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    refused, called = map(int, done.stdout.split())
    assert refused > 50
    assert called > 10


@pytest.mark.parametrize("name", ["regression", "mlp"])
def test_examples(name, tmp_path):
    done = run(built(EXAMPLES / f"{name}.cpp", tmp_path, "-std=c++17"))
    assert done.returncode == 0, done.stdout + done.stderr


def test_headers_need_no_python():
    for header in (PACKAGE / "include" / "flambeau").rglob("*.h"):
        text = header.read_text()
        assert "Python.h" not in text and "pybind11" not in text, header


def test_library_needs_no_python():
    shown = subprocess.run(["ldd", PACKAGE / "libflambeau.so"], capture_output=True, text=True).stdout
    assert "python" not in shown


def test_symbols_of_the_interface():
    """What the header declares, the library exports; a symbol that was there once stays."""
    if shutil.which("nm") is None:
        pytest.skip("nm lists symbols")
    import re

    header = (PACKAGE / "include" / "flambeau" / "flambeau.h").read_text()
    declared = set(re.findall(r"\b(fl_[a-z_]+)\(", header)) - {"fl_error()"}
    listed = subprocess.run(["nm", "-D", "--defined-only", PACKAGE / "libflambeau.so"], capture_output=True, text=True)
    exported = {line.split()[-1] for line in listed.stdout.splitlines() if " T fl_" in line}
    assert declared == exported
    assert exported >= set((HERE / "symbols.txt").read_text().split())


@pytest.mark.skipif(shutil.which("cmake") is None, reason="needs cmake")
def test_cmake_package(model, tmp_path):
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.18)\nproject(user C CXX)\nfind_package(flambeau REQUIRED)\nfind_package(Torch REQUIRED)\n"
        f"add_executable(user {HERE}/package.c)\ntarget_link_libraries(user PRIVATE flambeau::flambeau)\n"
    )
    prefix = PACKAGE / "share" / "cmake"
    configure = [
        "cmake",
        "-S",
        tmp_path,
        "-B",
        tmp_path / "build",
        f"-DCMAKE_PREFIX_PATH={prefix}",
        "-DCMAKE_BUILD_TYPE=Debug",
    ]
    subprocess.run(configure, check=True, capture_output=True)
    subprocess.run(["cmake", "--build", tmp_path / "build"], check=True, capture_output=True)
    assert run(tmp_path / "build" / "user", model[1], "2").returncode == 0


@pytest.mark.skipif(shutil.which("pkg-config") is None, reason="needs pkg-config")
def test_pkg_config():
    environment = {**os.environ, "PKG_CONFIG_PATH": str(PACKAGE / "share" / "pkgconfig")}
    flags = subprocess.run(
        ["pkg-config", "--cflags", "--libs", "flambeau"], capture_output=True, text=True, env=environment
    )
    assert "-lflambeau" in flags.stdout
