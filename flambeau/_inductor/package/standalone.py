"""Self-contained models: a package, and the parts of the library that it needs, as one shared object with a C header.

    model.pt2 + libflambeau.a        ->  model.so, model.h
    some packages + libflambeau.a    ->  a runtime with the kernels that these call

The archive `libflambeau.a` holds the objects of the library. Those that a model needs are found by the symbols they lack, the device
functions they call and the operators they register; the linker drops what nothing refers to. The table of operators is generated
for the operators of the model alone. Operators that kernels look up by name when they run are found by running the result: what it
misses is added, until it gives the results of the package.
"""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import flambeau as fl
from flambeau import _C
from flambeau._inductor import build
from flambeau._inductor.package.objects import needed_objects
from flambeau._inductor.toolchains import NATIVE, Toolchain, toolchain

__all__ = ["StaticLibrary", "link", "link_runtime", "operators_of"]

_PACKAGE = Path(fl.__file__ or "").parent
# Registered below everything: results are copied where they must lie.
_ALWAYS = ("copy_", "clone")
_MISSING = re.compile(r"expected a defined operator, got ([\w.]+)|expected operators of this library, got ([\w.]+)")
_MOST_ATTEMPTS = 20


class StaticLibrary:
    """The archive, with the headers and the generator that its table of operators is made by."""

    def __init__(self, folder: Path) -> None:
        self.archive = folder / "libflambeau.a"
        self.flags = (folder / "flags.txt").read_text().split()
        sources = folder if (folder / "csrc").is_dir() else _PACKAGE.parent  # installed, or in a checkout
        self.headers, self.generator = sources / "csrc", sources / "tools" / "generate.py"

    @classmethod
    def find(cls, processor: str | None = None) -> StaticLibrary:
        """In the folder that FLAMBEAU_STATIC names, or beside the package; that for another processor where
        FLAMBEAU_STATIC_AARCH64 says."""
        if processor and processor != NATIVE:
            variable = f"FLAMBEAU_STATIC_{processor.upper()}"
            folder = Path(os.environ.get(variable) or _PACKAGE.parent / "build" / processor / "static")
            if not (folder / "libflambeau.a").is_file():
                raise FileNotFoundError(
                    f"[package] expected libflambeau.a for {processor}, got none in {folder}; `make {processor}` builds it. "
                    f"{variable} names its folder."
                )
            return cls(folder)
        folder = Path(os.environ.get("FLAMBEAU_STATIC") or _PACKAGE / "static")
        if not (folder / "libflambeau.a").is_file():
            raise FileNotFoundError(
                f"[package] expected libflambeau.a for a self-contained model, got none in {folder}; it is in the archive "
                "flambeau-static of a release, and `make dev` builds it. FLAMBEAU_STATIC names its folder."
            )
        return cls(folder)


_SOURCE = """\
#include <flambeau/flambeau.h>
__asm__(".section .data\\n.balign 64\\n"
        ".globl flambeau_package\\n.hidden flambeau_package\\nflambeau_package:\\n.incbin \\"@PACKAGE@\\"\\n"
        ".globl flambeau_package_end\\n.hidden flambeau_package_end\\nflambeau_package_end:\\n.previous\\n");
extern char flambeau_package[], flambeau_package_end[];
FL_API fl_status @NAME@_load(fl_model** model) {
  return fl_load_static(flambeau_package, (size_t)(flambeau_package_end - flambeau_package), model);
}
FL_API void @NAME@_free(fl_model* model) { fl_model_free(model); }
FL_API const char* @NAME@_error(void) { return fl_error(); }
FL_API size_t @NAME@_inputs(const fl_model* model) { return fl_model_inputs(model); }
FL_API size_t @NAME@_outputs(const fl_model* model) { return fl_model_outputs(model); }
FL_API const char* @NAME@_input_name(const fl_model* model, size_t index) { return fl_model_input_name(model, index); }
FL_API const char* @NAME@_output_name(const fl_model* model, size_t index) { return fl_model_output_name(model, index); }
FL_API void @NAME@_set_num_threads(int threads) { fl_set_num_threads(threads); }
FL_API fl_status @NAME@_run(const fl_model* model, DLManagedTensor* const* inputs, size_t input_count,
                            DLManagedTensor** outputs, size_t output_count) {
  return fl_run(model, inputs, input_count, outputs, output_count);
}
"""

