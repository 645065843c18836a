"""Writing a package: plan, kernels for each instruction set, signature and aligned weights in an archive without compression."""

from __future__ import annotations

import ctypes
import io
import json
import os
import tempfile
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import flambeau as fl
from flambeau import _C
from flambeau._inductor import build, config
from flambeau._inductor.package import sampling
from flambeau._inductor.package.model import AOTICompiledModel, load_package
from flambeau._inductor.package.recording import Group, ProgramFunction, Recording, UserInput, record
from flambeau._inductor.package.standalone import link
from flambeau._inductor.toolchains import NATIVE
from flambeau.ops.symbolic.expr import evaluate
from flambeau.utils import _pytree as pytree

__all__ = ["INSTRUCTION_SETS", "compile_package", "compile_self_contained"]

INSTRUCTION_SETS = ("aarch64",) if NATIVE == "aarch64" else ("x86-64-v2", "x86-64-v3", "x86-64-v4")
ALIGNMENT = 64
_FOLDER = "data/aotinductor/model"  # csrc/runtime/package_paths.h has the same
_WEIGHTS = "data/weights/weights"
_UNSEEN = 3  # points at which results are compared with eager mode
# Settings of PyTorch's own packages: what they ask for is always done, or is about its libraries.
_IGNORED = "aot_inductor."


def compile_package(
    program: Any,
    target: str | os.PathLike[str] | IO[bytes],
    configs: dict[str, Any] | None = None,
    processors: Sequence[str] = (),
) -> Recording:
    """Compiles an exported program into a package, and checks it against the program at sizes that were not recorded. It has kernels
    for this machine's kind of processor, and for the given ones besides ("aarch64")."""
    settings, metadata = _settings(configs or {})
    function = ProgramFunction(program)
    with build.collecting() as collection:
        recording, groups = record(function, settings)
    objects = collection.objects(dict.fromkeys((*INSTRUCTION_SETS, *processors))) if collection.kernels else {}
    if hasattr(target, "write"):
        buffer = io.BytesIO()
        _write(buffer, "model", recording, groups, collection, objects, metadata)
        _check(recording, program, load_package(io.BytesIO(buffer.getvalue())))
        target.write(buffer.getvalue())
        return recording
    path = Path(target)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    try:
        with open(partial, "wb") as file:
            _write(file, path.stem, recording, groups, collection, objects, metadata)
        _check(recording, program, load_package(partial))
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)
    return recording


def compile_self_contained(
    program: Any, target: str | os.PathLike[str], configs: dict[str, Any] | None = None, processor: str | None = None
) -> None:
    """Compiles an exported program into a shared object with a C header, which needs no other library of this package: for this
    machine's kind of processor, or for another ("aarch64")."""
    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder) / "model.pt2"
        recording = compile_package(program, package, configs, [processor] if processor else [])
        link(package, Path(target), [inputs for _, inputs in _samples(recording)], processor)


