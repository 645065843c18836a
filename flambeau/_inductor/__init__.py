"""The fusing compiler: recorded operator calls become a few generated loops and library calls.

lower      calls -> loops over elements (arithmetic from the op records) and operator calls that stay as they are
schedule   loops -> groups that run as one kernel each
cpp        a group -> C++ source that holds for every size
build      sources -> a shared object, kept on disk by its content
printers   which of these a device has: cpp and build, or tiles, triton and triton_build on a GPU
plan       groups and calls -> the steps of a native program
compile_fx all of it, for each geometry of the inputs that a function meets
config     settings; stages shows each stage as text, verify holds it to its rules
package    exported programs -> files that run without a compiler and without Python
"""

from __future__ import annotations

from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    import os

    from flambeau._inductor.package.model import AOTICompiledModel


def list_mode_options(mode: str | None = None, dynamic: bool | None = None) -> dict[str, Any]:
    """What the modes of `compile` set, or one of them."""
    from flambeau._inductor import config

    return config.MODES if mode is None else config.MODES[mode]


def list_options() -> list[str]:
    """The names that `compile(..., options={...})` takes."""
    from flambeau._inductor import config

    return list(config._options())


def aoti_compile_and_package(
    exported_program: Any,
    _deprecated_unused_args: Any = None,
    _deprecated_unused_kwargs: Any = None,
    *,
    package_path: str | os.PathLike[str] | IO[bytes] | None = None,
    inductor_configs: dict[str, Any] | None = None,
) -> Any:
    """Compiles an exported program into a package: one `.pt2` file, or a buffer. Returns where it is."""
    import os
    import tempfile

    from flambeau._inductor.package import compile_package

    if not hasattr(exported_program, "graph_signature"):
        raise RuntimeError(f"[package] expected an ExportedProgram, got {type(exported_program).__name__}")
    if package_path is None:
        package_path = os.path.join(tempfile.mkdtemp(prefix="flambeau-"), "model.pt2")
    if not hasattr(package_path, "write") and not os.fspath(package_path).endswith(".pt2"):
        raise AssertionError(f"[package] expected a path that ends in .pt2 or a buffer, got {package_path}")
    compile_package(exported_program, package_path, inductor_configs)
    return package_path if hasattr(package_path, "write") else os.fspath(package_path)


def aoti_load_package(
    path: str | os.PathLike[str] | IO[bytes], run_single_threaded: bool = False, device_index: int = -1
) -> AOTICompiledModel:
    """Loads a package from a file or from a buffer."""
    from flambeau._inductor.package import load_package

    return load_package(path, run_single_threaded=run_single_threaded, device_index=device_index)


def aoti_compile_and_load(
    exported_program: Any, *, inductor_configs: dict[str, Any] | None = None
) -> AOTICompiledModel:
    """Compiles an exported program and loads the package, without a file."""
    import io

    buffer = io.BytesIO()
    aoti_compile_and_package(exported_program, package_path=buffer, inductor_configs=inductor_configs)
    buffer.seek(0)
    return aoti_load_package(buffer)


def aot_compile(
    gm: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None, *, options: dict[str, Any] | None = None
) -> str:
    """Compiles a module for inputs of these sizes into a package; the path of its file."""
    from importlib import import_module

    options = dict(options or {})
    path = options.pop("aot_inductor.output_path", None) or None
    program = gm if hasattr(gm, "graph_signature") else import_module("flambeau.export").export(gm, args, kwargs)
    return str(aoti_compile_and_package(program, package_path=path, inductor_configs=options))


def __getattr__(name: str) -> Any:
    from importlib import import_module

    from flambeau._compat import absent

    try:
        return absent.attribute(__name__, name)
    except AttributeError:
        try:
            return import_module(f"{__name__}.{name}")
        except ModuleNotFoundError:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
