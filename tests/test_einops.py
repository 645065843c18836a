"""einops takes tensors of flambeau without the alias, in whatever order the two are imported."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("einops")

PROGRAM = """
{imports}
import numpy as np
x = flambeau.arange(24.0).reshape(2, 3, 4)
y = x.numpy()
for pattern, sizes in [("a b c -> c (a b)", {{}}), ("a (b d) c -> d a b c", {{"d": 3}}), ("a b c -> a b c 1", {{}})]:
    ours = einops.rearrange(x, pattern, **sizes)
    assert type(ours) is flambeau.Tensor and np.array_equal(ours.numpy(), einops.rearrange(y, pattern, **sizes)), pattern
for how in ("sum", "mean", "min", "max", "prod"):
    assert np.allclose(einops.reduce(x, "a b c -> b", how).numpy(), einops.reduce(y, "a b c -> b", how)), how
assert einops.repeat(x, "a b c -> a b c r", r=5).shape == (2, 3, 4, 5)
assert np.allclose(einops.einsum(x, x, "a b c, a d c -> a b d").numpy(), np.einsum("abc,adc->abd", y, y))
packed, shapes = einops.pack([x, x[0]], "* b c")
assert packed.shape == (3, 3, 4) and einops.unpack(packed, shapes, "* b c")[1].shape == (3, 4)
assert not any(name == "torch" or name.startswith("torch.") for name in __import__("sys").modules)
"""


@pytest.mark.parametrize(
    "imports", ["import flambeau, einops", "import einops; einops.rearrange; import flambeau"], ids=["first", "second"]
)
def test_einops_without_the_alias(imports):
    subprocess.run([sys.executable, "-c", PROGRAM.format(imports=imports)], check=True, timeout=120)
