"""Runs packages under a sanitizer, without a build of the whole library.

    python tools/sanitize_runtime.py thread [RUNS]             many threads run one model (tests/runtime/threads.cpp)
    python tools/sanitize_runtime.py address [COUNT [SEED]]    loads damaged packages (tests/runtime/fuzz.cpp)

The parts of the runtime that runs share and that read packages (tensors, dispatch, programs, packages, fronts of operators) are built
with the sanitizer, and linked with the kernels of libflambeau.a. Objects are kept in build/sanitized.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "build" / "sanitized"
SOURCES = (
    "core/*.cpp",
    "dispatch/*.cpp",
    "compiled/*.cpp",
    "runtime/*.cpp",
    "ops/builtin.cpp",
    "ops/copy.cpp",
    "ops/iterator.cpp",
)
WITH_OPERATORS = ("c_api.cpp", "c_values.cpp")  # the interface of operators and gradients
FLAGS = ["-std=c++17", "-O1", "-g1", "-fPIC", "-w", "-march=x86-64-v3", '-DFLAMBEAU_VERSION="sanitized"']
# By sanitizer: flags, the program, its arguments by default, and options of the sanitizer.
KINDS = {
    "thread": (["-fsanitize=thread"], "threads.cpp", ["60"], {"TSAN_OPTIONS": "halt_on_error=1 exitcode=66"}),
    "address": (
        ["-fsanitize=address,undefined"],
        "fuzz.cpp",
        ["10000", "1"],
        {"ASAN_OPTIONS": "allocator_may_return_null=1"},
    ),
}


def headers_digest() -> str:
    digest = hashlib.sha256()
    for path in sorted((ROOT / "csrc").rglob("*.h")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def compile_all(sources: list[Path], flags: list[str], jobs: int) -> list[Path]:
    """Objects of sources; those whose source and headers did not change are there."""
    common = headers_digest() + " ".join(flags)

    def build(source: Path) -> Path:
        key = hashlib.sha256((common + str(source)).encode() + source.read_bytes()).hexdigest()[:24]
        target = FOLDER / f"{key}.o"
        if not target.exists():
            partial = target.with_suffix(".partial")
            subprocess.run(["g++", *flags, "-c", str(source), "-o", str(partial)], check=True)
            partial.rename(target)
        return target

    with ThreadPoolExecutor(jobs) as pool:
        return list(pool.map(build, sources))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sanitizer", choices=KINDS)
    parser.add_argument("arguments", nargs="*")
    parser.add_argument("--jobs", type=int, default=2)
    parsed = parser.parse_args()
    sanitizing, program_source, defaults, options = KINDS[parsed.sanitizer]
    arguments = parsed.arguments + defaults[len(parsed.arguments) :]
    from flambeau import _C
    from flambeau._inductor.package.objects import needed_objects
    from flambeau._inductor.package.standalone import StaticLibrary

    FOLDER.mkdir(parents=True, exist_ok=True)
    package = FOLDER / "model.pt2"
    subprocess.run([sys.executable, str(ROOT / "tools" / "make_package.py"), str(package)], check=True)
    library = StaticLibrary.find()
    operators = [*_C._package_operators(_C._load_package(str(package))), "copy_", "clone"]
    (FOLDER / "operators.txt").write_text("\n".join(operators))
    generate = [
        sys.executable,
        str(library.generator),
        "--only",
        str(FOLDER / "operators.txt"),
        "--out",
        str(FOLDER / "generated"),
    ]
    subprocess.run(generate, check=True)
    sources = [p for pattern in SOURCES for p in sorted((ROOT / "csrc").glob(pattern)) if p.name not in WITH_OPERATORS]
    sources += [FOLDER / "generated" / "core" / "operators.cpp", ROOT / "tests" / "runtime" / program_source]
    flags = [*FLAGS, *sanitizing, *library.flags, f"-I{ROOT / 'csrc'}", f"-I{ROOT / 'flambeau' / 'include'}"]
    own = compile_all(sources, flags, parsed.jobs)
    scratch = FOLDER / "objects"
    scratch.mkdir(exist_ok=True)
    rest = needed_objects(library.archive, operators, own, scratch)
    program = FOLDER / parsed.sanitizer
    link = ["g++", *sanitizing, "-o", str(program), *map(str, (*own, *rest)), "-pthread", "-ldl", "-lgomp"]
    subprocess.run([*link, "-Wl,--gc-sections"], check=True)
    done = subprocess.run([str(program), str(package), *arguments], env={**os.environ, **options}, check=False)
    sys.exit(done.returncode)


if __name__ == "__main__":
    main()
