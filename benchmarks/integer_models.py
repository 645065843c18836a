"""Whole models in int8, for benchmarks/small_numbers.py: ours, PyTorch's through torch.compile, and onnxruntime's."""

from __future__ import annotations

import importlib
import io
import sys
from collections.abc import Callable
from typing import Any

import models

import flambeau

__all__ = ["MODELS", "evaluation", "runs_of"]


def _encoder(torch: Any, width: int = 768, heads: int = 12, layers: int = 12) -> Any:
    """The layers of BERT-base."""
    nn, functional = torch.nn, torch.nn.functional

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.q, self.k, self.v, self.out = (nn.Linear(width, width) for _ in range(4))
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
            self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)

        def forward(self, x: Any) -> Any:
            q, k, v = (layer(x).unflatten(-1, (heads, -1)).transpose(1, 2) for layer in (self.q, self.k, self.v))
            mixed = functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
            x = self.first(x + self.out(mixed))
            return self.second(x + self.down(functional.gelu(self.up(x))))

    return nn.Sequential(*(Block() for _ in range(layers)))


MODELS: dict[str, tuple[Callable[[Any], Any], tuple[int, ...]]] = {
    "ResNet-18": (lambda torch: models.residual_network(torch, 18), (1, 3, 224, 224)),
    "ResNet-50": (lambda torch: models.residual_network(torch, 50), (1, 3, 224, 224)),
    "BERT-base, 128 tokens": (_encoder, (1, 128, 768)),
}


def _quantized(torch: Any, model: Any, x: Any) -> Any:
    """By exported programs, with the quantizer for x86."""
    pt2e = "flambeau.ao.quantization" if torch is flambeau else "torchao.quantization.pt2e"
    flow: Any = importlib.import_module(f"{pt2e}.quantize_pt2e")
    x86: Any = importlib.import_module(f"{pt2e}.quantizer.x86_inductor_quantizer")
    quantizer = x86.X86InductorQuantizer().set_global(x86.get_default_x86_inductor_quantization_config())
    prepared = flow.prepare_pt2e(torch.export.export(model, (x,)).module(), quantizer)
    for _ in range(2):
        prepared(x)
    return flow.convert_pt2e(prepared)


def evaluation(torch: Any, function: Any, x: Any) -> Callable[[], Any]:
    def run() -> Any:
        with torch.no_grad():
            return function(x)

    return run


def _in_onnxruntime(quantized: Any, x: Any, threads: int) -> Callable[[], Any]:
    import onnxruntime

    file = io.BytesIO()
    flambeau.onnx.export(quantized, (x,), file)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(file.getvalue(), options, providers=["CPUExecutionProvider"])
    values = {session.get_inputs()[0].name: x.numpy()}
    return lambda: session.run(None, values)


def runs_of(name: str, libraries: dict[str, Any], threads: int) -> dict[str, Callable[[], Any]]:
    build, shape = MODELS[name]
    runs: dict[str, Callable[[], Any]] = {}
    for library, torch in libraries.items():
        torch.manual_seed(0)
        model, x = build(torch).eval(), torch.randn(*shape)
        config: Any = importlib.import_module(f"{torch.__name__}._inductor.config")
        config.freezing = True
        with torch.no_grad():
            quantized = _quantized(torch, model, x)
        runs[f"{library} int8"] = evaluation(torch, torch.compile(quantized), x)
        if torch is flambeau:
            runs["flambeau float32"] = evaluation(torch, torch.compile(model), x)
            try:
                runs["onnxruntime int8"] = _in_onnxruntime(quantized, x, threads)
            except ImportError:
                print("onnxruntime is not installed: no column for it", file=sys.stderr)
    return runs
