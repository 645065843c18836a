"""Exported programs as StableHLO: as text, as bytecode, as a folder on disk, and as a function that runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import flambeau as fl
from flambeau.xla.printer import Printed, print_function

__all__ = [
    "StableHLOExportOptions", "StableHLOGraphModule", "exported_program_to_stablehlo", "save_as_stablehlo",
    "save_torch_model_as_stablehlo",
]  # fmt: skip


class StableHLOExportOptions(NamedTuple):
    """What an export may be told."""

    include_human_readable_text: bool = True
    override_tracing_arguments: tuple[Any, ...] | None = None
    override_tracing_kwargs: dict[str, Any] | None = None
    save_weights: bool = True


class StableHLOGraphModule:
    """A module of StableHLO with the weights of the program; calling it runs it."""

    def __init__(self, printed: Printed, weights: list[Any], names: list[str]) -> None:
        self._printed, self._weights, self._names = printed, weights, names
        self._program: Any = None

    def get_stablehlo_text(self, method_name: str = "forward") -> str:
        return self._printed.text

    def get_stablehlo_bytecode(self, method_name: str = "forward") -> bytes:
        """The portable artifact that other tools read, in the form of the oldest version that is still supported."""
        from jaxlib.mlir.dialects import stablehlo

        version = stablehlo.get_minimum_version()
        return bytes(stablehlo.serialize_portable_artifact_str(self._printed.text, version))

    def __call__(self, *args: Any) -> Any:
        from flambeau.xla import engine

        if self._program is None:
            self._program = engine.load(self._printed)
        results = self._program([*self._weights, *args])
        return results[0] if len(results) == 1 else tuple(results)

    evaluate = __call__

    def save(self, path: str, options: StableHLOExportOptions | None = None) -> None:
        """A folder: functions/forward.mlir, .bytecode and .meta, and the weights under data/."""
        options = options or StableHLOExportOptions()
        root = Path(path)
        for folder in ("functions", "data"):
            (root / folder).mkdir(parents=True, exist_ok=True)
        printed = self._printed
        meta = {
            "name": "forward", "stablehlo_version": 0, "weights": self._names, "outputs": printed.outputs,
            "written": printed.written, "used": printed.used, "draws": printed.draws,
        }  # fmt: skip
        (root / "functions" / "forward.meta").write_text(json.dumps(meta))
        (root / "functions" / "forward.bytecode").write_bytes(self.get_stablehlo_bytecode())
        if options.include_human_readable_text:
            (root / "functions" / "forward.mlir").write_text(printed.text)
        if options.save_weights:
            fl.save(dict(zip(self._names, self._weights)), root / "data" / "weights.pt")

    @classmethod
    def load(cls, path: str) -> StableHLOGraphModule:
        root = Path(path)
        meta = json.loads((root / "functions" / "forward.meta").read_text())
        text = (root / "functions" / "forward.mlir").read_text()
        weights = fl.load(root / "data" / "weights.pt") if meta["weights"] else {}
        printed = Printed(text, meta["outputs"], meta["written"], meta["used"], meta["draws"])
        return cls(printed, [weights[name] for name in meta["weights"]], meta["weights"])


def exported_program_to_stablehlo(exported: Any, options: StableHLOExportOptions | None = None) -> StableHLOGraphModule:
    """The module of an exported program; weights are its first arguments."""
    module = exported.module()
    state = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    names, weights = list(state), [t.detach() for t in state.values()]
    arguments, keywords = exported.example_inputs
    arguments = (options and options.override_tracing_arguments) or arguments
    keywords = (options and options.override_tracing_kwargs) or keywords or {}
    inputs = [*arguments, *keywords.values()]

    def run(*values: Any) -> list[Any]:
        inputs = values[len(names) :]
        named = dict(zip(keywords, inputs[len(arguments) :]))
        own = dict(zip(names, values))
        results = fl.func.functional_call(module, own, tuple(inputs[: len(arguments)]), named)
        return list(results) if isinstance(results, (list, tuple)) else [results]

    return StableHLOGraphModule(print_function(run, [*weights, *inputs]), weights, names)


def save_as_stablehlo(exported: Any, path: str, options: StableHLOExportOptions | None = None) -> None:
    """Writes an exported program as a folder of StableHLO."""
    exported_program_to_stablehlo(exported, options).save(path, options)


def save_torch_model_as_stablehlo(
    model: Any, args: tuple[Any, ...], path: str, options: StableHLOExportOptions | None = None
) -> None:
    """Exports a model and writes it as a folder of StableHLO."""
    save_as_stablehlo(fl.export.export(model, args), path, options)
