"""The kit for devices: lines, status, page."""

import importlib.util
import subprocess
import sys

import pytest


def check(*arguments, **options):
    command = [sys.executable, "-m", "flambeau", "device-check", *arguments]
    return subprocess.run(command, capture_output=True, text=True, **options)


def test_the_reference_device_passes(tmp_path):
    page = tmp_path / "page.html"
    done = check("reference", "--ops", "add|softmax|views|random|special_bessel_j0", "--html", str(page))
    lines = done.stdout.splitlines()
    assert done.returncode == 0, done.stdout + done.stderr
    assert {"pass add", "pass softmax", "pass views", "pass random"} <= set(lines)
    assert any(line.startswith("lacks special_bessel_j0") for line in lines)
    assert lines[-1] == "device-check reference 4/4" and "softmax" in page.read_text()


def test_a_device_that_is_wrong_fails(tmp_path):
    (tmp_path / "wrongchip.py").write_text(
        "from flambeau.backends import register_device\n"
        "from flambeau.backends.reference import pointwise, reduction\n"
        "def wrong(expr, operands, out, dtype):\n"
        "    pointwise(expr, operands, out, dtype)\n"
        "    if expr.name == 'sin': out.fill_(7)\n"
        "register_device('wrongchip', pointwise=wrong, reduction=reduction)\n"
    )
    done = check("wrongchip", "--module", "wrongchip", "--ops", "sin|cos", cwd=tmp_path)
    lines = done.stdout.splitlines()
    assert done.returncode == 1 and "pass cos" in lines and any(line.startswith("FAIL sin: ") for line in lines)
    assert lines[-1] == "device-check wrongchip 1/2"


@pytest.mark.parametrize("name", ["opencl", "lazy", "xla"])
def test_the_devices_in_the_tree_pass(name):
    if importlib.util.find_spec({"opencl": "pyopencl", "xla": "jaxlib"}.get(name, "flambeau")) is None:
        pytest.skip(f"what {name} needs is not installed")
    done = check(name, "--ops", "add|mm|sort|views|factories|random|save_and_load|streams|compiled_training|fft_fft")
    if "expected an OpenCL" in done.stderr:
        pytest.skip("no OpenCL driver")
    assert done.returncode == 0 and done.stdout.endswith(f"device-check {name} 10/10\n"), done.stdout + done.stderr
    assert name != "opencl" or "\nhost " not in done.stdout  # complex numbers are pairs there


def test_what_a_device_refuses_to_have_elements_of_is_listed(tmp_path):
    (tmp_path / "realchip.py").write_text(
        "from flambeau.backends import register_device\n"
        "from flambeau.backends.reference import pointwise, reduction\n"
        "def refuse(expr, operands, out, dtype):\n"
        "    if expr.name == 'cos': raise NotImplementedError('realchip has no type for elements of torch.complex64')\n"
        "    pointwise(expr, operands, out, dtype)\n"
        "register_device('realchip', pointwise=refuse, reduction=reduction)\n"
    )
    done = check("realchip", "--module", "realchip", "--ops", "sin|cos", cwd=tmp_path)
    assert "lacks cos: the device has no elements of complex64" in done.stdout and done.returncode == 0
    assert done.stdout.endswith("device-check realchip 1/1\n")
