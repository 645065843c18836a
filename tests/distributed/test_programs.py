"""Programs written for torch.distributed, each in several real processes; they assert what they expect themselves."""

import pathlib
import re
import sys

import pytest

sys.path.append(str(pathlib.Path(__file__).parent.parent))
from launching import run_ranks

PROGRAMS = sorted((pathlib.Path(__file__).parent / "programs").glob("*.py"))


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.stem)
def test_program(program):
    sizes = re.search(r"^# ranks: (.*)$", program.read_text(), re.M)
    for ranks in map(int, sizes[1].split()):
        ended = run_ranks(program, ranks)
        report = "\n".join(f"--- rank {rank}: {one.returncode}\n{one.stdout}" for rank, one in enumerate(ended))
        assert all(one.returncode == 0 for one in ended), report
