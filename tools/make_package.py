"""Writes a small package, for programs that need one: python tools/make_package.py model.pt2"""

from __future__ import annotations

import sys

import flambeau as fl
from flambeau._inductor import aoti_compile_and_package
from flambeau.export import Dim, export

if __name__ == "__main__":
    fl.manual_seed(0)
    model = fl.nn.Sequential(fl.nn.Linear(6, 16), fl.nn.ReLU(), fl.nn.LayerNorm(16), fl.nn.Linear(16, 3)).eval()
    program = export(model, (fl.randn(4, 6),), dynamic_shapes=({0: Dim("batch", min=1, max=20)},))
    aoti_compile_and_package(program, package_path=sys.argv[1])
