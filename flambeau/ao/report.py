"""Which layers of a model lose accuracy in eight bits, and which gain speed: a table for choosing mixed precision.

    found = sensitivity(model, batches)                       # or evaluate=lambda model: accuracy(model, data)
    print(found)                                              # a table with bars
    found.draw("layers.svg")                                  # the same as a picture
    mapping = found.mapping(keep=found.worst(3))              # a QConfigMapping with these layers in floating point

Each layer is quantized by itself, with the others in floating point. Its grids come from one run of the examples.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import flambeau as fl
from flambeau import nn
from flambeau.ao.nn import quantized
from flambeau.ao.quantization.observer import HistogramObserver
from flambeau.ao.quantization.qconfig import QConfig, get_default_qconfig
from flambeau.ao.quantization.qconfig_mapping import QConfigMapping
from flambeau.nn.modules.module import Module

__all__ = ["LayerReport", "Report", "sensitivity"]

_QUANTIZED = {
    nn.Linear: quantized.Linear, nn.Conv1d: quantized.Conv1d, nn.Conv2d: quantized.Conv2d, nn.Conv3d: quantized.Conv3d,
}  # fmt: skip
_BAR = 24  # characters


@dataclass
class LayerReport:
    """What quantizing one layer does."""

    name: str
    kind: str
    float_bytes: int
    quantized_bytes: int
    noise_db: float  # signal to noise of the model's result, in decibels
    score: float | None  # what the user's function says of the model with this layer quantized
    drop: float | None  # how much less that is than for the float model
    float_seconds: float
    quantized_seconds: float

    @property
    def speedup(self) -> float:
        return self.float_seconds / self.quantized_seconds if self.quantized_seconds else math.inf


@dataclass
class Report:
    """The layers of a model, in their order."""

    layers: list[LayerReport]
    score: float | None = None  # of the float model
    config: QConfig = field(default_factory=get_default_qconfig)

    def worst(self, count: int) -> list[str]:
        """The layers that lose most, by the score where there is one, else by noise."""
        key = (lambda r: -r.drop) if self.score is not None else (lambda r: r.noise_db)
        return [layer.name for layer in sorted(self.layers, key=key)[:count]]

    def too_bad(self, drop: float) -> list[str]:
        """The layers that lose more than so much of the score."""
        if self.score is None:
            raise ValueError(
                "[report] expected a report with an evaluate function for a limit of its score, got one without"
            )
        return [layer.name for layer in self.layers if layer.drop is not None and layer.drop > drop]

    def mapping(self, keep: Iterable[str] = ()) -> QConfigMapping:
        """A configuration for `prepare_fx` in which some layers stay in floating point."""
        mapping = QConfigMapping().set_global(self.config)
        for name in keep:
            mapping.set_module_name(name, None)
        return mapping

    def rows(self) -> list[tuple[str, ...]]:
        """The table as text, with a line of titles."""
        titles = ("layer", "kind", "KiB", "noise dB", "drop", "float us", "int8 us", "speed")
        table: list[tuple[str, ...]] = [titles]
        for r in self.layers:
            size = f"{r.float_bytes / 1024:.1f} > {r.quantized_bytes / 1024:.1f}"
            drop = "" if r.drop is None else f"{r.drop:.4f}"
            times = f"{r.float_seconds * 1e6:.0f}", f"{r.quantized_seconds * 1e6:.0f}", f"{r.speedup:.2f}x"
            table.append((r.name, r.kind, size, f"{r.noise_db:.1f}", drop, *times))
        return table

    def __str__(self) -> str:
        rows = self.rows()
        widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
        shares = ["noise", *("#" * max(1, round(_BAR * share)) for share in self._shares())]
        lines = []
        for row, bar in zip(rows, shares):
            cells = [f"{c:<{w}}" if i < 2 else f"{c:>{w}}" for i, (c, w) in enumerate(zip(row, widths))]
            lines.append("  ".join([*cells, bar]).rstrip())
        return "\n".join(lines)

    def _shares(self) -> list[float]:
        """How loud the noise of each layer is, beside the loudest."""
        levels = [-layer.noise_db for layer in self.layers]
        if not levels:
            return []
        low, high = min(levels), max(levels)
        return [1.0 if high == low else 0.05 + 0.95 * (level - low) / (high - low) for level in levels]

    def draw(self, path: Any) -> None:
        """Writes a picture (SVG): for each layer bars of noise and of speed."""
        from html import escape

        row, left, width = 22, 220, 260
        top = max((layer.speedup for layer in self.layers), default=1.0)
        parts = []
        for i, (layer, share) in enumerate(zip(self.layers, self._shares())):
            y = 40 + i * row
            speed = width * layer.speedup / top
            parts += [
                f'<text x="{left - 8}" y="{y + 13}" text-anchor="end">{escape(layer.name)}</text>',
                f'<rect x="{left}" y="{y}" width="{share * width:.1f}" height="16" fill="#d1495b"/>',
                f'<text x="{left + 4}" y="{y + 13}">{layer.noise_db:.1f} dB</text>',
                f'<rect x="{left + width + 20}" y="{y}" width="{speed:.1f}" height="16" fill="#2e86ab"/>',
                f'<text x="{left + width + 24}" y="{y + 13}">{layer.speedup:.2f}x</text>',
            ]
        size = f'width="{left + 2 * width + 40}" height="{60 + len(self.layers) * row}"'
        titles = (
            f'<text x="{left}" y="24">noise of the result</text>'
            f'<text x="{left + width + 20}" y="24">speed in eight bits</text>'
        )
        body = "\n".join(parts)
        text = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="12">\n{titles}\n{body}\n</svg>\n'
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)


class _Rounded(Module):
    """A quantized layer between float ones."""

    def __init__(self, layer: Any, scale: float, zero_point: int) -> None:
        super().__init__()
        self.layer, self.scale, self.zero_point = layer, scale, zero_point

    def forward(self, x: Any) -> Any:
        return self.layer(fl.quantize_per_tensor(x, self.scale, self.zero_point, fl.quint8)).dequantize()


@contextmanager
def _in_place_of(model: Module, name: str, new: Module) -> Iterator[None]:
    path, _, last = name.rpartition(".")
    owner = model.get_submodule(path) if path else model
    old = getattr(owner, last)
    setattr(owner, last, new)
    try:
        yield
    finally:
        setattr(owner, last, old)


def _observed(model: Module, names: list[str], batches: list[Any]) -> dict[str, tuple[Any, Any, Any]]:
    """Observers of the inputs and results of layers, and an input of each, from one run of the examples."""
    seen: dict[str, tuple[Any, Any, list[Any]]] = {}
    handles = []
    for name in names:
        entry = seen[name] = HistogramObserver(), HistogramObserver(), []

        def note(module: Any, args: Any, result: Any, entry: Any = entry) -> None:
            entry[0](args[0])
            entry[1](result)
            entry[2][:] = [args[0]]

        handles.append(model.get_submodule(name).register_forward_hook(note))
    try:
        for batch in batches:
            _run(model, batch)
    finally:
        for handle in handles:
            handle.remove()
    return {name: (entry[0], entry[1], entry[2][0]) for name, entry in seen.items() if entry[2]}


def _run(model: Any, batch: Any) -> Any:
    return model(*batch) if isinstance(batch, (tuple, list)) else model(batch)


def _seconds(function: Callable[[], Any], repeats: int) -> float:
    """The shortest of several runs."""
    function()
    best = math.inf
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        best = min(best, time.perf_counter() - start)
    return best


def _noise(wanted: list[Any], results: list[Any]) -> float:
    signal = sum(w.float().square().sum().item() for w in wanted)
    noise = sum((w.float() - f.float()).square().sum().item() for w, f in zip(wanted, results))
    return 10 * math.log10(signal / noise) if noise else math.inf


def sensitivity(
    model: Module,
    examples: Iterable[Any],
    evaluate: Callable[[Module], float] | None = None,
    config: QConfig | None = None,
    repeats: int = 5,
) -> Report:
    """Quantizes the linear layers and convolutions of a model one by one.

    - examples: batches, tensors or tuples of arguments. They set the grids, and their results are compared.
    - evaluate: from a model to a score, the higher the better; called once for each layer.
    - config: the configuration of weights; activations are observed by histograms.
    - repeats: how often a layer runs for its time.
    """
    if model.training:
        raise ValueError("[sensitivity] expected a model in eval mode, got one in training mode")
    config = config or get_default_qconfig("x86")
    batches = list(examples)
    model = copy.deepcopy(model)
    names = [name for name, module in model.named_modules() if type(module) in _QUANTIZED and name]
    with fl.no_grad():
        wanted = [_run(model, batch) for batch in batches]
        score = None if evaluate is None else float(evaluate(model))
        rows = []
        for name, (of_input, of_result, x) in _observed(model, names, batches).items():
            layer: Any = model.get_submodule(name)
            source = copy.deepcopy(layer)
            source.qconfig, source.activation_post_process = config, of_result
            small = _QUANTIZED[type(layer)].from_float(source)
            scale, zero_point = of_input.calculate_qparams()
            rounded = _Rounded(small, float(scale.item()), int(zero_point.item()))
            with _in_place_of(model, name, rounded):
                noise = _noise(wanted, [_run(model, batch) for batch in batches])
                own = None if evaluate is None else float(evaluate(model))
            grid = fl.quantize_per_tensor(x, rounded.scale, rounded.zero_point, fl.quint8)
            times = (
                _seconds(lambda layer=layer, x=x: layer(x), repeats),  # type: ignore[misc]
                _seconds(lambda small=small, grid=grid: small(grid), repeats),  # type: ignore[misc]
            )
            count = layer.weight.numel()
            drop = None if own is None else score - own  # type: ignore[operator]
            rows.append(
                LayerReport(
                    name, type(layer).__name__, count * layer.weight.element_size(), count, noise, own, drop, *times
                )
            )
    return Report(rows, score, config)
