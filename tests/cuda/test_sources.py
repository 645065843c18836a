"""CUDA sources compile for the capabilities we build for. Needs nvcc, not a device."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NVCC = shutil.which("nvcc") or shutil.which("nvcc", path="/usr/local/cuda/bin")

pytestmark = pytest.mark.without_device


@pytest.fixture(scope="module")
def generated(tmp_path_factory):
    out = tmp_path_factory.mktemp("generated")
    subprocess.run([sys.executable, ROOT / "tools/generate.py", "--out", out, "--cuda"], check=True)
    return out / "cuda"


def test_every_record_has_a_kernel(generated):
    text = "".join(p.read_text() for p in sorted(generated.rglob("*.cu")))
    for name in ("add_Tensor", "gelu", "reduce_amax", "update__update_adam_", "complex_exp", "complex_reduce_sum"):
        assert name in text
    assert "tables.cu" in {p.name for p in generated.iterdir()}


def first_record(path):
    """A generated file cut after its first record."""
    head = "struct ".join(path.read_text().split("struct ")[:2])
    return head + "}  // namespace\n}  // namespace fl::cuda\n"


@pytest.mark.skipif(NVCC is None, reason="no nvcc")
@pytest.mark.parametrize("kinds", [("pointwise", "reduction", "update"), ("complex", "complex_reduction")], ids=str)
def test_sources_compile(generated, tmp_path, kinds):
    """A record of each kind, to device code for each capability."""
    sample = tmp_path / "sample.cu"
    sample.write_text("".join(first_record(min((generated / kind).glob("*.cu"))) for kind in kinds))
    targets = [f"-gencode=arch=compute_{n},code=sm_{n}" for n in (80, 90)]
    options = ["-std=c++17", "--expt-relaxed-constexpr", "-diag-suppress", "20208,177", "-O1", "-I", ROOT / "csrc"]
    subprocess.run([NVCC, *options, *targets, "--fatbin", "-o", tmp_path / "sample.fatbin", sample], check=True)
    assert (tmp_path / "sample.fatbin").stat().st_size > 10000


OPTIONS = ["-std=c++17", "-w", "-I", ROOT / "csrc"]
WRITTEN = sorted(p for p in (ROOT / "csrc/cuda").rglob("*") if p.suffix in (".cu", ".cpp"))


@pytest.mark.skipif(NVCC is None, reason="no nvcc")
@pytest.mark.parametrize("path", WRITTEN, ids=lambda path: str(path.relative_to(ROOT / "csrc/cuda")))
def test_written_sources_are_valid(path, tmp_path):
    """Those that are not generated, as far as their text goes: host code is parsed, device code becomes PTX."""
    if path.suffix == ".cpp":
        toolkit = Path(NVCC).resolve().parents[1] / "include"
        command = ["g++", *OPTIONS, "-isystem", toolkit, "-isystem", "/usr/local/cuda/include", "-fsyntax-only", path]
    else:
        capability = "sm_90a" if path.parent.name == "hopper" else "sm_90"
        lenient = [
            "--expt-relaxed-constexpr",
            "--extended-lambda",
            f"-arch={capability}",
            "-ptx",
            "-o",
            tmp_path / "x.ptx",
        ]
        command = [NVCC, *OPTIONS, *lenient, path]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
