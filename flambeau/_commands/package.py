"""`flambeau package`: compile a model ahead of time into one file that C, C++ and Python load, or into a library."""

from __future__ import annotations

import argparse
import importlib.util
import sys
import time
from pathlib import Path
from typing import Any

EPILOG = """The factory takes no arguments. It returns an exported program, or a module with example arguments, (module, args),
or with the sizes that may vary besides, (module, args, dynamic_shapes), as torch.export.export takes them.

An output that ends in .so is a library with a C header beside it. It holds the model and the kernels that it calls, and needs
nothing but the system's C library. `flambeau package --runtime a.pt2 b.pt2 -o libflambeau.so` writes a runtime that has the kernels
of these packages alone.

example: flambeau package model.py:make -o model.pt2
"""


def factory(text: str) -> tuple[Path, str]:
    path, separator, name = text.rpartition(":")
    if not separator or not name.isidentifier() or not Path(path).is_file():
        raise argparse.ArgumentTypeError(f"expected file.py:function, got {text!r}")
    return Path(path), name


def call(path: Path, name: str) -> Any:
    """What a function of a file returns."""
    sys.path.insert(0, str(path.resolve().parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return getattr(module, name)()


def exported(program: Any) -> Any:
    from flambeau.export import export

    if hasattr(program, "graph_signature"):
        return program
    if not isinstance(program, tuple) or len(program) not in (2, 3):
        raise TypeError(f"expected (module, args) or (module, args, dynamic_shapes), got {type(program).__name__}")
    model, args, *shapes = program
    return export(model.eval(), tuple(args), dynamic_shapes=shapes[0] if shapes else None)


def _compile(parser: argparse.ArgumentParser, model: str, output: str, processor: str | None) -> None:
    try:
        place = factory(model)
    except argparse.ArgumentTypeError as error:
        parser.error(f"argument model: {error}")
    import flambeau.as_torch  # noqa: F401  models are written for PyTorch's name
    from flambeau._inductor.package import compile_package, compile_self_contained

    program = exported(call(*place))
    if output.endswith(".pt2"):
        compile_package(program, output, processors=[processor] if processor else [])
    else:
        compile_self_contained(program, output, processor=processor)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        "flambeau package", description=__doc__, epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", nargs="+", help="file.py:function that makes the model, or a package")
    parser.add_argument(
        "--runtime", action="store_true", help="write a runtime with the kernels that the given packages call, as a .so"
    )
    parser.add_argument(
        "-o",
        "--output",
        required=True,
        help="the package, a file that ends in .pt2; or a self-contained .so, with a header",
    )
    parser.add_argument(
        "--target",
        choices=["aarch64"],
        help="the kind of processor: a package has kernels for it besides those for this machine's; a .so is for it alone",
    )
    parsed = parser.parse_args(arguments)
    if not parsed.output.endswith((".pt2", ".so")):
        parser.error(f"expected an output that ends in .pt2 or .so, got {parsed.output!r}")
    begin = time.perf_counter()
    packages = [Path(model) for model in parsed.model if model.endswith(".pt2")]
    if parsed.runtime or packages:
        if len(packages) < len(parsed.model) or not parsed.output.endswith(".so"):
            parser.error("expected packages, and an output that ends in .so")
        if len(packages) > 1 and not parsed.runtime:
            parser.error("expected one package for a self-contained library, or --runtime")
        from flambeau._inductor.package.standalone import link, link_runtime

        if parsed.runtime:
            link_runtime(packages, Path(parsed.output), parsed.target)
        else:
            link(packages[0], Path(parsed.output), processor=parsed.target)
    else:
        if len(parsed.model) > 1:
            parser.error("expected one model")
        _compile(parser, parsed.model[0], parsed.output, parsed.target)
    size = Path(parsed.output).stat().st_size
    print(f"{parsed.output}: {size / 1e6:.1f} MB in {time.perf_counter() - begin:.1f} s")
    return 0
