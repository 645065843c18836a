"""The package in examples/chip, as an installed one: found by its entry point, checked by the kit, trained compiled."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CHIP = Path(__file__).resolve().parents[2] / "examples" / "chip"
pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")


@pytest.fixture
def environment(tmp_path):
    """What `pip install examples/chip` would leave: the package and its entry point on the path."""
    info = tmp_path / "mychip-0.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mychip\nVersion: 0.1\n")
    (info / "entry_points.txt").write_text("[flambeau.backends]\nmychip = mychip.device\n")
    paths = [str(CHIP), str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "MYCHIP_CACHE": str(tmp_path / "kernels")}


def run(environment, *arguments):
    return subprocess.run(
        [sys.executable, *arguments], env=environment, capture_output=True, text=True, timeout=300, check=False
    )


def test_the_device_is_at_most_500_lines():
    assert len((CHIP / "mychip" / "device.py").read_text().splitlines()) <= 500


def test_the_kit_passes(environment):
    operators = "add|mm|softmax|sum|gather|views|memory|save_and_load|training|compiled_training|optimizers"
    done = run(environment, "-m", "flambeau", "device-check", "mychip", "--ops", operators)
    assert done.returncode == 0 and done.stdout.endswith("device-check mychip 11/11\n"), done.stdout + done.stderr


def test_names_of_the_device(environment):
    program = """
import flambeau as fl
x = fl.randn(3, device="mychip")  # the entry point registers it
assert fl.mychip.is_available() and fl.mychip.device_count() == 1 and x.device.type == "mychip"
fl.utils.generate_methods_for_privateuse1_backend
fl.mychip.synchronize()
state = fl.mychip.get_rng_state()
a = fl.rand(4, device="mychip")
fl.mychip.set_rng_state(state)
assert fl.rand(4, device="mychip").tolist() == a.tolist()
with fl.autocast("mychip", dtype=fl.bfloat16):
    assert (fl.ones(2, 2, device="mychip") @ fl.ones(2, 2, device="mychip")).dtype is fl.bfloat16
generator = fl.Generator(device="mychip").manual_seed(3)
assert fl.rand(2, device="mychip", generator=generator).device.type == "mychip"
event = fl.mychip.Event(enable_timing=True)
event.record()
event.synchronize()
fl.mychip.empty_cache()
"""
    done = run(environment, "-c", program)
    assert done.returncode == 0, done.stderr


def test_special_functions_have_bodies_in_c(environment):
    program = """
import flambeau as fl
S, inf, nan = fl.special, float("inf"), float("nan")
x = fl.tensor([-40, -3.5, -1, -0.0, 1e-3, 0.5, 1, 7, 30.5, inf, -inf, nan])
p, up = fl.tensor([0, 1e-20, 0.01, 0.3, 0.6, 0.999, 1, 2, nan]), x.abs()
a, b = fl.meshgrid(fl.tensor([0, 0.1, 1, 2.5, 30, 80, -1, inf, nan]), fl.tensor([0, 0.05, 1, 9, 60, 100, -1, inf, nan]), indexing="ij")
calls = {name: (x,) for name in "i0 i0e i1 i1e modified_bessel_i0 modified_bessel_i1 erfcx log_ndtr".split()}
calls |= {f"{kind}modified_bessel_k{n}": (up,) for kind in ("", "scaled_") for n in "01"}
calls |= {"ndtri": (p,), "zeta": (a, b), "gammainc": (a, b), "gammaincc": (a, b)}
for dtype, limit in ((fl.float32, 1e-5), (fl.float64, 1e-12)):
    for name, tensors in calls.items() if dtype is fl.float32 else [("gammainc", (a, b))]:
        want = getattr(S, name)(*(t.to(dtype) for t in tensors))
        got = getattr(S, name)(*(t.to("mychip", dtype) for t in tensors))
        fl.testing.assert_close(got.cpu(), want, rtol=limit, atol=1e-7, equal_nan=True, msg=lambda m, name=name: f"{name}: {m}")
for n in (1, 3):
    fl.testing.assert_close(S.polygamma(n, up.to("mychip")[2:-3]).cpu(), S.polygamma(n, up[2:-3]), rtol=1e-5, atol=1e-6)
assert fl.backends.registered["mychip"].host_calls == 0
"""
    done = run(environment, "-c", program)
    assert done.returncode == 0, done.stderr
