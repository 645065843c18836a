"""The archive of a `.pt2` file: the JSON of each program, weights and constants as raw bytes, example inputs.

Tensors that share memory are written once. A tensor's record holds its whole storage, and its description says where in it
the tensor lies.
"""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import flambeau as fl
from flambeau import _C
from flambeau.export._pt2 import schema
from flambeau.export._pt2.schema import SerializeError
from flambeau.export._pt2.write import GraphWriter, program_json
from flambeau.serialization import _is_path, _opened, replacing
from flambeau.serialization.archive import Reader, Writer

if TYPE_CHECKING:
    from flambeau.export.exported_program import ExportedProgram


def write_archive(
    f: Any,
    programs: dict[str, ExportedProgram],
    extra_files: dict[str, Any] | None,
    records: dict[str, bytes] | None = None,
) -> None:
    """Writes programs to a path or a file object. `records` are more members, by their path in the archive."""
    if _is_path(f):
        name = os.path.basename(os.fspath(f)).rpartition(".")[0]
        with replacing(f) as sink:
            _write(Writer(sink, name or "archive"), programs, extra_files, records)
        return
    _write(Writer(f, "archive"), programs, extra_files, records)
    if f.seekable():
        f.seek(0)


def _write(writer: Writer, programs: Any, extra_files: dict[str, Any] | None, records: dict[str, bytes] | None) -> None:
    for model, program in programs.items():
        _write_program(writer, model, program)
    for path, data in (records or {}).items():
        writer.add(path, data)
    for name, content in (extra_files or {}).items():
        writer.add(f"extra/{name}", content if isinstance(content, bytes) else str(content).encode())
    writer.add("archive_format", b"pt2")
    writer.add("archive_version", b"0")
    writer.add(".data/version", b"6\n")
    writer.add("byteorder", sys.byteorder.encode())
    writer.add(".data/serialization_id", f"{int.from_bytes(os.urandom(16), 'big') % 10**40:040d}".encode())
    writer.finish()


def _write_program(writer: Writer, model: str, program: ExportedProgram) -> None:
    parameters = set(program.graph_signature.parameters)
    read = {spec.target for spec in program.graph_signature.input_specs}
    # Modules may keep more in their state than tensors, such as dtypes: what the graph does not read stays out.
    state = {name: value for name, value in program.state_dict.items() if isinstance(value, fl.Tensor) or name in read}
    weights = _payloads(writer, "data/weights/weight_", state, parameters.__contains__)
    writer.add(f"data/weights/{model}_weights_config.json", _dumped({"config": weights}))
    constants = _payloads(writer, "data/constants/tensor_", program.constants, lambda name: False)
    writer.add(f"data/constants/{model}_constants_config.json", _dumped({"config": constants}))
    writer.add(f"models/{model}.json", _dumped(program_json(program)))
    examples = io.BytesIO()
    if program.example_inputs is not None:
        fl.save(program.example_inputs, examples)
    writer.add(f"data/sample_inputs/{model}.pt", examples.getvalue())


def _dumped(document: Any) -> bytes:
    return json.dumps(document).encode()


def _payloads(writer: Writer, prefix: str, tensors: dict[str, Any], is_param: Callable[[str], bool]) -> Any:
    """Writes tensors; where each is to be found."""
    describe = GraphWriter({})
    config: dict[str, Any] = {}
    known: dict[int, str] = {}
    held: list[Any] = []
    for name, value in tensors.items():
        if not isinstance(value, fl.Tensor):
            raise SerializeError(f"[export.save] expected tensors as constants, got {type(value).__name__} for {name}")
        plain = value.detach()
        if plain.layout is not fl.strided:
            raise SerializeError(f"[export.save] expected dense tensors, got a sparse one for {name}")
        storage = plain.untyped_storage()
        key = storage._cdata
        if key not in known:
            known[key] = f"{prefix.rpartition('/')[2]}{len(known)}"
            held.append(storage)
            writer.add(f"{prefix}{len(known) - 1}", _C._storage_memory(storage.cpu()._bytes))
        meta = describe.tensor_meta(plain)
        meta["requires_grad"] = bool(value.requires_grad)
        config[name] = {"path_name": known[key], "is_param": is_param(name), "use_pickle": False, "tensor_meta": meta}
    return config


