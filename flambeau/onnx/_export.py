"""`onnx.export`: a module, or an exported program, as an ONNX model."""

from __future__ import annotations

import contextlib
import inspect
import os
import time
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import flambeau as fl
from flambeau.export import Dim, ExportedProgram
from flambeau.export import export as export_program
from flambeau.onnx import _older
from flambeau.onnx._program import ONNXProgram
from flambeau.onnx._translate import translated
from flambeau.onnx.errors import OnnxExporterError, OnnxExporterWarning
from flambeau.utils import _pytree as pytree

DEFAULT_OPSET = 20
OPSETS = range(_older.OLDEST, 24)


class _State:
    exporting = False


def is_in_onnx_export() -> bool:
    """Whether a model is being exported; models ask it to take another path."""
    return _State.exporting


@contextlib.contextmanager
def _exporting() -> Iterator[None]:
    before, _State.exporting = _State.exporting, True
    try:
        yield
    finally:
        _State.exporting = before


def export(
    model: Any,
    args: tuple[Any, ...] = (),
    f: Any = None,
    *,
    kwargs: dict[str, Any] | None = None,
    verbose: bool | None = None,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    opset_version: int | None = None,
    dynamo: bool = True,
    external_data: bool | None = None,
    dynamic_shapes: Any = None,
    custom_translation_table: dict[Any, Callable[..., Any]] | None = None,
    report: bool = False,
    optimize: bool = True,
    verify: bool = False,
    profile: bool = False,
    dump_exported_program: bool = False,
    artifacts_dir: Any = ".",
    fallback: bool = False,
    export_params: bool = True,
    keep_initializers_as_inputs: bool = False,
    dynamic_axes: Mapping[str, Any] | None = None,
    training: Any = None,
    operator_export_type: Any = None,
    do_constant_folding: bool = True,
    custom_opsets: Mapping[str, int] | None = None,
    export_modules_as_functions: bool | Collection[type] = False,
    autograd_inlining: bool = True,
) -> ONNXProgram | None:
    """Exports a module to ONNX; with `f`, writes the model there.

    Sizes are those of the example arguments, unless `dynamic_shapes` (as `export.export` takes it, or names as text) or
    `dynamic_axes` lets them vary. With `dynamo=False` the model is written to `f` and nothing is returned. Weights of more than a
    megabyte go to a file beside it, unless `external_data` says so of all or none.
    """
    opset = _opset(opset_version, dynamo)
    if not dynamo and f is None:
        raise ValueError("[onnx.export] expected a file to write to with dynamo=False, got none")
    args, kwargs = _arguments(model, args, kwargs)
    began = time.perf_counter()
    mode = _training_mode(model, training, dynamo)
    with _exporting(), mode:
        try:
            program, names = _captured(model, args, kwargs, dynamic_shapes, dynamic_axes, input_names)
        except OnnxExporterError:
            if dynamo or kwargs or not isinstance(model, fl.nn.Module):
                raise
            traced = fl.jit.trace(model, args, check_trace=False)  # calls of scripts, which become If and Loop
            program, names = _captured(traced, args, kwargs, dynamic_shapes, dynamic_axes, input_names)
        captured = time.perf_counter()
        translation = translated(program, max(opset, _older.NEWEST + 1), custom_translation_table)
        if opset <= _older.NEWEST:
            _older.rewrite(translation, opset)
        onnx_program = ONNXProgram(translation, program)
    _rename(onnx_program, input_names, output_names)
    onnx_program.rename_axes(names)
    onnx_program._model.domains.update(custom_opsets or {})
    seconds = (captured - began, time.perf_counter() - captured)
    if verbose:
        print(onnx_program)
    if dump_exported_program:
        fl.export.save(program, os.path.join(os.fspath(artifacts_dir), "onnx_export.pt2"))
    verified = _verified(onnx_program, program, args, kwargs) if verify else None
    if report or profile:
        _write_report(onnx_program, program, os.fspath(artifacts_dir), seconds, verified)
    if f is not None:
        size = sum(t.numel() * t.element_size() for _, t in onnx_program._model.graph.initializers.values())
        onnx_program.save(
            f, include_initializers=export_params, keep_initializers_as_inputs=keep_initializers_as_inputs,
            external_data=bool(dynamo and (size > 2**20 if external_data is None else external_data)) or None,
        )  # fmt: skip
    return onnx_program if dynamo else None


