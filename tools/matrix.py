"""Build a wheel for each Python and test it installed in an environment of its own, away from the sources.

python tools/matrix.py [python3.12 ...] [-- arguments of pytest]

Without names: every supported Python that is found. The wheels stay in dist/.
"""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
SUPPORTED = ("python3.11", "python3.12", "python3.13")
# The tests see everything but the package: that has to come from the wheel.
LEFT_OUT = ("flambeau", "build", "dist", ".venv*", ".git", "__pycache__", ".*_cache")
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def tag_of(python: str) -> str:
    """`cp312`, or nothing when there is no such interpreter."""
    try:
        command = [python, "-c", "import sys; print('cp%d%d' % sys.version_info[:2])"]
        return subprocess.run(command, capture_output=True, text=True).stdout.strip()
    except OSError:
        return ""


def check(python: str, options: list[str]) -> str:
    """What came of one Python, in a line; raises when there is no wheel or it cannot be imported."""
    with tempfile.TemporaryDirectory(prefix="flambeau-matrix-") as name:
        folder = pathlib.Path(name)

        def run(*command: object, cwd: pathlib.Path = folder, check: bool = True) -> int:
            return subprocess.run([str(part) for part in command], cwd=cwd, env=ENVIRONMENT, check=check).returncode

        inside = folder / "venv" / "bin" / "python"
        run(python, "-m", "venv", folder / "venv")
        began = time.monotonic()
        run(inside, "-m", "pip", "wheel", "-q", "--no-deps", "-w", ROOT / "dist", ROOT)
        took = time.monotonic() - began
        wheel = max((ROOT / "dist").glob(f"flambeau-*-{tag_of(python)}-*.whl"), key=lambda path: path.stat().st_mtime)
        run(inside, "-m", "pip", "install", "-q", f"{wheel}[test]")
        run(inside, "-m", "flambeau", "env")
        tests = folder / "tests-only"
        shutil.copytree(ROOT, tests, ignore=shutil.ignore_patterns(*LEFT_OUT))
        failed = run(inside.with_name("pytest"), "-q", *options, cwd=tests, check=False)
    return f"{'FAIL' if failed else 'ok  '} {python}: {wheel.name}, built in {took:.0f} s"


def main() -> int:
    arguments = sys.argv[1:]
    at = arguments.index("--") if "--" in arguments else len(arguments)
    pythons = arguments[:at] or [python for python in SUPPORTED if tag_of(python)]
    results = [check(python, arguments[at + 1 :] or ["tests/dynamo"]) for python in pythons]
    print(*results, sep="\n")
    return int(not results or any(result.startswith("FAIL") for result in results))


if __name__ == "__main__":
    sys.exit(main())
