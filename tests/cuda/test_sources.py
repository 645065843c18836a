"""Generated CUDA sources compile for the capabilities we build for. Needs nvcc, not a device."""

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
    text = "".join(p.read_text() for p in sorted(generated.glob("*.cu")))
    for name in ("add_Tensor", "gelu", "sum_dim_IntList", "amax"):
        assert name in text
    assert "tables.cu" in {p.name for p in generated.iterdir()}


@pytest.mark.skipif(NVCC is None, reason="no nvcc")
@pytest.mark.parametrize("capability", ["sm_80", "sm_90"])
def test_sources_compile(generated, capability, tmp_path):
    """A few records of each kind, to device code only."""
    sample = tmp_path / "sample.cu"
    update = (generated / "update_00.cu").read_text().split("struct ")
    sample.write_text("struct ".join(update[:2]) + "}  // namespace\n}  // namespace fl::cuda\n")
    command = [NVCC, "-std=c++17", "--expt-relaxed-constexpr", "-diag-suppress", "20208,177", f"-arch={capability}"]
    subprocess.run([*command, "-O1", "-I", ROOT / "csrc", "--cubin", "-o", tmp_path / "out.cubin", sample], check=True)
