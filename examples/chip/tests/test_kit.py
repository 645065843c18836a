"""The chip passes the kit of checks; `--ops` keeps this short, `flambeau device-check mychip` runs all of them."""

import subprocess
import sys


def test_the_kit_passes():
    operators = "add|mm|softmax|sum|sort|gather|training|compiled_training|memory|save_and_load"
    command = [
        sys.executable,
        "-m",
        "flambeau",
        "device-check",
        "mychip",
        "--module",
        "mychip.device",
        "--ops",
        operators,
    ]
    subprocess.run(command, check=True)
