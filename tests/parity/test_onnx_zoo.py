"""A few models of timm and transformers as ONNX, at two sizes; `make onnx-zoo` runs them all."""

import os
import pathlib
import subprocess
import sys

import pytest

for _name in ("timm", "transformers", "onnxruntime"):
    pytest.importorskip(_name)

ROOT = pathlib.Path(__file__).parent.parent.parent
NAMES = ["timm/resnet18", "timm/mobilenetv3", "timm/convnext_atto", "transformers/Bert", "transformers/GPT2", "transformers/Llama",
         "transformers/ViT"]  # fmt: skip


def test_models_export_and_agree():
    command = [sys.executable, "-m", "flambeau", "run", str(ROOT / "tools" / "onnx_zoo.py"), *NAMES]
    made = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=dict(os.environ))
    assert made.returncode == 0, made.stdout[-3000:] + made.stderr[-2000:]
