"""Floats of sizes in exported programs: nodes that compute them, for all sizes, also in archives and packages."""

import io
import math

import pytest

import flambeau as fl
from flambeau import nn
from flambeau._inductor import aoti_compile_and_package, aoti_load_package
from flambeau.export import Dim, export


class Scaled(nn.Module):
    def forward(self, x):
        n = x.shape[0]
        return x.sin() * n**-0.5 + x / math.log(n) * (3.0 / n) + math.sqrt(n) - float(n)


def exported(strict=False):
    return export(Scaled(), (fl.randn(4, 3),), dynamic_shapes=({0: Dim("n", min=2, max=64)},), strict=strict)


def check(program):
    for rows in (2, 3, 9, 16, 64):
        x = fl.randn(rows, 3)
        fl.testing.assert_close(program(x), Scaled()(x))


@pytest.mark.parametrize("strict", [False, True])
def test_one_program_serves_all_sizes(strict):
    program = exported(strict)
    check(program.module())
    check(program.run_decompositions().module())


def test_archives_keep_them():
    archive = io.BytesIO()
    fl.export.save(exported(), archive)
    archive.seek(0)
    check(fl.export.load(archive).module())


def test_packages_compute_them(tmp_path):
    aoti_compile_and_package(exported(), package_path=tmp_path / "scaled.pt2")
    check(aoti_load_package(tmp_path / "scaled.pt2"))
