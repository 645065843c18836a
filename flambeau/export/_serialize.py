"""Exported programs in files, in PyTorch's `.pt2` layout: either library reads what the other wrote.

Reading runs no code: operators are looked up by name, and what is no known kind of value is refused.
"""

from __future__ import annotations

from typing import Any

from flambeau.export._pt2.archive import Contents, read_archive, write_archive
from flambeau.export._pt2.read import read_program
from flambeau.export._pt2.schema import SerializeError
from flambeau.export.exported_program import ExportedProgram


def save(
    ep: ExportedProgram,
    f: Any,
    *,
    extra_files: dict[str, Any] | None = None,
    opset_version: dict[str, int] | None = None,
    pickle_protocol: int = 2,
) -> None:
    """Writes a program to a path or a file object."""
    if not isinstance(ep, ExportedProgram):
        raise TypeError(
            f"[export.save] expected an ExportedProgram, got {type(ep).__name__}: The 'ep' parameter must be an instance "
            "of 'ExportedProgram'"
        )
    write_archive(f, {"model": ep}, extra_files)


def load(
    f: Any, *, extra_files: dict[str, Any] | None = None, expected_opset_version: dict[str, int] | None = None
) -> ExportedProgram:
    """Reads a program that `save` wrote, here or in PyTorch."""

    def take(contents: Contents) -> ExportedProgram:
        if not contents.models:
            raise SerializeError("[export.load] expected an archive with a program, got one without")
        model = "model" if "model" in contents.models else contents.models[0]
        if extra_files is not None:
            held = contents.extra_files()
            for name in extra_files:
                if name in held:
                    extra_files[name] = held[name].decode()
        return _read(contents, model)

    result = read_archive(f, take)
    assert isinstance(result, ExportedProgram)
    return result


def _read(contents: Contents, model: str) -> ExportedProgram:
    state, constants = contents.tensors("weights", model), contents.tensors("constants", model)
    return read_program(contents.document(model), state, constants, contents.examples(model))
