"""The kit for devices: lines, status, page."""

import subprocess
import sys


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
