"""Libraries of others on flambeau: runs the programs in tests/libraries, each with the library of its name from PyPI.

python tools/libraries.py [--record docs/libraries.md] [NAME ...]

Installs into build/libraries, an environment of its own in which the companion stands for PyTorch.
"""

import argparse
import pathlib
import subprocess
import sys
import time
import venv

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROGRAMS = ROOT / "tests/libraries"
ENVIRONMENT = ROOT / "build/libraries"
PYTHON = ENVIRONMENT / "bin/python"
# Distributions whose name is not their module's, and what programs need beside theirs.
DISTRIBUTIONS = {
    "jaxtyping": ["jaxtyping", "beartype"],
    "ignite": ["pytorch-ignite"],
    "open_clip": ["open-clip-torch"],
    "pyro": ["pyro-ppl"],
    "skorch": ["skorch", "scikit-learn"],
    "peft": ["peft", "transformers"],
    "transformers": ["transformers", "accelerate"],
}
HEAD = """# Libraries

Each program in `tests/libraries` uses the library of its name from PyPI, installed without PyTorch (`flambeau companion install`), and runs
unchanged by `flambeau run`. `make libraries` installs them and writes this table; continuous integration does so for every version.

| library | version | what the program does | result |
|---|---|---|---|
"""


def prepare() -> None:
    """Makes the environment, with the checkout and the companion in it."""
    if not PYTHON.exists():
        venv.create(ENVIRONMENT, with_pip=True)
        pip("numpy", "scipy-openblas32")
    subprocess.run([PYTHON, ROOT / "tools/link.py"], check=True)
    subprocess.run([PYTHON, "-m", "flambeau", "companion", "install"], check=True, stdout=subprocess.DEVNULL)


def pip(*distributions: str) -> bool:
    command = [PYTHON, "-m", "pip", "install", "-q", "--disable-pip-version-check", *distributions]
    return subprocess.run(command, stderr=subprocess.DEVNULL).returncode == 0


def version(distribution: str) -> str:
    program = f"import importlib.metadata; print(importlib.metadata.version({distribution!r}))"
    done = subprocess.run([PYTHON, "-c", program], capture_output=True, text=True)
    return done.stdout.strip()


def result(program: pathlib.Path) -> str:
    started = time.perf_counter()
    try:
        done = subprocess.run(
            [PYTHON, "-m", "flambeau", "run", program], capture_output=True, text=True, timeout=600, cwd=ENVIRONMENT
        )
    except subprocess.TimeoutExpired:
        return "does not end in ten minutes"
    if done.returncode == 0:
        return f"runs, {time.perf_counter() - started:.0f} s"
    lines = done.stderr.strip().splitlines()
    return f"fails: {lines[-1][:120] if lines else f'exit status {done.returncode}'}".replace("|", "/")


def row(program: pathlib.Path) -> str:
    name = program.stem.removeprefix("with_")
    distributions = DISTRIBUTIONS.get(name, [name.replace("_", "-")])
    summary = program.read_text().split('"""')[1].strip()
    outcome = result(program) if pip(*distributions) else "cannot be installed"
    return f"| {distributions[0]} | {version(distributions[0])} | {summary} | {outcome} |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="programs; all where none is named")
    parser.add_argument("--record", type=pathlib.Path, help="the page to write")
    options = parser.parse_args()
    programs = [PROGRAMS / f"with_{name}.py" for name in options.names] or sorted(PROGRAMS.glob("*.py"))
    prepare()
    rows = []
    for program in programs:
        rows.append(row(program))
        print(rows[-1], flush=True)
    if options.record:
        options.record.write_text(HEAD + "\n".join(rows) + "\n")
    return any("| runs" not in line for line in rows)


if __name__ == "__main__":
    sys.exit(main())
