"""The backend `mpi`, in processes of mpiexec."""

import os
import pathlib
import shutil
import subprocess
import sys

import pytest

from flambeau.distributed import _openmpi, is_mpi_available

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


def open_mpi():
    """The folder of Open MPI's programs: `FLAMBEAU_TEST_OPENMPI`, or where its `mpicc` is on the path."""
    folder = os.environ.get("FLAMBEAU_TEST_OPENMPI")
    mpicc = None if folder else _openmpi.compiler()
    return folder or (mpicc and os.path.dirname(mpicc))


@pytest.mark.skipif(
    not open_mpi(), reason="needs Open MPI (mpicc and mpirun; FLAMBEAU_TEST_OPENMPI names their folder)"
)
def test_programs_run_over_open_mpi(tmp_path):
    program = pathlib.Path(__file__).parent / "programs_mpi.py"
    variables = child_environment() | {"FLAMBEAU_CACHE_DIR": str(tmp_path)}
    command = [
        os.path.join(open_mpi(), "mpirun"),
        "--allow-run-as-root",
        "--oversubscribe",
        "-n",
        "2",
        sys.executable,
        str(program),
    ]
    ended = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=200)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stdout.count("is through") == 2
    assert list(tmp_path.glob("kernels/openmpi-*.so"))


@pytest.mark.skipif(
    not open_mpi(), reason="needs Open MPI (mpicc and mpirun; FLAMBEAU_TEST_OPENMPI names their folder)"
)
def test_training_goes_on_over_open_mpi_without_a_killed_rank(tmp_path):
    program = pathlib.Path(__file__).parent / "programs_ulfm.py"
    variables = child_environment() | {"FLAMBEAU_CACHE_DIR": str(tmp_path)}
    command = [
        os.path.join(open_mpi(), "mpirun"),
        "--allow-run-as-root",
        "--oversubscribe",
        "--with-ft",
        "ulfm",
        "-n",
        "3",
        sys.executable,
        str(program),
    ]
    ended = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=200)
    assert ended.stdout.count("went on") == 2, ended.stdout + ended.stderr
