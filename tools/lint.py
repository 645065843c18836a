"""Check style: ruff and mypy on the Python files, clang-format on the C++ ones. `--fix` rewrites instead.

python tools/lint.py [--fix]
"""

import argparse
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PYTHON_FOLDERS = ("flambeau", "tools", "tests", "benchmarks", "examples")
CPP_FOLDERS = ("csrc",)
CPP_SUFFIXES = (".h", ".hpp", ".cpp", ".cu", ".cuh")


def run(title: str, command: list[str]) -> bool:
    """Run one checker from the repository's root; whether it was content."""
    passed = subprocess.run(command, cwd=ROOT).returncode == 0
    print(f"{'ok  ' if passed else 'FAIL'} {title}", flush=True)
    return passed


def cpp_files() -> list[str]:
    """Every C++ file under the native folders, relative to the root."""
    paths = [path for folder in CPP_FOLDERS for path in (ROOT / folder).rglob("*") if path.suffix in CPP_SUFFIXES]
    return sorted(str(path.relative_to(ROOT)) for path in paths)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fix", action="store_true", help="rewrite the files instead of checking them")
    fix = parser.parse_args().fix

    folders = [folder for folder in PYTHON_FOLDERS if (ROOT / folder).is_dir()]
    scripts = pathlib.Path(sys.executable).parent
    results = [
        run("ruff check", [str(scripts / "ruff"), "check", "-q", *(["--fix"] if fix else []), *folders]),
        run("ruff format", [str(scripts / "ruff"), "format", "-q", *([] if fix else ["--check"]), *folders]),
        run("mypy", [sys.executable, "-m", "mypy", "--no-error-summary"]),
    ]
    if files := cpp_files():
        mode = ["-i"] if fix else ["--dry-run", "-Werror"]
        results.append(run("clang-format", [str(scripts / "clang-format"), *mode, *files]))
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
