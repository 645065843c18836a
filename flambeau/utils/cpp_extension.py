"""Extensions in C++ and CUDA: sources are compiled with the machine's compilers and imported as modules.

    module = load_inline("mine", cpp_sources="...", cuda_sources="...", functions=["f"])

Sources include `torch/extension.h` (`flambeau/include`), which has tensors and what functions over them are written with,
above pybind11. A build is kept under the hash of its sources and flags, so that a second call loads it at once; it is
made in a folder of its own and renamed, so that processes may build at the same time.
"""

from __future__ import annotations

import glob
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from flambeau._compat.settings import refuse

__all__ = [
    "CUDA_HOME", "CUDAExtension", "CppExtension", "include_paths", "is_ninja_available", "library_paths",
    "load", "load_inline", "verify_ninja_availability",
]  # fmt: skip

IS_HIP_EXTENSION = False
CUDNN_HOME = ROCM_HOME = HIP_HOME = None
_CUDA_SUFFIXES = (".cu", ".cuh")


def _find_cuda() -> str | None:
    for candidate in (os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"):
        if candidate and os.path.exists(os.path.join(candidate, "bin", "nvcc")):
            return candidate
    compiler = shutil.which("nvcc")
    return str(Path(compiler).resolve().parent.parent) if compiler else None


CUDA_HOME = _find_cuda()


# ---------------------------------------------------------------- paths and flags


def include_paths(device_type: str = "cpu", cuda: bool | None = None) -> list[str]:
    """Folders with the headers that an extension includes."""
    try:
        import pybind11
    except ImportError:
        raise ImportError(
            "[cpp_extension] expected pybind11, with which extensions are bound, got none; pip install pybind11"
        ) from None
    paths = [str(Path(__file__).parents[1] / "include"), pybind11.get_include(), sysconfig.get_paths()["include"]]
    if (device_type == "cuda" or cuda) and CUDA_HOME:
        paths.append(os.path.join(CUDA_HOME, "include"))
    return paths


def library_paths(device_type: str = "cpu", cuda: bool | None = None) -> list[str]:
    """Folders with the libraries that an extension is linked with."""
    return [os.path.join(CUDA_HOME, "lib64")] if (device_type == "cuda" or cuda) and CUDA_HOME else []


def is_ninja_available() -> bool:
    return shutil.which("ninja") is not None


def verify_ninja_availability() -> None:
    """Does nothing: compilers are called directly."""


def _get_cuda_arch_flags(cflags: list[str] | None = None) -> list[str]:
    """What nvcc is told of the devices: those of TORCH_CUDA_ARCH_LIST, or the machine's."""
    if any("arch" in flag for flag in cflags or ()):
        return []
    listed = os.environ.get("TORCH_CUDA_ARCH_LIST", "").replace(";", " ").split()
    if not listed:
        import flambeau as fl

        if not fl.cuda.is_available():
            return ["-arch=sm_80"]
        listed = sorted({"{}.{}".format(*fl.cuda.get_device_capability(i)) for i in range(fl.cuda.device_count())})
    flags = []
    for name in listed:
        number = name.removesuffix("+PTX").replace(".", "")
        flags.append(f"-gencode=arch=compute_{number},code=sm_{number}")
        if name.endswith("+PTX"):
            flags.append(f"-gencode=arch=compute_{number},code=compute_{number}")
    return flags


def _cpp_flags(name: str) -> list[str]:
    return [
        f"-DTORCH_EXTENSION_NAME={name}",
        "-DTORCH_API_INCLUDE_EXTENSION_H",
        "-std=c++17",
        "-fPIC",
        "-fvisibility=hidden",
    ]


# ---------------------------------------------------------------- building


def _folder(name: str, folder: str | None) -> Path:
    if folder is not None:
        return Path(folder)
    base = os.environ.get("TORCH_EXTENSIONS_DIR")
    if base is None:
        from flambeau._inductor import build

        return build.cache_dir().parent / "extensions" / name
    return Path(base) / name


def _run(command: Sequence[Any], verbose: bool) -> None:
    if verbose:
        print(" ".join(map(str, command)), file=sys.stderr)
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    if verbose and done.stdout + done.stderr:
        print(done.stdout + done.stderr, file=sys.stderr)
    if done.returncode:
        raise RuntimeError(
            f"[cpp_extension] expected the sources to compile, got:\n{' '.join(map(str, command))}\n{done.stdout}{done.stderr}"
        )


def _compiler() -> str:
    from flambeau._inductor import build

    compiler = build.compiler()
    if compiler is None:
        raise RuntimeError("[cpp_extension] expected a C++ compiler (CXX, g++, clang++), got none")
    return compiler


def _nvcc() -> str:
    if CUDA_HOME is None:
        raise RuntimeError("[cpp_extension] expected the CUDA toolkit (CUDA_HOME, nvcc), got none")
    return os.path.join(CUDA_HOME, "bin", "nvcc")


def _build(
    name: str,
    sources: list[Path],
    folder: Path,
    cflags: list[str],
    cuda_cflags: list[str],
    ldflags: list[str],
    includes: list[str],
    verbose: bool,
    with_cuda: bool | None,
) -> Path:
    """The shared object of some sources."""
    cuda = with_cuda if with_cuda is not None else any(s.suffix in _CUDA_SUFFIXES for s in sources)
    paths = [f"-I{p}" for p in [*includes, *include_paths("cuda" if cuda else "cpu")]]
    host = [_compiler(), *_cpp_flags(name), "-O2", *paths, *cflags]
    device: list[str] = []
    if cuda:
        flags = ["--expt-relaxed-constexpr", "-Xcompiler", "-fPIC,-fvisibility=hidden", "-std=c++17", "-O2"]
        named = [f for f in _cpp_flags(name) if f.startswith("-D")]
        device = [_nvcc(), *named, *flags, *_get_cuda_arch_flags(cuda_cflags), *paths, *cuda_cflags]
    headers = sorted(glob.glob(str(Path(__file__).parents[1] / "include" / "**" / "*.h"), recursive=True))
    digest = hashlib.sha256(repr((host, device, ldflags, [s.name for s in sources])).encode())
    for path in [*sources, *headers]:
        digest.update(Path(path).read_bytes())  # type: ignore[arg-type]
    built = folder / f"{digest.hexdigest()[:16]}" / f"{name}.so"
    if built.exists():
        return built
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        objects = [Path(scratch) / f"{i}.o" for i in range(len(sources))]

        def compile_one(pair: tuple[Path, Path]) -> None:
            source, target = pair
            command = device if source.suffix in _CUDA_SUFFIXES else host
            _run([*command, "-c", source, "-o", target], verbose)

        with ThreadPoolExecutor(max(os.cpu_count() or 1, 1)) as pool:
            list(pool.map(compile_one, zip(sources, objects)))
        library = Path(scratch) / f"{name}.so"
        link = [_nvcc(), "-shared"] if cuda else [_compiler(), "-shared"]
        _run([*link, *objects, "-o", library, *ldflags], verbose)
        built.parent.mkdir(exist_ok=True)
        os.replace(library, built)
    return built


def _load(name: str, path: Path, is_python_module: bool) -> Any:
    if not is_python_module:
        import flambeau as fl

        fl.ops.load_library(str(path))
        return str(path)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def load(
    name: str,
    sources: str | Sequence[str],
    extra_cflags: Sequence[str] | None = None,
    extra_cuda_cflags: Sequence[str] | None = None,
    extra_sycl_cflags: Sequence[str] | None = None,
    extra_ldflags: Sequence[str] | None = None,
    extra_include_paths: Sequence[str] | None = None,
    build_directory: str | None = None,
    verbose: bool = False,
    with_cuda: bool | None = None,
    with_sycl: bool | None = None,
    is_python_module: bool = True,
    is_standalone: bool = False,
    keep_intermediates: bool = True,
) -> Any:
    """Compiles files and imports them as a module; without `is_python_module` they are loaded for the operators that they
    define with TORCH_LIBRARY."""
    refuse("load", with_sycl=with_sycl, extra_sycl_cflags=extra_sycl_cflags, is_standalone=is_standalone)
    files = [Path(s).resolve() for s in ([sources] if isinstance(sources, str) else sources)]
    path = _build(
        name, files, _folder(name, build_directory), list(extra_cflags or ()), list(extra_cuda_cflags or ()),
        list(extra_ldflags or ()), list(extra_include_paths or ()), verbose, with_cuda,
    )  # fmt: skip
    return _load(name, path, is_python_module)


def load_inline(
    name: str,
    cpp_sources: str | Sequence[str],
    cuda_sources: str | Sequence[str] | None = None,
    sycl_sources: str | Sequence[str] | None = None,
    functions: str | Sequence[str] | dict[str, str] | None = None,
    extra_cflags: Sequence[str] | None = None,
    extra_cuda_cflags: Sequence[str] | None = None,
    extra_sycl_cflags: Sequence[str] | None = None,
    extra_ldflags: Sequence[str] | None = None,
    extra_include_paths: Sequence[str] | None = None,
    build_directory: str | None = None,
    verbose: bool = False,
    with_cuda: bool | None = None,
    with_sycl: bool | None = None,
    is_python_module: bool = True,
    with_pytorch_error_handling: bool = True,
    keep_intermediates: bool = True,
    use_pch: bool = False,
    no_implicit_headers: bool = False,
) -> Any:
    """Compiles texts and imports them as a module. `functions` names those of the C++ text that Python may call, with their
    documentation if it is a dict."""
    refuse("load_inline", with_sycl=with_sycl, extra_sycl_cflags=extra_sycl_cflags, sycl_sources=sycl_sources)
    texts = [cpp_sources] if isinstance(cpp_sources, str) else list(cpp_sources)
    kernels = [cuda_sources] if isinstance(cuda_sources, str) else list(cuda_sources or ())
    if not no_implicit_headers:
        texts.insert(0, "#include <torch/extension.h>")
        if kernels:
            kernels = ["#include <torch/types.h>", "#include <cuda.h>", "#include <cuda_runtime.h>", *kernels]
    if functions is not None:
        named = [functions] if isinstance(functions, str) else functions
        told = named if isinstance(named, dict) else {f: f for f in named}
        lines = [f'  m.def("{f}", &{f}, R"_({text})_");' for f, text in told.items()]
        texts.append("\n".join(["PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {", *lines, "}"]))
    folder = _folder(name, build_directory)
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        files = [Path(scratch) / "main.cpp"] + ([Path(scratch) / "cuda.cu"] if kernels else [])
        for path, parts in zip(files, (texts, kernels)):
            path.write_text("\n".join(parts) + "\n")
        library = _build(
            name, files, folder, list(extra_cflags or ()), list(extra_cuda_cflags or ()), list(extra_ldflags or ()),
            list(extra_include_paths or ()), verbose, with_cuda,
        )  # fmt: skip
    return _load(name, library, is_python_module)


def _complete(space: str, name: str, function: Any) -> Any:
    """A C++ function as the implementation of an operator: it is given every argument of the schema."""
    import flambeau as fl

    base, _, overload = name.partition(".")

    def call(*args: Any, **kwargs: Any) -> Any:
        schema = getattr(getattr(getattr(fl.ops, space), base), overload or "default")._schema
        rest = [kwargs.get(a.name, a.default_value) for a in schema.arguments[len(args) :]]
        return function(*args, *rest)

    return call


# ---------------------------------------------------------------- setup.py


def CppExtension(name: str, sources: Sequence[str], *args: Any, **kwargs: Any) -> Any:
    """A `setuptools.Extension` that finds the headers."""
    from setuptools import Extension

    kwargs["include_dirs"] = [*kwargs.get("include_dirs", ()), *include_paths()]
    kwargs["language"] = "c++"
    return Extension(name, list(sources), *args, **kwargs)


def CUDAExtension(name: str, sources: Sequence[str], *args: Any, **kwargs: Any) -> Any:
    """The same with CUDA sources among them."""
    extension = CppExtension(name, sources, *args, **kwargs)
    extension.include_dirs += include_paths("cuda")[-1:]
    return extension


def __getattr__(name: str) -> Any:
    if name != "BuildExtension":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from setuptools.command.build_ext import build_ext

    class BuildExtension(build_ext):  # type: ignore[misc]
        """The command of setup.py that builds extensions."""

        @classmethod
        def with_options(cls, **options: Any) -> Any:
            return cls

        def build_extension(self, ext: Any) -> None:
            flags = ext.extra_compile_args
            host, device = (flags.get("cxx", []), flags.get("nvcc", [])) if isinstance(flags, dict) else (flags, [])
            defined = [f"-D{key}" if value is None else f"-D{key}={value}" for key, value in ext.define_macros]
            links = [f"-L{p}" for p in ext.library_dirs] + [f"-l{x}" for x in ext.libraries] + list(ext.extra_link_args)
            library = _build(
                ext.name.rpartition(".")[2], [Path(s).resolve() for s in ext.sources], Path(self.build_temp).resolve(),
                [*defined, *host], [*defined, *device], links, list(ext.include_dirs), False, None,
            )  # fmt: skip
            target = Path(self.get_ext_fullpath(ext.name))
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(library, target)

    globals()["BuildExtension"] = BuildExtension
    return BuildExtension