def _opset(wanted: int | None, dynamo: bool) -> int:
    """The version to write. Versions before 17 are those of the older style."""
    opset = DEFAULT_OPSET if wanted is None else wanted
    if opset not in OPSETS:
        raise ValueError(f"[onnx.export] expected opset_version from {OPSETS[0]} to {OPSETS[-1]}, got {wanted}")
    if not dynamo or opset > _older.NEWEST:
        return opset
    warnings.warn(
        f"[onnx.export] expected opset_version of at least 17, got {opset}: the model has version 18; dynamo=False writes older ones",
        OnnxExporterWarning,
        stacklevel=3,
    )
    return 18


def _arguments(model: Any, args: Any, kwargs: dict[str, Any] | None) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Example arguments; a dict at the end of args gives those by name, as older programs write it."""
    args = args if isinstance(args, tuple) else tuple(args) if isinstance(args, list) else (args,)
    if kwargs is None and args and isinstance(args[-1], dict) and isinstance(model, fl.nn.Module):
        parameters = inspect.signature(model.forward).parameters
        if all(isinstance(key, str) and key in parameters for key in args[-1]) and args[-1]:
            positional = list(parameters)[: len(args) - 1]
            if not any(name in positional for name in args[-1]):
                return args[:-1], dict(args[-1])
    return args, dict(kwargs or {})


@contextlib.contextmanager
def _training_mode(model: Any, training: Any, dynamo: bool) -> Iterator[None]:
    """In the older style the module is exported in evaluation mode, unless told."""
    text = getattr(training, "name", str(training))
    if not isinstance(model, fl.nn.Module) or (dynamo and training is None) or text == "PRESERVE":
        yield
        return
    before = {module: module.training for module in model.modules()}
    model.train(text == "TRAINING")
    try:
        yield
    finally:
        for module, was_training in before.items():
            module.training = was_training


# ---------------------------------------------------------------------------------------------- capture


def _captured(
    model: Any, args: Any, kwargs: Any, dynamic_shapes: Any, dynamic_axes: Any, input_names: Any
) -> tuple[ExportedProgram, dict[str, str]]:
    """The exported program, and names for its dimensions that vary."""
    if isinstance(model, ExportedProgram):
        return model, {}
    model = _written_in_python(model, args, kwargs)
    if not isinstance(model, fl.nn.Module):
        if not callable(model):
            raise TypeError(f"[onnx.export] expected a module or an exported program, got {type(model).__name__}")
        model = _as_module(model)
    bound = dict(inspect.signature(model.forward).bind(*args, **kwargs).arguments)
    if dynamic_shapes is None and dynamic_axes:
        dynamic_shapes = _from_axes(bound, dynamic_axes, input_names or ())
    if dynamic_shapes is None:
        return _exported(model, args, kwargs, None), {}
    places: dict[tuple[int, int], str] = {}
    shapes = _without_text(dynamic_shapes, bound, places)
    program = _exported(model, args, kwargs, shapes)
    leaves = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, fl.Tensor)]
    facts = [entry for entry in program._facts if entry.shape is not None]
    names: dict[str, str] = {}
    for leaf, entry in zip(leaves, facts):
        for dim, size in enumerate(entry.shape or ()):
            name = places.get((id(leaf), dim))
            if name is not None and not isinstance(size, int) and size is not None:
                names.setdefault(repr(size), name)
    return program, names


def _written_in_python(model: Any, args: Any, kwargs: Any) -> Any:
    """The module that a scripted one was made from: the two share their parameters. Where there is none, or where the script branches on tensors or loops, a module made
    from its graph."""
    if not isinstance(model, fl.nn.Module) or not any(cls.__name__ == "ScriptModule" for cls in type(model).__mro__):
        return model
    from flambeau.onnx import _script

    original = vars(model).get("_script_original")
    is_module = isinstance(original, fl.nn.Module)
    return _script.as_module(model, args, kwargs, not is_module) or original


def _exported(model: Any, args: Any, kwargs: Any, shapes: Any) -> ExportedProgram:
    try:
        return export_program(model, args, kwargs, dynamic_shapes=shapes)
    except (RuntimeError, NotImplementedError) as error:
        raise OnnxExporterError(
            f"[onnx.export] expected a module that exports as one graph, got one that does not: {error}"
        ) from error


def _as_module(function: Callable[..., Any]) -> Any:
    class Function(fl.nn.Module):
        forward = staticmethod(function)

    return Function()


def _from_axes(bound: dict[str, Any], dynamic_axes: Mapping[str, Any], input_names: Sequence[str]) -> dict[str, Any]:
    """`dynamic_axes` as `dynamic_shapes`. Names are those of the inputs, given or the parameters' own."""
    names = dict(zip(input_names, bound))
    shapes: dict[str, Any] = dict.fromkeys(bound)
    for name, axes in dynamic_axes.items():
        own = names.get(name, name)
        if own not in bound:
            continue  # of an output: it follows from the inputs
        if not isinstance(bound[own], fl.Tensor):
            raise OnnxExporterError(f"[onnx.export] expected dynamic_axes of tensors, got {name}; use dynamic_shapes")
        table = axes if isinstance(axes, Mapping) else {axis: f"{name}_dim_{axis}" for axis in axes}
        shapes[own] = {int(axis): str(text) for axis, text in table.items()}
    return shapes


