"""Measure operator parity and API coverage against PyTorch and fail below the recorded floors.

    python tools/check_parity.py [--harness FOLDER] [--samples 2] [--jobs 2] [--update]

The harness is tools/parity, or another folder with programs of the same names and arguments. The floors in
`tests/parity_floors.json` are the numbers of operators known to pass in each mode, by the harness; `--update` raises them to
what was just measured.
"""

import argparse
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parent.parent
OWN_HARNESS = ROOT / "tools" / "parity"
FLOORS = ROOT / "tests" / "parity_floors.json"
REPORT = ROOT / "build" / "parity.json"


def measure(harness: pathlib.Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """Run the operator comparison and return its summary for each mode."""
    REPORT.parent.mkdir(exist_ok=True)
    REPORT.unlink(missing_ok=True)
    command = [sys.executable, str(harness / "opinfo.py"), "--lib", "flambeau", "--mode", arguments.mode]
    command += [
        "--dtypes",
        arguments.dtypes,
        "--samples",
        str(arguments.samples),
        "--jobs",
        str(arguments.jobs),
    ]
    command += ["--json", str(REPORT)]
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])))
    subprocess.run(command, env=environment, cwd=ROOT, check=True)
    subprocess.run(
        [sys.executable, str(harness / "api_coverage.py"), "--lib", "flambeau", "--missing", "20"],
        env=environment,
        cwd=ROOT,
        check=True,
    )
    summary: dict[str, Any] = json.loads(REPORT.read_text())["summary"]
    return summary


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--harness", type=pathlib.Path, default=OWN_HARNESS)
    parser.add_argument("--mode", default="forward,meta,inplace,error,grad")
    parser.add_argument("--dtypes", default="float32,int64,bool,bfloat16")
    parser.add_argument("--samples", type=int, default=2, help="samples per operator and dtype")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--update", action="store_true", help="raise the floors to the measured numbers")
    arguments = parser.parse_args()

    harness = arguments.harness.resolve()
    if not (harness / "opinfo.py").is_file():
        print(f"[parity] expected a harness with opinfo.py, got {arguments.harness}")
        return 2
    if importlib.util.find_spec("torch") is None:
        print("[parity] expected PyTorch to compare with, got a Python without it: pip install torch==2.13.0")
        return 2

    passed = {mode: int(numbers["pass"]) for mode, numbers in measure(harness, arguments).items()}
    all_floors: dict[str, dict[str, int]] = json.loads(FLOORS.read_text())
    floors = all_floors["own" if harness == OWN_HARNESS else "other"]
    below = [mode for mode, count in passed.items() if count < floors.get(mode, 0)]
    for mode, count in passed.items():
        print(f"{mode:8} {count} operators pass, floor {floors.get(mode, 0)}{'  <- below' if mode in below else ''}")
    if arguments.update:
        floors.update({mode: max(count, floors.get(mode, 0)) for mode, count in passed.items()})
        FLOORS.write_text(json.dumps(all_floors, indent=2) + "\n")
    return 1 if below else 0


if __name__ == "__main__":
    sys.exit(main())
