"""Printing of tensors: the expected texts are PyTorch's."""

from math import inf, nan  # noqa: F401  used by the sources below

import pytest

import flambeau as torch

# Dtypes print under the library's own name.
CASES = [
    ("torch.tensor(3)", "tensor(3)"),
    ("torch.tensor(2.5)", "tensor(2.5000)"),
    ("torch.tensor(True)", "tensor(True)"),
    ("torch.tensor([])", "tensor([])"),
    ("torch.zeros(0, 3)", "tensor([], size=(0, 3))"),
    ("torch.zeros(0, dtype=torch.int64)", "tensor([], dtype=flambeau.int64)"),
    ("torch.arange(6).reshape(2, 3)", "tensor([[0, 1, 2],\n        [3, 4, 5]])"),
    ("torch.tensor([1.0, 2.0, 300.0])", "tensor([  1.,   2., 300.])"),
    ("torch.tensor([1.5, -2.25, 0.0])", "tensor([ 1.5000, -2.2500,  0.0000])"),
    ("torch.tensor([0.00001, 1.0])", "tensor([1.0000e-05, 1.0000e+00])"),
    ("torch.tensor([1.0, 12345.678])", "tensor([1.0000e+00, 1.2346e+04])"),
    ("torch.tensor([inf, -inf, nan, 1.0])", "tensor([inf, -inf, nan, 1.])"),
    ("torch.tensor([nan, 0.5])", "tensor([   nan, 0.5000])"),
    ("torch.tensor([0.0, -0.0])", "tensor([0., -0.])"),
    ("torch.tensor([1e9, 1.0])", "tensor([1.0000e+09, 1.0000e+00])"),
    ("torch.tensor([1, 2], dtype=torch.int8)", "tensor([1, 2], dtype=flambeau.int8)"),
    ("torch.tensor([1.0, 0.1], dtype=torch.float64)", "tensor([1.0000, 0.1000], dtype=flambeau.float64)"),
    ("torch.tensor([1.0, 0.1], dtype=torch.bfloat16)", "tensor([1.0000, 0.1001], dtype=flambeau.bfloat16)"),
    ("torch.tensor([1.0, 0.1], dtype=torch.float16)", "tensor([1.0000, 0.1000], dtype=flambeau.float16)"),
    ("torch.tensor([True, False])", "tensor([ True, False])"),
    ("torch.tensor([1 + 2j, 0.5 - 1j])", "tensor([1.0000+2.j, 0.5000-1.j])"),
    ("torch.tensor([1 + 2j], dtype=torch.complex128)", "tensor([1.+2.j], dtype=flambeau.complex128)"),
    ("torch.arange(2000)", "tensor([   0,    1,    2,  ..., 1997, 1998, 1999])"),
    (
        "torch.arange(24.0).reshape(2, 3, 4)",
        "tensor([[[ 0.,  1.,  2.,  3.],\n"
        "         [ 4.,  5.,  6.,  7.],\n"
        "         [ 8.,  9., 10., 11.]],\n"
        "\n"
        "        [[12., 13., 14., 15.],\n"
        "         [16., 17., 18., 19.],\n"
        "         [20., 21., 22., 23.]]])",
    ),
    (
        "torch.arange(30) * 1001",
        "tensor([    0,  1001,  2002,  3003,  4004,  5005,  6006,  7007,  8008,  9009,\n"
        "        10010, 11011, 12012, 13013, 14014, 15015, 16016, 17017, 18018, 19019,\n"
        "        20020, 21021, 22022, 23023, 24024, 25025, 26026, 27027, 28028, 29029])",
    ),
    ('torch.empty(2, 3, device="meta")', "tensor(..., device='meta', size=(2, 3))"),
    ('torch.empty(2, dtype=torch.int32, device="meta")', "tensor(..., device='meta', size=(2,), dtype=flambeau.int32)"),
    ("torch.tensor([1.0], requires_grad=True)", "tensor([1.], requires_grad=True)"),
    (
        "torch.arange(20000.0).reshape(100, 200)",
        "tensor([[0.0000e+00, 1.0000e+00, 2.0000e+00,  ..., 1.9700e+02, 1.9800e+02,\n"
        "         1.9900e+02],\n"
        "        [2.0000e+02, 2.0100e+02, 2.0200e+02,  ..., 3.9700e+02, 3.9800e+02,\n"
        "         3.9900e+02],\n"
        "        [4.0000e+02, 4.0100e+02, 4.0200e+02,  ..., 5.9700e+02, 5.9800e+02,\n"
        "         5.9900e+02],\n"
        "        ...,\n"
        "        [1.9400e+04, 1.9401e+04, 1.9402e+04,  ..., 1.9597e+04, 1.9598e+04,\n"
        "         1.9599e+04],\n"
        "        [1.9600e+04, 1.9601e+04, 1.9602e+04,  ..., 1.9797e+04, 1.9798e+04,\n"
        "         1.9799e+04],\n"
        "        [1.9800e+04, 1.9801e+04, 1.9802e+04,  ..., 1.9997e+04, 1.9998e+04,\n"
        "         1.9999e+04]])",
    ),
    (
        "torch.arange(20000).reshape(10, 10, 200)",
        "tensor([[[    0,     1,     2,  ...,   197,   198,   199],\n"
        "         [  200,   201,   202,  ...,   397,   398,   399],\n"
        "         [  400,   401,   402,  ...,   597,   598,   599],\n"
        "         ...,\n"
        "         [ 1400,  1401,  1402,  ...,  1597,  1598,  1599],\n"
        "         [ 1600,  1601,  1602,  ...,  1797,  1798,  1799],\n"
        "         [ 1800,  1801,  1802,  ...,  1997,  1998,  1999]],\n"
        "\n"
        "        [[ 2000,  2001,  2002,  ...,  2197,  2198,  2199],\n"
        "         [ 2200,  2201,  2202,  ...,  2397,  2398,  2399],\n"
        "         [ 2400,  2401,  2402,  ...,  2597,  2598,  2599],\n"
        "         ...,\n"
        "         [ 3400,  3401,  3402,  ...,  3597,  3598,  3599],\n"
        "         [ 3600,  3601,  3602,  ...,  3797,  3798,  3799],\n"
        "         [ 3800,  3801,  3802,  ...,  3997,  3998,  3999]],\n"
        "\n"
        "        [[ 4000,  4001,  4002,  ...,  4197,  4198,  4199],\n"
        "         [ 4200,  4201,  4202,  ...,  4397,  4398,  4399],\n"
        "         [ 4400,  4401,  4402,  ...,  4597,  4598,  4599],\n"
        "         ...,\n"
        "         [ 5400,  5401,  5402,  ...,  5597,  5598,  5599],\n"
        "         [ 5600,  5601,  5602,  ...,  5797,  5798,  5799],\n"
        "         [ 5800,  5801,  5802,  ...,  5997,  5998,  5999]],\n"
        "\n"
        "        ...,\n"
        "\n"
        "        [[14000, 14001, 14002,  ..., 14197, 14198, 14199],\n"
        "         [14200, 14201, 14202,  ..., 14397, 14398, 14399],\n"
        "         [14400, 14401, 14402,  ..., 14597, 14598, 14599],\n"
        "         ...,\n"
        "         [15400, 15401, 15402,  ..., 15597, 15598, 15599],\n"
        "         [15600, 15601, 15602,  ..., 15797, 15798, 15799],\n"
        "         [15800, 15801, 15802,  ..., 15997, 15998, 15999]],\n"
        "\n"
        "        [[16000, 16001, 16002,  ..., 16197, 16198, 16199],\n"
        "         [16200, 16201, 16202,  ..., 16397, 16398, 16399],\n"
        "         [16400, 16401, 16402,  ..., 16597, 16598, 16599],\n"
        "         ...,\n"
        "         [17400, 17401, 17402,  ..., 17597, 17598, 17599],\n"
        "         [17600, 17601, 17602,  ..., 17797, 17798, 17799],\n"
        "         [17800, 17801, 17802,  ..., 17997, 17998, 17999]],\n"
        "\n"
        "        [[18000, 18001, 18002,  ..., 18197, 18198, 18199],\n"
        "         [18200, 18201, 18202,  ..., 18397, 18398, 18399],\n"
        "         [18400, 18401, 18402,  ..., 18597, 18598, 18599],\n"
        "         ...,\n"
        "         [19400, 19401, 19402,  ..., 19597, 19598, 19599],\n"
        "         [19600, 19601, 19602,  ..., 19797, 19798, 19799],\n"
        "         [19800, 19801, 19802,  ..., 19997, 19998, 19999]]])",
    ),
]


