"""Products with weights of eight and four bits on the device, beside double precision on the CPU."""

from __future__ import annotations

import pytest

import flambeau as fl

DTYPES = pytest.mark.parametrize("dtype", [fl.bfloat16, fl.float16, fl.float32], ids=str)
TOLERANCES = {fl.float32: 2e-5, fl.bfloat16: 1e-2, fl.float16: 2e-3}
ROWS = (1, 3, 8, 9, 16, 40)


def assert_near(actual: fl.Tensor, expected: fl.Tensor, dtype: fl.dtype) -> None:
    assert actual.dtype == dtype and actual.shape == expected.shape and actual.is_cuda
    assert (actual.cpu().double() - expected).abs().max() <= TOLERANCES[dtype] * expected.abs().max()


@DTYPES
@pytest.mark.parametrize(("n", "k"), [(16, 64), (70, 192), (70, 130), (256, 4096)])
def test_weights_of_eight_bits(dtype: fl.dtype, n: int, k: int) -> None:
    weight, scales = fl.randint(-128, 128, (n, k)).to(fl.int8), fl.rand(n).to(dtype)
    for m in ROWS:
        x = fl.randn(m, k).to(dtype)
        expected = (x.double() @ weight.double().t()) * scales.double()
        assert_near(fl._ops._weight_int8pack_mm(x.cuda(), weight.cuda(), scales.cuda()), expected, dtype)


@DTYPES
@pytest.mark.parametrize(
    ("n", "k", "group"), [(16, 32, 32), (64, 1024, 32), (80, 96, 64), (48, 384, 64), (208, 2048, 128), (32, 256, 256)]
)
def test_weights_of_four_bits(dtype: fl.dtype, n: int, k: int, group: int) -> None:
    numbers = fl.randint(0, 16, (n, k)).int()
    packed = fl._ops._convert_weight_to_int4pack_for_cpu(numbers, 2)
    assert fl.equal(fl._ops._convert_weight_to_int4pack_for_cpu(numbers.cuda(), 2).cpu(), packed)
    grids = (fl.rand(-(-k // group), n, 2) * 0.1).to(dtype)
    scales, zeros = (grids.double().repeat_interleave(group, 0)[:k, :, i].t() for i in (0, 1))
    values = (numbers.double() - 8) * scales + zeros
    for m in ROWS:
        x = fl.randn(m, k).to(dtype)
        actual = fl._ops._weight_int4pack_mm_for_cpu(x.cuda(), packed.cuda(), group, grids.cuda())
        assert_near(actual, x.double() @ values.t(), dtype)


@pytest.mark.parametrize("name", ["Int8WeightOnlyConfig", "Int4WeightOnlyConfig"])
def test_quantized_layers_compute_what_they_do_on_the_cpu(name: str) -> None:
    from flambeau.ao.torchao import quantization

    fl.manual_seed(0)
    model = fl.nn.Sequential(fl.nn.Linear(256, 512), fl.nn.SiLU(), fl.nn.Linear(512, 128)).bfloat16()
    quantization.quantize_(model, getattr(quantization, name)())
    x = fl.randn(4, 256).bfloat16()
    expected = model(x)
    moved = model.cuda()
    for run in (moved, fl.compile(moved)):
        fl.testing.assert_close(run(x.cuda()).cpu(), expected, rtol=2e-2, atol=2e-2)


def test_mistakes_are_refused() -> None:
    packed = fl.zeros(16, 16, dtype=fl.uint8, device="cuda")
    with pytest.raises(RuntimeError, match=r"scales and zeros of shape \(1, 16, 2\)"):
        fl._ops._weight_int4pack_mm_for_cpu(
            fl.zeros(1, 32, device="cuda"), packed, 32, fl.zeros(2, 16, 2, device="cuda")
        )
    with pytest.raises(RuntimeError, match="as many features"):
        fl._ops._weight_int8pack_mm(
            fl.zeros(1, 32, device="cuda"), fl.zeros(4, 31, dtype=fl.int8, device="cuda"), fl.zeros(4, device="cuda")
        )