def _settings(configs: dict[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """Settings of the compiler, and what the package says about itself."""
    metadata = {str(k): str(v) for k, v in dict(configs.get("aot_inductor.metadata") or {}).items()}
    options = {k: v for k, v in configs.items() if not k.startswith(_IGNORED)}
    settings = {"freezing": True, **config.resolve(None, options)}  # weights are packed once
    # It runs on processors that are not here to be measured, and step by step.
    settings |= {"max_autotune": False, "portable": True, "triton.cudagraphs": False}
    return settings, metadata


def _write(
    file: IO[bytes],
    name: str,
    recording: Recording,
    groups: list[Group],
    collection: build.Collection,
    objects: dict[str, bytes],
    metadata: dict[str, str],
) -> None:
    function = recording.function
    constants, weights = _lay_out_weights(function, groups)
    plan = _C._write_plan(
        list(collection.kernels),
        constants,
        len(function.members),
        _inputs(recording),
        [o["name"] for o in function.outputs if o["kind"] != "value"],
        _ranges(recording),
        [(group.graphs, [_coordinates(recording, p) for p in group.points]) for group in groups],
        function.device,
        [(image.name, image.shared) for image in collection.images.values()],
    )
    facts = {"AOTI_DEVICE_KEY": function.device.type, **metadata}
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        _member(archive, f"{name}/archive_format", [b"pt2"])
        _member(archive, f"{name}/archive_version", [b"0"])
        _member(archive, f"{name}/byteorder", [b"little"])
        _member(archive, f"{name}/{_FOLDER}/plan", [plan])
        _member(archive, f"{name}/{_FOLDER}/signature.json", [json.dumps(_signature(function)).encode()])
        _member(archive, f"{name}/{_FOLDER}/metadata.json", [json.dumps(facts).encode()])
        for image in collection.images.values():
            _member(archive, f"{name}/{_FOLDER}/images/{image.name}.cubin", [image.code])
        for target, content in objects.items():
            _member(archive, f"{name}/{_FOLDER}/kernels-{target}.so", [content])
        if weights:
            _member(archive, f"{name}/{_WEIGHTS}", weights, force_zip64=True)


def _member(archive: zipfile.ZipFile, path: str, parts: Iterable[Any], force_zip64: bool = False) -> None:
    """Writes a member that begins at a multiple of the alignment: an extra field fills the gap."""
    info = zipfile.ZipInfo(path)
    header = archive.fp.tell() + 30 + len(path.encode()) + (20 if force_zip64 else 0)  # type: ignore[union-attr]
    padding = (-header - 4) % ALIGNMENT
    info.extra = b"\xf1\x1a" + padding.to_bytes(2, "little") + bytes(padding)
    with archive.open(info, "w", force_zip64=force_zip64) as member:
        for part in parts:
            member.write(part)


# ------------------------------------------------------------------------------------------ weights


def _extent(tensor: Any) -> int:
    """Bytes from the first to the last element."""
    if tensor.numel() == 0:
        return 0
    last = sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride()))
    return int((last + 1) * tensor.element_size())


def _lay_out_weights(function: ProgramFunction, groups: list[Group]) -> tuple[list[Any], list[Any]]:
    """Constants with their places, and the bytes one after the other. Tensors that are the same memory are written once."""
    tensors = list(function.members)
    known = {id(value) for _, value in tensors}
    for value in _C._program_constants([graph for group in groups for graph in group.graphs]):
        if id(value) not in known:
            known.add(id(value))
            tensors.append((f"_recorded_{len(tensors)}", value))
    constants, places, at = [], {}, 0
    parts: list[Any] = []
    for name, tensor in tensors:
        if not tensor.is_cpu and tensor.device != function.device:
            raise NotImplementedError(
                f"[package] expected a model on one device, which is {function.device}, got {name} on {tensor.device}"
            )
        size = _extent(tensor)
        key = (tensor.data_ptr(), size)
        if key not in places or size == 0:
            places[key] = at
            if size:
                parts.append(_bytes_of(tensor, size))
                padding = -size % ALIGNMENT
                parts.append(bytes(padding))
                at += size + padding
        constants.append((name, tensor, places[key], size))
    return constants, parts


