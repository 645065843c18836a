"""Convolutions by both interfaces of cuDNN against the CPU in double precision."""

import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]
PROGRAM = """
import flambeau as fl

F = fl.nn.functional
TOLERANCE = {fl.float64: 1e-10, fl.float32: 2e-4, fl.float16: 2e-2, fl.bfloat16: 1e-1}
# function, shapes of input and weight, options
CASES = [
    (F.conv2d, (4, 16, 12, 12), (8, 16, 3, 3), {"padding": 1}),
    (F.conv2d, (2, 3, 15, 13), (6, 3, 5, 3), {"stride": (2, 1), "padding": (2, 0)}),
    (F.conv2d, (2, 8, 9, 9), (8, 1, 3, 3), {"groups": 8, "padding": 1}),
    (F.conv2d, (2, 8, 11, 11), (4, 4, 3, 3), {"groups": 2, "dilation": 2}),
    (F.conv2d, (1, 32, 1, 1), (16, 32, 1, 1), {}),
    (F.conv1d, (3, 5, 20), (7, 5, 4), {"stride": 3, "padding": 2}),
    (F.conv3d, (1, 4, 6, 7, 5), (3, 4, 2, 3, 3), {"padding": 1}),
    (F.conv_transpose2d, (2, 6, 7, 7), (6, 4, 3, 3), {"stride": 2, "padding": 1, "output_padding": 1}),
]


def run(device, dtype, case, seed, last):
    function, shape, weights, options = case
    fl.manual_seed(seed)
    x, w = (fl.randn(s, dtype=fl.float64).to(fl.bfloat16).to(dtype) for s in (shape, weights))
    if last and len(shape) == 4:
        x, w = (t.contiguous(memory_format=fl.channels_last) for t in (x, w))
    x, w = x.to(device).requires_grad_(), w.to(device).requires_grad_()
    y = function(x, w, **options)
    y.backward(fl.randn(y.shape, dtype=fl.float64).to(fl.bfloat16).to(dtype).to(device))
    return y, x.grad, w.grad


for seed, case in enumerate(CASES):
    want = run("cpu", fl.float64, case, seed, False)
    for dtype in TOLERANCE:
        for last in (False, True):
            for again in range(2):
                for got, expected in zip(run("cuda", dtype, case, seed, last), want):
                    error = (got.detach().cpu().double() - expected).abs().max() / expected.abs().max()
                    assert error.item() <= TOLERANCE[dtype], (case, dtype, last, error.item())
print("agreed")
"""


@pytest.mark.parametrize("interface", ["plans", "functions"])
def test_convolutions(interface):
    environment = os.environ | {"FLAMBEAU_CUDNN": interface, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True)
    assert done.returncode == 0 and "agreed" in done.stdout, done.stderr[-2000:]
