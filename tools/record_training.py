"""Writes down the losses that PyTorch gets in the programs of tests/training_by_hand.py, for tests that have no PyTorch.

python tools/record_training.py        needs PyTorch; rewrites tests/training_losses.json
"""

from __future__ import annotations

import json
import pathlib
import sys

TESTS = pathlib.Path(__file__).resolve().parent.parent / "tests"


def main() -> None:
    import torch

    sys.path.insert(0, str(TESTS))
    from training_by_hand import PROGRAMS

    losses = {name: program(torch) for name, program in PROGRAMS.items()}
    (TESTS / "training_losses.json").write_text(json.dumps({"torch": torch.__version__, **losses}, indent=1) + "\n")


if __name__ == "__main__":
    main()