def _bytes_of(tensor: Any, size: int) -> Any:
    if tensor.is_cpu:
        return (ctypes.c_char * size).from_address(tensor.data_ptr())
    flat = tensor.as_strided((size // tensor.element_size(),), (1,)).cpu()
    return bytes((ctypes.c_char * size).from_address(flat.data_ptr()))


# ------------------------------------------------------------------------------------------ signature


def _inputs(recording: Recording) -> list[tuple[str, Any, list[int], Any]]:
    return [
        (t.name, t.dtype, [size if isinstance(size, int) else -1 for size in t.shape or ()], t.device)
        for t in recording.function.tensors
    ]


def _ranges(recording: Recording) -> list[tuple[int, int, int, int]]:
    ranges = []
    for symbol in recording.symbols:
        low = symbol.low
        while low < symbol.high and _is_refused(recording, symbol, low):
            low += 1
        first, last = (evaluate(symbol.expr, {symbol.atom: n}) for n in (low, symbol.high))
        ranges.append((symbol.input, symbol.dim, min(first, last), max(first, last)))
    return ranges


def _is_refused(recording: Recording, symbol: Any, size: int) -> bool:
    """Whether the program could not be recorded wherever a symbol has this size."""
    at = recording.symbols.index(symbol)
    return any(p[at] == size for p in recording.failures) and not any(p[at] == size for p in recording.graphs)


def _coordinates(recording: Recording, point: sampling.Point) -> list[int]:
    return [evaluate(s.expr, {s.atom: n}) for s, n in zip(recording.symbols, point)]


def _signature(function: ProgramFunction) -> dict[str, Any]:
    spec = function.program.call_spec
    inputs = [
        {"kind": "tensor"} if i.shape is not None else {"kind": "value", "value": i.value} for i in function.inputs
    ]
    try:
        json.dumps(inputs), json.dumps(function.outputs)
    except TypeError as error:
        raise NotImplementedError(
            "[package] expected arguments and results that are tensors, numbers, strings, booleans or None, got others"
        ) from error
    return {
        "in_spec": pytree.treespec_dumps(spec.in_spec),
        "out_spec": pytree.treespec_dumps(spec.out_spec),
        "inputs": inputs,
        "outputs": function.outputs,
    }


# ------------------------------------------------------------------------------------------ check


def _filled(tensor: UserInput, shape: tuple[int, ...]) -> Any:
    """Values of the example, repeated: they are what the program takes."""
    if tensor.example is None:
        return (
            fl.randn(shape, device=tensor.device).to(tensor.dtype)
            if tensor.dtype.is_floating_point
            else fl.zeros(shape, dtype=tensor.dtype, device=tensor.device)
        )
    value = tensor.example.detach()
    for dim, size in enumerate(shape):
        if size and value.shape[dim] == 0:
            return fl.zeros(shape, dtype=tensor.dtype, device=tensor.device)
        value = value.index_select(dim, fl.arange(size, device=tensor.device) % max(value.shape[dim], 1))
    return value


def _samples(recording: Recording) -> Iterator[tuple[sampling.Point, list[Any]]]:
    """Inputs of recorded and of other sizes, to run the program and what it became on."""
    points = sampling.unseen_points(list(recording.graphs), recording.ranges, _UNSEEN) if recording.symbols else [()]
    for point in points:
        if point not in recording.failures:
            yield point, recording.function.inputs_at(recording.symbols, point, _filled)


def _check(recording: Recording, program: Any, model: AOTICompiledModel) -> None:
    """Compares results with those of the program, at recorded and at other sizes."""
    if any(spec.kind.name.endswith("MUTATION") for spec in program.graph_signature.output_specs):
        return  # a run would change the state
    function = recording.function
    for point, inputs in _samples(recording):
        with fl.no_grad(), fl.random.fork_rng(devices=[]):
            fl.manual_seed(0)
            expected = function(*recording.members, *(t.clone() for t in inputs))
            fl.manual_seed(0)
            results = model.run_tensors([t.clone() for t in inputs])
        for a, b in zip(expected, results):
            if a is None and b is None:
                continue
            _compare(a, b, point)


def _compare(expected: Any, actual: Any, point: sampling.Point) -> None:
    if expected.shape != actual.shape or expected.dtype != actual.dtype:
        raise RuntimeError(
            f"[package] expected a result of the shape {tuple(expected.shape)} at sizes {point}, got {tuple(actual.shape)}"
        )
    if not expected.dtype.is_floating_point and not expected.dtype.is_complex:
        same = bool((expected == actual).all())
    else:
        scale = float(expected.abs().nan_to_num(0, 0, 0).max()) if expected.numel() else 0.0
        loose = {fl.float16: 2e-2, fl.bfloat16: 6e-2, fl.float64: 1e-6}.get(expected.dtype, 1e-3)
        same = fl.allclose(expected, actual, rtol=loose, atol=loose * max(scale, 1e-3), equal_nan=True)
    if not same:
        raise RuntimeError(f"[package] expected the results of the program at sizes {point}, got others")
