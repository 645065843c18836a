"""Packages: exported programs compiled ahead of time into one file that loads without a compiler and without Python.

sampling   the sizes that a program is recorded at
recording  a program -> graphs for those sizes, grouped into plans (`csrc/compiled/plan_family.h`)
writing    plans, kernels for each instruction set and weights -> a `.pt2` archive
model      an archive -> something to call
standalone an archive and the parts of the library that it needs -> a shared object with a C header

The archive is read by `csrc/runtime`, from Python and from C++ alike.
"""

from __future__ import annotations

from flambeau._inductor.package.model import AOTICompiledModel, load_package
from flambeau._inductor.package.writing import compile_package, compile_self_contained

__all__ = ["AOTICompiledModel", "compile_package", "compile_self_contained", "load_package"]