_HEADER = """\
/* @NAME@: a model compiled by flambeau. It needs nothing but this header and the library beside it.
 *
 * @NAME@_load makes a model, which many threads may run at the same time. @NAME@_run borrows its inputs; each output is a new tensor,
 * to be freed with its deleter. Functions that can fail return 0, or another number; @NAME@_error then says what went wrong, for
 * the last such call of the thread.
 *
 * Inputs:  @INPUTS@
 * Outputs: @OUTPUTS@
 */
#ifndef FLAMBEAU_MODEL_@NAME@_H
#define FLAMBEAU_MODEL_@NAME@_H

@DLPACK@
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fl_model @NAME@_model;

int @NAME@_load(@NAME@_model** model);
void @NAME@_free(@NAME@_model* model);
const char* @NAME@_error(void);
size_t @NAME@_inputs(const @NAME@_model* model);
size_t @NAME@_outputs(const @NAME@_model* model);
const char* @NAME@_input_name(const @NAME@_model* model, size_t index);
const char* @NAME@_output_name(const @NAME@_model* model, size_t index);
void @NAME@_set_num_threads(int threads);
int @NAME@_run(const @NAME@_model* model, DLManagedTensor* const* inputs, size_t input_count,
               DLManagedTensor** outputs, size_t output_count);

#ifdef __cplusplus
}
#endif

#endif
"""


_RUNTIME_SOURCE = """\
#include <flambeau/flambeau.h>
void* const flambeau_functions[] = {(void*)fl_load, (void*)fl_run};  /* of the object with all functions about models */
"""


