"""A program of `test_accelerator_package.py`: packages for an accelerator launch what `compile` launches.

python accelerator_package.py FOLDER
"""

import os
import sys
from pathlib import Path

import flambeau as fl
from flambeau import nn
from flambeau._inductor import aoti_compile_and_package, aoti_load_package
from flambeau._inductor.package import writing
from flambeau.export import Dim, export

LAUNCHES = Path(os.environ["LAUNCHES"])


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm, self.second = nn.Linear(32, 64), nn.LayerNorm(64), nn.Linear(64, 5)

    def forward(self, x):
        return self.second(fl.nn.functional.gelu(self.norm(self.first(x)))).softmax(-1)


class Rows(nn.Module):
    """Kernels whose grids and alignment differ from size to size."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(fl.ones(41))

    def forward(self, x):
        y = (x - x.mean(-1, keepdim=True)).relu() * self.scale
        return y.sum(1), x.tanh().transpose(0, 2).contiguous()


def launches(function, x):
    """The lines that a call writes."""
    LAUNCHES.write_text("")
    with fl.no_grad():
        function(x)
    return LAUNCHES.read_text().splitlines()


def main(folder):
    assert fl.cuda.is_available()
    writing._check = lambda *_: None  # kernels do not compute here
    cases = (
        ("block", Block(), (32,), 9),
        ("rows", Rows(), (90, 41), 6),
    )
    for name, model, size, most in cases:
        model = model.eval().to("cuda")
        compiled = fl.compile(model, dynamic=False)
        batch = Dim("batch", min=1, max=most)
        program = export(model, (fl.ones(3, *size, device="cuda"),), dynamic_shapes=({0: batch},))
        path = Path(folder) / f"{name}.pt2"
        aoti_compile_and_package(program, package_path=path)
        package = aoti_load_package(path)
        for n in range(1, most + 1):
            x = (fl.arange(float(n * fl.Size(size).numel())) % 7).reshape(n, *size).to("cuda")
            fl._dynamo.reset()
            expected, found = launches(compiled, x), launches(package, x)
            assert expected and expected == found, (name, n, expected, found)
            assert all(y.device == x.device for y in fl.utils._pytree.tree_leaves(package(x)))
        print(name, len(expected), len(set(expected)), path.stat().st_size)
        for wrong in (x.cpu(), x[:, :1]):
            try:
                package(wrong)
            except RuntimeError as error:
                print("refused:", error)
    weights = {k: fl.zeros_like(v) for k, v in model.state_dict().items()}
    before = launches(package, x)
    package.load_constants(weights, check_full_update=False)
    assert launches(package, x) != before


main(sys.argv[1])
