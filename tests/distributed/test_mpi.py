"""The backend `mpi`, in processes of mpiexec."""

import pathlib
import shutil
import subprocess
import sys

import pytest

from flambeau.distributed import is_mpi_available

sys.path.append(str(pathlib.Path(__file__).parent.parent))
from launching import child_environment

MPIEXEC = shutil.which("mpiexec", path=f"{sys.prefix}/bin")


@pytest.mark.skipif(
    MPIEXEC is None or not is_mpi_available(), reason="needs PyPI's mpich (libmpi_abi.so.1 and mpiexec)"
)
@pytest.mark.parametrize("ranks", [2, 3])
def test_programs_run_over_mpi(ranks):
    program = pathlib.Path(__file__).parent / "programs_mpi.py"
    command = [MPIEXEC, "-n", str(ranks), sys.executable, str(program)]
    ended = subprocess.run(command, env=child_environment(), capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stdout.count("is through") == ranks
