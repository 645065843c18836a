"""Builds what some packages need of the runtime for aarch64: python tools/cross_runtime.py FOLDER a.pt2 ...

FOLDER/static/libflambeau.a gets the objects alone that they need on this machine, which takes a tenth of the time of `make aarch64`.
FLAMBEAU_STATIC_AARCH64=FOLDER/static lets `flambeau package --target aarch64` link models from it.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("packages", nargs="+", type=Path)
    parser.add_argument("--jobs", type=int, default=2)
    parsed = parser.parse_args()
    folder, tools = parsed.folder.resolve(), toolchain("aarch64")
    ninja = shutil.which("ninja", path=str(Path(sys.executable).parent)) or shutil.which("ninja") or "ninja"
    cmake = shutil.which("cmake", path=str(Path(sys.executable).parent)) or shutil.which("cmake") or "cmake"
    configure = [cmake, "-G", "Ninja", "-S", str(ROOT), "-B", str(folder), f"-DCMAKE_MAKE_PROGRAM={ninja}"]
    configure += [
        f"-DPython_EXECUTABLE={sys.executable}",
        "-DCMAKE_SYSTEM_NAME=Linux",
        "-DCMAKE_SYSTEM_PROCESSOR=aarch64",
    ]
    subprocess.run([*configure, f"-DCMAKE_CXX_COMPILER={tools.compiler}", "-DFLAMBEAU_CUDA=OFF"], check=True)
    objects = translated(needed_paths(parsed.packages), set(listed(folder / "static")))
    subprocess.run([ninja, "-C", str(folder), "-j", str(parsed.jobs), *objects], check=True)
    archive = folder / "static" / "libflambeau.a"
    archive.unlink(missing_ok=True)
    subprocess.run(["ar", "qc", str(archive), *objects], cwd=folder, check=True)


if __name__ == "__main__":
    main()
