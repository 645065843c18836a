"""Run the Python tests that reach most of the native code against a build made with FLAMBEAU_SANITIZE.

    python tools/run_sanitized.py build/sanitize-cpython-311

The interpreter itself is not instrumented, so the sanitizer runtimes are preloaded and leak detection, which
would report CPython's own caches, is off.
"""

import os
import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PYTHON_TESTS = [
    f"tests/{name}" for name in ("ops", "autograd", "sparse", "nn", "optim", "serialization", "dynamo", "inductor")
]


def runtime(name: str) -> str:
    """The compiler's copy of a sanitizer runtime."""
    compiler = os.environ.get("CXX", "c++")
    printed = subprocess.run([compiler, f"-print-file-name={name}"], capture_output=True, text=True, check=True)
    return os.path.realpath(printed.stdout.strip())


def copy_sources(package: pathlib.Path) -> None:
    """Put the package's files beside the sanitized libraries, and the headers that compiled kernels include."""
    for source in (ROOT / "flambeau").rglob("*"):
        if not source.is_file() or source.suffix in (".so", ".pyc"):
            continue
        target = package / source.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, target)
    if not (package / "csrc").exists():
        (package / "csrc").symlink_to(ROOT / "csrc")


def main(build: str) -> int:
    folder = pathlib.Path(build).resolve()
    environment = dict(
        os.environ,
        ASAN_OPTIONS="detect_leaks=0:strict_string_checks=1:detect_stack_use_after_return=1",
        UBSAN_OPTIONS="print_stacktrace=1:halt_on_error=1",
        FLAMBEAU_ARENA="0",  # compiled programs work in blocks of their own, whose ends are seen
    )
    status = 0
    copy_sources(folder / "package")
    tests = [name for name in PYTHON_TESTS if (ROOT / name).is_dir()]
    if tests:
        environment["PYTHONPATH"] = str(folder / "package")
        environment["LD_PRELOAD"] = " ".join(runtime(name) for name in ("libasan.so", "libubsan.so"))
        # Run from the build folder with the tests by path: the repository's own package must not be imported.
        command = [
            sys.executable,
            "-P",
            "-m",
            "pytest",
            "-q",
            "-n",
            "2",
            "-p",
            "no:cacheprovider",
            "--rootdir",
            str(ROOT),
        ]
        command += [str(ROOT / name) for name in tests]
        status |= subprocess.run(command, env=environment, cwd=folder).returncode
    return 1 if status else 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1]))
