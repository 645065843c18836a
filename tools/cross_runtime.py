"""Builds what some packages need of the runtime for aarch64: python tools/cross_runtime.py FOLDER a.pt2 ...

FOLDER/static/libflambeau.a gets the objects alone that they need on this machine, which takes a tenth of the time of `make aarch64`.
FLAMBEAU_STATIC_AARCH64=FOLDER/static lets `flambeau package --target aarch64` link models from it. Processes that build in one folder take
turns, and the library is replaced as a whole, so that one that links never reads half of it.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from flambeau._inductor.package.objects import needed_objects
from flambeau._inductor.package.standalone import StaticLibrary, operators_of
from flambeau._inductor.toolchains import toolchain

ROOT = Path(__file__).resolve().parent.parent


def listed(static: Path) -> list[str]:
    """The members of a static library, as paths in the folder that it was built in."""
    lines = (static / "objects.txt").read_text().splitlines()
    return [line[line.index("CMakeFiles/") :].replace("/./", "/") for line in lines]


def needed_paths(packages: list[Path]) -> list[str]:
    """The objects that packages need, by their paths in a build folder."""
    library = StaticLibrary.find()
    operators = operators_of(packages)
    members = listed(library.archive.parent)
    functions = "#include <flambeau/flambeau.h>\nvoid* const used[] = {(void*)fl_load, (void*)fl_run};\n"
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        (scratch / "objects").mkdir()
        (scratch / "used.c").write_text(functions)
        command = ["g++", "-x", "c", "-c", "used.c", "-o", "used.o", f"-I{ROOT / 'flambeau' / 'include'}"]
        subprocess.run(command, cwd=scratch, check=True)
        chosen = needed_objects(library.archive, operators, [scratch / "used.o"], scratch / "objects")
        return [members[int(path.stem)] for path in chosen]


def translated(paths: list[str], known: set[str]) -> list[str]:
    """The same objects in a build for aarch64: kernels are in another folder, and some sources have a second part."""
    here = [re.sub(r"flambeau_kernels_\w+\.dir", "flambeau_kernels_neon.dir", path) for path in paths]
    return [p for path in here for p in (path, path.replace(".cpp.o", "_neon.cpp.o")) if p in known]


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Holds the folder; another process that asks for it waits."""
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("packages", nargs="+", type=Path)
    parser.add_argument("--jobs", type=int, default=2)
    parsed = parser.parse_args()
    folder, objects = parsed.folder.resolve(), needed_paths(parsed.packages)
    with alone(folder):
        configure(folder)
        build(folder, translated(objects, set(listed(folder / "static"))), parsed.jobs)


def program(name: str) -> str:
    """A build tool, that beside this interpreter first."""
    return shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name) or name


def configure(folder: Path) -> None:
    command = [program("cmake"), "-G", "Ninja", "-S", str(ROOT), "-B", str(folder)]
    command += [
        f"-DCMAKE_MAKE_PROGRAM={program('ninja')}",
        f"-DPython_EXECUTABLE={sys.executable}",
        "-DCMAKE_SYSTEM_NAME=Linux",
        "-DCMAKE_SYSTEM_PROCESSOR=aarch64",
        f"-DCMAKE_CXX_COMPILER={toolchain('aarch64').compiler}",
        "-DFLAMBEAU_CUDA=OFF",
    ]
    subprocess.run(command, check=True)


def build(folder: Path, objects: list[str], jobs: int) -> None:
    """Compiles the objects, and makes the static library of them."""
    subprocess.run([program("ninja"), "-C", str(folder), "-j", str(jobs), *objects], check=True)
    archive = folder / "static" / "libflambeau.a"
    fresh = archive.with_suffix(".a.new")
    fresh.unlink(missing_ok=True)
    subprocess.run(["ar", "qc", str(fresh), *objects], cwd=folder, check=True)
    os.replace(fresh, archive)


if __name__ == "__main__":
    main()
