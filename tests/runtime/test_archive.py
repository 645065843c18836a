"""The archive of a release: programs are built from it alone, with the shared and with the static library."""

import os
import pathlib
import shutil
import subprocess
import sys
import tarfile

import pytest

import flambeau as fl

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parents[1]
PACKAGE = ROOT / "flambeau"

MISSING = [name for name in ("cmake", "cc", "c++", "pkg-config") if shutil.which(name) is None]
if not (PACKAGE / "libflambeau.so").is_file() or not (PACKAGE / "static" / "libflambeau.a").is_file():
    MISSING.append("a build in this checkout")
pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"archives are packed and used by {', '.join(MISSING)}")

PROJECT = f"""\
cmake_minimum_required(VERSION 3.18)
project(user C CXX)
find_package(flambeau 0.1 REQUIRED)
find_package(Torch REQUIRED)
foreach(kind shared static)
  add_executable(package_${{kind}} {HERE}/package.c)
endforeach()
add_executable(regression {ROOT}/examples/cpp/regression.cpp)
target_link_libraries(package_shared PRIVATE flambeau::flambeau)
target_link_libraries(package_static PRIVATE flambeau::static)
target_link_libraries(regression PRIVATE "${{TORCH_LIBRARIES}}")
"""


@pytest.fixture(scope="module")
def prefix(tmp_path_factory):
    folder = tmp_path_factory.mktemp("archive")
    subprocess.run([sys.executable, ROOT / "tools" / "make_archive.py", "--into", folder], check=True)
    (archive,) = folder.glob("flambeau-*-linux-*.tar.gz")
    with tarfile.open(archive) as opened:
        opened.extractall(folder / "unpacked")
    (top,) = (folder / "unpacked").iterdir()
    assert archive.name == f"{top.name}.tar.gz"
    return top


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    path = tmp_path_factory.mktemp("package") / "model.pt2"
    subprocess.run([sys.executable, ROOT / "tools" / "make_package.py", path], check=True)
    return path


def run(program, *arguments):
    return subprocess.run([program, *arguments], capture_output=True, text=True, env={}, timeout=300)


def test_it_holds_headers_libraries_and_descriptions(prefix):
    held = {str(path.relative_to(prefix)) for path in prefix.rglob("*") if path.is_file()}
    assert held >= {
        "include/flambeau/flambeau.h", "include/torch/torch.h", "lib/libflambeau.so", "lib/libflambeau.a",
        "share/cmake/flambeau/flambeauConfig.cmake", "share/cmake/Torch/TorchConfig.cmake", "share/pkgconfig/flambeau.pc",
        "share/licenses/flambeau/LICENSE",
    }  # fmt: skip


def test_cmake_finds_both_libraries(prefix, package, tmp_path):
    (tmp_path / "CMakeLists.txt").write_text(PROJECT)
    configure = ["cmake", "-S", tmp_path, "-B", tmp_path / "build", f"-DCMAKE_PREFIX_PATH={prefix}"]
    subprocess.run(configure, check=True, capture_output=True)
    subprocess.run(["cmake", "--build", tmp_path / "build"], check=True, capture_output=True)
    printed = {}
    for kind in ("shared", "static"):
        done = run(tmp_path / "build" / f"package_{kind}", package, "5")
        assert done.returncode == 0, done.stderr
        printed[kind] = done.stdout
    linked = subprocess.run(["ldd", tmp_path / "build" / "package_static"], capture_output=True, text=True).stdout
    assert "flambeau" not in linked
    numbers = [fl.tensor([float(line) for line in text.split()]) for text in printed.values()]
    assert numbers[0].numel() == 15
    fl.testing.assert_close(*numbers)
    assert run(tmp_path / "build" / "regression").returncode == 0


def test_pkg_config_finds_it(prefix, package, tmp_path):
    environment = {**os.environ, "PKG_CONFIG_PATH": str(prefix / "share" / "pkgconfig")}
    command = ["pkg-config", "--cflags", "--libs", "flambeau"]
    flags = subprocess.run(command, capture_output=True, text=True, env=environment, check=True).stdout.split()
    subprocess.run(["cc", "-std=c11", HERE / "package.c", "-o", tmp_path / "run", *flags], check=True)
    assert run(tmp_path / "run", package, "2").returncode == 0
