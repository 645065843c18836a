"""Models of timm and transformers, unchanged, give PyTorch's outputs and gradients from the same weights.

Each library runs in a process of its own (third_party.py); files carry the weights there and the results back.
"""

import importlib.util
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("torch")
HERE = pathlib.Path(__file__).resolve().parent
TIMM = ["resnet", "resnet_pre_activation", "efficientnet", "convnext", "vit", "swin", "mixer"]
TRANSFORMERS = ["bert", "bert_pooled", "gpt2", "llama", "t5", "qwen", "mixtral", "mamba", "deberta"]


def run(flambeau, *arguments):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    environment["PYTHONPATH"] = str(HERE.parent.parent) if flambeau else ""
    start = ["-m", "flambeau", "run"] if flambeau else []
    command = [sys.executable, *start, str(HERE / "third_party.py"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.parametrize("case", TIMM + TRANSFORMERS)
def test_models_agree(case, tmp_path):
    # timm imports torchvision, whose wheels do not load beside every build of PyTorch.
    for library in ("timm", "torchvision") if case in TIMM else ("transformers",):
        if importlib.util.find_spec(library) is None:
            pytest.skip(f"{library} is not installed")
    weights = str(tmp_path / "weights.npz")
    run(False, case, weights, str(tmp_path / "torch.npz"))
    run(True, case, weights, str(tmp_path / "flambeau.npz"))
    want, got = (dict(np.load(tmp_path / f"{name}.npz")) for name in ("torch", "flambeau"))
    assert set(got) == set(want)
    # Before batch statistics the gradient of a bias cancels, and what is left is rounding of the others'; the steps
    # of training that follow multiply it.
    batch_norms = case == "efficientnet"
    largest = max(float(np.abs(value).max()) for name, value in want.items() if name.startswith("gradient"))
    for name, value in want.items():
        scale = max(1e-3, 0.02 * largest if batch_norms else 0, float(np.abs(value).max()))
        tolerance = 2e-3 if batch_norms and name == "loss after training" else 1e-4
        np.testing.assert_allclose(got[name] / scale, value / scale, atol=tolerance, err_msg=name)