# ---------------------------------------------------------------------------------------------- reading


class Contents:
    """What an archive holds."""

    def __init__(self, reader: Reader) -> None:
        self.reader = reader
        self.models = [
            name.removeprefix("models/").removesuffix(".json")
            for name in reader.names()
            if name.startswith("models/") and name.endswith(".json")
        ]

    def document(self, model: str) -> Any:
        return self._json(f"models/{model}.json")

    def _json(self, name: str) -> Any:
        try:
            return json.loads(self.reader.read(name))
        except ValueError as error:
            raise SerializeError(f"[export.load] expected JSON in {name}, got something else") from error

    def tensors(self, kind: str, model: str) -> dict[str, Any]:
        """The weights or the constants of a model."""
        path = f"data/{kind}/{model}_{kind}_config.json"
        if path not in self.reader:
            return {}
        storages: dict[str, Any] = {}
        tensors = {}
        for name, entry in self._json(path)["config"].items():
            if entry.get("use_pickle"):
                raise SerializeError(f"[export.load] expected tensors without pickled classes, got one for {name}")
            tensors[name] = self._tensor(f"data/{kind}/{entry['path_name']}", entry, storages)
        return tensors

    def _tensor(self, record: str, entry: Any, storages: dict[str, Any]) -> Any:
        meta = entry["tensor_meta"]
        dtype = schema.looked_up(schema.DTYPE_OF, meta["dtype"], "dtype")
        if record not in storages:
            data = bytearray(self.reader.read(record)) if record in self.reader else bytearray()
            storages[record] = fl.frombuffer(data, dtype=fl.uint8) if data else fl.empty(0, dtype=fl.uint8)
        flat = storages[record]
        sizes, strides = ([_plain(value) for value in meta[key]] for key in ("sizes", "strides"))
        offset = _plain(meta["storage_offset"])
        extent = 0 if 0 in sizes else offset + 1 + sum((n - 1) * s for n, s in zip(sizes, strides))
        if offset < 0 or min([0, *sizes, *strides]) < 0 or extent * dtype.itemsize > flat.numel():
            raise SerializeError(f"[export.load] expected {extent} elements in {record}, got {flat.numel()} bytes")
        usable = flat[: flat.numel() // dtype.itemsize * dtype.itemsize].view(dtype)
        tensor = usable.as_strided(sizes, strides, offset)
        if entry["is_param"]:
            return fl.nn.Parameter(tensor, requires_grad=bool(meta["requires_grad"]))
        return tensor.requires_grad_() if meta["requires_grad"] else tensor

    def examples(self, model: str) -> Any:
        path = f"data/sample_inputs/{model}.pt"
        data = self.reader.read(path) if path in self.reader else b""
        if not data:
            return None
        try:
            return fl.load(io.BytesIO(data), weights_only=True)
        except Exception:
            return None

    def extra_files(self) -> dict[str, bytes]:
        names = [name for name in self.reader.names() if name.startswith("extra/")]
        return {name.removeprefix("extra/"): self.reader.read(name) for name in names}


def _plain(value: Any) -> int:
    if not isinstance(value, dict) or type(value.get("as_int")) is not int:
        raise SerializeError(f"[export.load] expected a number for the size of a weight, got {value!r}")
    return int(value["as_int"])


# What reading a document raises that is not what it should be.
_MALFORMED = (
    LookupError, TypeError, ValueError, AttributeError, AssertionError, ArithmeticError, RecursionError, StopIteration,
)  # fmt: skip


def read_archive(f: Any, take: Callable[[Contents], Any]) -> Any:
    """What `take` makes of the contents of a file."""
    if not _is_path(f) and hasattr(f, "seek"):
        f.seek(0)
    with _opened(f) as source:
        reader = Reader(source)
        if "archive_format" not in reader or reader.read("archive_format") != b"pt2":
            raise SerializeError("[export.load] expected an exported program (.pt2), got another kind of archive")
        try:
            return take(Contents(reader))
        except _MALFORMED as error:
            raise SerializeError(
                f"[export.load] expected a well-formed program, got one that is not: {error!r}"
            ) from error