def text(tensor):
    """The tensor's text, whatever name the library gives its dtypes."""
    return repr(tensor).replace(f"dtype={str(torch.int64).split('.')[0]}.", "dtype=flambeau.")


@pytest.fixture(autouse=True)
def default_options():
    yield
    torch.set_printoptions(profile="default")


@pytest.mark.parametrize("source, expected", CASES, ids=[source for source, _ in CASES])
def test_text(source, expected):
    assert text(eval(source)) == expected


OPTIONS = [
    ("precision=2", "torch.tensor([1.234, 5.0])", "tensor([1.23, 5.00])"),
    ("sci_mode=True", "torch.tensor([1.5, 250.0])", "tensor([1.5000e+00, 2.5000e+02])"),
    ("sci_mode=False", "torch.tensor([1e-6, 1.0])", "tensor([0.0000, 1.0000])"),
    ("linewidth=20", "torch.arange(8)", "tensor([0, 1, 2, 3,\n        4, 5, 6, 7])"),
    (
        "threshold=5, edgeitems=1",
        "torch.arange(12).reshape(3, 4)",
        "tensor([[ 0,  ...,  3],\n        ...,\n        [ 8,  ..., 11]])",
    ),
    ("profile='short'", "torch.arange(2000.0) / 7", "tensor([0.00e+00, 1.43e-01,  ..., 2.85e+02, 2.86e+02])"),
    ("edgeitems=0, threshold=5", "torch.arange(9)", "tensor([...], size=(9,))"),
]


@pytest.mark.parametrize("options, source, expected", OPTIONS, ids=[options for options, *_ in OPTIONS])
def test_options(options, source, expected):
    torch.set_printoptions(**eval(f"dict({options})"))
    assert text(eval(source)) == expected


def test_default_profile_restores_everything():
    torch.set_printoptions(precision=1, threshold=1, edgeitems=1, linewidth=10, sci_mode=True)
    torch.set_printoptions(profile="default")
    assert text(torch.tensor([1.5, 2.0])) == "tensor([1.5000, 2.0000])"


def test_a_huge_tensor_is_not_converted_as_a_whole():
    # An expanded tensor of 10^16 elements has one in memory; converting it would never end.
    assert text(torch.zeros(1, 1).expand(10**8, 10**8)).count("...") == 7


def test_default_dtype_is_not_written():
    torch.set_default_dtype(torch.float64)
    try:
        assert text(torch.tensor([1.0])) == "tensor([1.])"
        assert text(torch.tensor([1.0], dtype=torch.float32)) == "tensor([1.], dtype=flambeau.float32)"
    finally:
        torch.set_default_dtype(torch.float32)