def _run(command: list[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise build.BuildError(f"[package] expected the model to link, got from {command[0]}:\n{done.stderr[-4000:]}")


def link(
    package: Path, target: Path, samples: list[list[fl.Tensor]] | None = None, processor: str | None = None
) -> None:
    """Writes `target`, a shared object, and a header beside it. Samples are inputs that the results of the package are compared at."""
    name = re.sub(r"\W", "_", target.stem.removeprefix("lib"))
    if not name or name[0].isdigit():
        raise ValueError(f"[package] expected a file whose name is an identifier of C, got {target.name}")
    source = _SOURCE.replace("@PACKAGE@", str(package.resolve())).replace("@NAME@", name)
    trial = _Trial(package, samples)
    _link(source, name, [trial], target, processor)
    inputs, outputs = _C._package_names(trial.loaded)
    texts = {"INPUTS": ", ".join(inputs), "OUTPUTS": ", ".join(outputs), "NAME": name}
    texts["DLPACK"] = (_PACKAGE / "include" / "flambeau" / "dlpack.h").read_text()
    target.with_name(f"{name}.h").write_text(re.sub("@([A-Z]+)@", lambda m: texts[m[1]], _HEADER))


def link_runtime(packages: list[Path], target: Path, processor: str | None = None) -> None:
    """Writes `target`, a runtime with the functions of <flambeau/flambeau.h> about models and tensors, and with the kernels that some
    packages call."""
    _link(_RUNTIME_SOURCE, "fl", [_Trial(package, None, loads=True) for package in packages], target, processor)


def operators_of(packages: list[Path]) -> set[str]:
    """The operators that some packages call, those that kernels look up included."""
    trials = [_Trial(package, None, loads=True) for package in packages]
    with tempfile.TemporaryDirectory() as scratch:
        return _tried(StaticLibrary.find(), _RUNTIME_SOURCE, "fl", trials, Path(scratch))[1]


class _Trial:
    """A package with inputs and its results for them, which what is linked must give as well."""

    def __init__(self, package: Path, samples: list[list[fl.Tensor]] | None, loads: bool = False) -> None:
        self.package, self.loads = package, loads
        self.loaded = _C._load_package(os.fspath(package), -1)
        if samples is None:
            samples = [[_filled(like) for like in inputs] for inputs in _C._package_samples(self.loaded)]
        self.samples = samples
        self.expected = [_C._run_package(self.loaded, [t.clone() for t in tensors]) for tensors in samples]

    def missing(self, library: ctypes.CDLL, prefix: str) -> str | None:
        """An operator that is looked for in vain; None where the results are as expected."""
        try:
            model = _Loaded(library, prefix, self.package if self.loads else None)
            for tensors, results in zip(self.samples, self.expected):
                for mine, theirs in zip(model.run([t.clone() for t in tensors], len(results)), results):
                    fl.testing.assert_close(mine, theirs, rtol=1e-3, atol=1e-4, equal_nan=True)
        except RuntimeError as error:
            operator = _MISSING.search(str(error))
            if operator is None:
                raise
            return operator[1] or operator[2]
        return None


def _filled(like: fl.Tensor) -> fl.Tensor:
    if like.dtype.is_floating_point or like.dtype.is_complex:
        return fl.randn(like.shape, dtype=like.dtype)
    return fl.zeros(like.shape, dtype=like.dtype)


def _link(source: str, prefix: str, trials: list[_Trial], target: Path, processor: str | None) -> None:
    """Links a source with the objects of the library that it needs. What it needs is found by runs on this machine."""
    with tempfile.TemporaryDirectory() as scratch:
        built, operators = _tried(StaticLibrary.find(), source, prefix, trials, Path(scratch))
        if processor and processor != NATIVE:
            folder = Path(scratch) / processor
            folder.mkdir()
            other = toolchain(processor)
            built = _linked(StaticLibrary.find(processor), source, prefix, operators, folder, "linked.so", other)
        target.write_bytes(built.read_bytes())


def _tried(
    library: StaticLibrary, source: str, prefix: str, trials: list[_Trial], scratch: Path
) -> tuple[Path, set[str]]:
    """A source linked with what it needs, and the operators among that, which are found out by running the trials."""
    operators = {*_ALWAYS, *(name for trial in trials for name in _C._package_operators(trial.loaded))}
    for attempt in range(_MOST_ATTEMPTS):
        built = _linked(library, source, prefix, operators, scratch, f"linked{attempt}.so", _native())
        opened = ctypes.CDLL(str(built))
        missing = {name for trial in trials if (name := trial.missing(opened, prefix))}
        if not missing:
            return built, operators
        if missing <= operators:
            raise RuntimeError(f"[package] expected {', '.join(sorted(missing))} in {library.archive}, got none")
        operators |= missing
    raise RuntimeError(f"[package] expected the operators of the model, got more than {_MOST_ATTEMPTS} missing ones")


def _native() -> Toolchain:
    compiler = build.compiler()
    if compiler is None:
        raise RuntimeError("[package] expected a C++ compiler on this machine, got none")
    return Toolchain(NATIVE, compiler, "nm", "native")


def _linked(
    library: StaticLibrary, source: str, prefix: str, operators: set[str], folder: Path, file: str, tools: Toolchain
) -> Path:
    (folder / "objects").mkdir(exist_ok=True)
    (folder / "operators.txt").write_text("\n".join(sorted(operators)))
    generate = [sys.executable, str(library.generator), "--only", "operators.txt", "--out", "generated"]
    _run(generate, folder)
    (folder / "model.c").write_text(source)
    common = ["-O1", "-fPIC", "-w", "-c", *tools.flags, f"-I{_PACKAGE / 'include'}"]
    table = Path("generated/core/operators.cpp")
    _run(
        [
            tools.compiler,
            *common,
            "-std=c++17",
            f"-I{library.headers}",
            *library.flags,
            str(table),
            "-o",
            "operators.o",
        ],
        folder,
    )
    _run([tools.compiler, *common, "-x", "c", "model.c", "-o", "model.o"], folder)
    objects = needed_objects(
        library.archive, operators, [folder / "model.o", folder / "operators.o"], folder / "objects", tools.nm
    )
    (folder / "exports").write_text(f"{{ global: {prefix}_*; local: *; }};")
    response = folder / "objects.txt"
    response.write_text("\n".join(map(str, objects)))
    built = folder / file
    _run(
        [
            tools.compiler, "-shared", "-o", str(built), "model.o", "operators.o", f"@{response}", "-static-libstdc++", "-static-libgcc",
            "-pthread", "-ldl", "-Wl,--as-needed", "-lgomp", "-Wl,--gc-sections", "-Wl,-s", "-Wl,--no-undefined", "-Wl,--version-script=exports",
        ],
        folder,
    )  # fmt: skip
    return built


class _Loaded:
    """A model in a library that was linked, or that it loads from a package."""

    def __init__(self, library: ctypes.CDLL, prefix: str, package: Path | None) -> None:
        self.library, self.prefix = library, prefix
        getattr(library, f"{prefix}_error").restype = ctypes.c_char_p
        self.handle = ctypes.c_void_p()
        self._call("load", *([os.fspath(package).encode()] if package else []), ctypes.byref(self.handle))

    def _call(self, function: str, *arguments: object) -> None:
        if getattr(self.library, f"{self.prefix}_{function}")(*arguments):
            raise RuntimeError(getattr(self.library, f"{self.prefix}_error")().decode())

    def run(self, tensors: list[fl.Tensor], results: int) -> list[fl.Tensor]:
        pointer = ctypes.pythonapi.PyCapsule_GetPointer
        pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
        capsules = [t.__dlpack__() for t in tensors]
        inputs = (ctypes.c_void_p * len(tensors))(*(pointer(c, b"dltensor") for c in capsules))
        outputs = (ctypes.c_void_p * results)()
        self._call("run", self.handle, inputs, ctypes.c_size_t(len(tensors)), outputs, ctypes.c_size_t(results))
        capsule = ctypes.pythonapi.PyCapsule_New
        capsule.restype, capsule.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return [fl.from_dlpack(capsule(output, b"dltensor", None)) for output in outputs]
