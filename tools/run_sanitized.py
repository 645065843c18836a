"""Run the Python tests that reach most of the native code against a build made with FLAMBEAU_SANITIZE.

    python tools/run_sanitized.py build/sanitize-cpython-311
    python tools/run_sanitized.py --threads build/threads-cpython-311

The interpreter itself is not instrumented, so the sanitizer runtimes are preloaded and leak detection, which
would report CPython's own caches, is off. ThreadSanitizer reports only what instrumented code does; it needs addresses
that are not shuffled (`setarch -R`).
"""

import argparse
import os
import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PYTHON_TESTS = [
    "ops",
    "autograd",
    "sparse",
    "nn",
    "optim",
    "serialization",
    "jit",
    "lazy",
    "native",
    "dynamo",
    "inductor",
]
# What has several threads: the pool, the backward engine, compiled programs called from many, loaders, process groups.
THREADED_TESTS = [
    "test_threads.py", "autograd/test_engine.py", "inductor/test_concurrent.py", "inductor/test_package.py", "lazy",
    "multiprocessing", "utils/data", "distributed/test_one_process.py", "jit/test_archives.py", "serialization",
]  # fmt: skip


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


def environment(package: pathlib.Path, threads: bool) -> dict[str, str]:
    runtimes = ["libtsan.so"] if threads else ["libasan.so", "libubsan.so"]
    return dict(
        os.environ,
        ASAN_OPTIONS="detect_leaks=0:strict_string_checks=1:detect_stack_use_after_return=1",
        UBSAN_OPTIONS="print_stacktrace=1:halt_on_error=1",
        TSAN_OPTIONS="ignore_noninstrumented_modules=1:report_signal_unsafe=0:halt_on_error=0:exitcode=66",
        FLAMBEAU_ARENA="0",  # compiled programs work in blocks of their own, whose ends are seen
        PYTHONPATH=str(package),
        LD_PRELOAD=" ".join(map(runtime, runtimes)),
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--threads", action="store_true", help="the build is one with ThreadSanitizer")
    options = parser.parse_args()
    folder = options.build.resolve()
    copy_sources(folder / "package")
    names = THREADED_TESTS if options.threads else PYTHON_TESTS
    tests = [str(ROOT / "tests" / name) for name in names if (ROOT / "tests" / name).exists()]
    # Run from the build folder with the tests by path: the repository's own package must not be imported.
    command = [sys.executable, "-P", "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(ROOT), *tests]
    command = ["setarch", "-R", *command] if options.threads else [*command, "-n", "2"]
    status = subprocess.run(command, env=environment(folder / "package", options.threads), cwd=folder).returncode
    return 1 if status else 0


if __name__ == "__main__":
    sys.exit(main())
