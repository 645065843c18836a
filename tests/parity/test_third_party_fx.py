"""Models of timm and transformers as graphs: printed code runs and returns the same numbers (third_party_fx.py)."""

import importlib.util
import os
import pathlib
import subprocess
import sys

import pytest

pytest.importorskip("torch")
HERE = pathlib.Path(__file__).resolve().parent
GROUPS = {
    "timm convolutions": ("timm", ["resnet", "resnet_pre_activation", "efficientnet", "convnext"]),
    "timm attention": ("timm", ["vit", "swin", "mixer"]),
    "transformers encoders": ("transformers", ["bert", "bert_pooled", "t5"]),
    "transformers decoders": ("transformers", ["gpt2", "llama", "qwen"]),
}


@pytest.mark.parametrize("group", GROUPS)
def test_graphs_return_what_models_return(group):
    library, cases = GROUPS[group]
    if importlib.util.find_spec(library) is None:
        pytest.skip(f"{library} is not installed")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "PYTHONPATH": str(HERE.parent.parent)}
    command = [sys.executable, "-m", "flambeau", "run", str(HERE / "third_party_fx.py"), *cases]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