def _without_text(shapes: Any, value: Any, places: dict[tuple[int, int], str]) -> Any:
    """Shapes with `Dim.AUTO` for names given as text; the names are noted."""
    if isinstance(value, fl.Tensor):
        if shapes is None:
            return None
        pairs = dict(shapes.items() if isinstance(shapes, Mapping) else enumerate(shapes))
        for axis, size in list(pairs.items()):
            if isinstance(size, str):
                places[id(value), axis % value.ndim] = size
                pairs[axis] = Dim.AUTO
        return pairs
    if isinstance(shapes, Mapping) and isinstance(value, Mapping):
        return {key: _without_text(item, value.get(key), places) for key, item in shapes.items()}
    if isinstance(shapes, (tuple, list)) and isinstance(value, Mapping):
        return tuple(_without_text(item, one, places) for item, one in zip(shapes, value.values()))
    if isinstance(shapes, (tuple, list)) and isinstance(value, (tuple, list)):
        return type(shapes)(_without_text(item, one, places) for item, one in zip(shapes, value))
    return shapes


def _rename(onnx_program: ONNXProgram, input_names: Sequence[str] | None, output_names: Sequence[str] | None) -> None:
    graph = onnx_program._model.graph
    for values, names in ((graph.inputs, input_names or ()), (graph.outputs, output_names or ())):
        taken = {value.name: value for value in onnx_program._values()}
        for value, name in zip(values, names):
            other = taken.get(name)
            if other is not None and other is not value:
                other.name = f"{name}_1"
            value.name = name


# ---------------------------------------------------------------------------------------------- checks and reports


def _verified(onnx_program: ONNXProgram, program: ExportedProgram, args: Any, kwargs: Any) -> list[str]:
    """Compares the model with the program on the example arguments; what differs."""
    copied = pytree.tree_map_only(fl.Tensor, lambda x: x.detach().clone(), (args, kwargs))
    wanted = [x for x in pytree.tree_leaves(program.module()(*copied[0], **copied[1])) if isinstance(x, fl.Tensor)]
    results = list(onnx_program(*args, **kwargs))
    problems = []
    for name, a, b in zip(onnx_program.output_names, results, wanted):
        b = b.detach()
        if tuple(a.shape) != tuple(b.shape) or a.dtype != b.dtype:
            problems.append(f"{name}: {a.dtype}{tuple(a.shape)} for {b.dtype}{tuple(b.shape)}")
        elif not fl.allclose(a.double(), b.double(), rtol=1e-3, atol=1e-4, equal_nan=True):
            problems.append(f"{name}: differs by {float((a.double() - b.double()).abs().max()):.3g}")
    for problem in problems:
        warnings.warn(
            f"[onnx.export] expected the results of the module, got others: {problem}",
            OnnxExporterWarning,
            stacklevel=3,
        )
    return problems


def _write_report(
    onnx_program: ONNXProgram,
    program: ExportedProgram,
    folder: str,
    seconds: tuple[float, float],
    verified: list[str] | None,
) -> None:
    """A page about the export, in Markdown."""
    counts: dict[str, int] = {}
    for node in onnx_program._model.graph.nodes:
        counts[node.op_type] = counts.get(node.op_type, 0) + 1
    checked = "not compared" if verified is None else "equal" if not verified else "; ".join(verified)
    rows = "\n".join(f"| {name} | {count} |" for name, count in sorted(counts.items()))
    text = (
        f"# PyTorch ONNX Conversion Report\n\n- Capture: {seconds[0]:.3f} s\n- Translation: {seconds[1]:.3f} s\n"
        f"- Opset: {onnx_program._model.opset}\n- Verification with onnxruntime: {checked}\n\n| operator | nodes |\n|---|---|\n{rows}\n\n"
        f"## Exported program\n\n```python\n{program}\n```\n\n## ONNX model\n\n```\n{onnx_program}\n```\n"
    )
    name = time.strftime("onnx_export_%Y-%m-%d_%H-%M-%S_success.md")
    with open(os.path.join(folder, name), "w") as file:
        file.write(text)
