"""The older names of packages: `torch._export.aot_compile` and `aot_load`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["aot_compile", "aot_load"]


def aot_compile(
    f: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    options: dict[str, Any] | None = None,
    remove_runtime_assertions: bool = False,
    disable_constraint_solver: bool = False,
    same_signature: bool = True,
) -> str:
    """Exports a module and compiles it into a package; the path of its file."""
    from flambeau._inductor import aot_compile as compile_program
    from flambeau.export import export

    program = export(f, args, kwargs, dynamic_shapes=dynamic_shapes)
    return compile_program(program, args, kwargs, options=options)


def aot_load(so_path: str, device: str) -> Callable[..., Any]:
    """Loads what `aot_compile` wrote."""
    from flambeau._inductor import aoti_load_package

    if device != "cpu":
        raise NotImplementedError(f"[package] expected the device cpu, got {device}")
    return aoti_load_package(so_path)
