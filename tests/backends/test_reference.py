"""The reference device against the CPU: the same programs on both, by independent kernels."""

import cmath
import math

import pytest

import flambeau as torch
import flambeau.backends.reference
from flambeau.backends import records

F = torch.nn.functional


def same(got, want, tolerance=2e-5):
    """Compare element by element in plain Python."""
    if isinstance(want, (tuple, list)):
        assert len(got) == len(want)
        for g, w in zip(got, want):
            same(g, w, tolerance)
        return
    if not isinstance(want, torch.Tensor):
        assert got == want
        return
    assert got.device.type == "ref" and got.dtype is want.dtype and got.shape == want.shape
    for g, w in zip(got.cpu().reshape(-1).tolist(), want.reshape(-1).tolist()):
        if w != w:
            assert g != g, (g, w)
        elif isinstance(w, complex) and not cmath.isfinite(w):
            assert not cmath.isfinite(g), (g, w)  # which of the infinities is a matter of the formula
        elif g != w:
            assert abs(g - w) <= tolerance * max(1, abs(w)), (g, w)


def on_ref(value):
    if isinstance(value, torch.Tensor):
        return value.to("ref")
    return type(value)(map(on_ref, value)) if isinstance(value, (list, tuple)) else value


def check(function, *args, tolerance=2e-5):
    same(function(*on_ref(args)), function(*args), tolerance)


VALUES = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, 3.7, -2.25, 0.1, 7.0, -7.5]


def sample(dtype, shape=(3, 4)):
    kind = records.dtype_class(dtype)
    values = VALUES[: math.prod(shape)]
    if kind == "b":
        values = [v > 0 for v in values]
    elif kind == "i":
        values = [abs(int(v)) + 1 for v in values]
    elif kind == "c":
        values = [complex(v, 1 - v / 2) for v in values]
    return torch.tensor(values, dtype=dtype).reshape(shape)


def pointwise_names():
    return sorted(n for n, r in records._all().items() if r.kind == "pointwise")


@pytest.mark.parametrize("dtype", ["float32", "int64", "bool", "complex64", "bfloat16"])
def test_every_pointwise_record(dtype):
    """Each record's expression evaluated here agrees with the kernel generated from it."""
    failures, tried = [], 0
    for name in pointwise_names():
        op = torch._C._operator_object(name)
        args = []
        for i, argument in enumerate(records.find(op).schema.args):
            if argument.name in records.find(op).details["mask"]:
                args.append(sample(torch.bool))
            elif argument.is_tensor:
                made = sample(getattr(torch, dtype))
                args.append(made if i == 0 else made.flip(0))
            elif argument.default is None:
                args.append(0.3 if dtype not in ("int64", "bool") else 2)
        try:
            want = op(*args)
        except (NotImplementedError, RuntimeError, TypeError):
            continue  # not defined for this dtype
        try:
            same(op(*on_ref(args)), want, 2e-2 if dtype == "bfloat16" else 2e-4 if dtype == "complex64" else 2e-5)
            tried += 1
        except NotImplementedError:
            pass  # a function that the reference device does not have
        except Exception as error:
            failures.append(f"{name}: {type(error).__name__} {error}"[:200])
    assert not failures, "\n".join(failures)
    assert tried > 20


@pytest.mark.parametrize("dtype", ["float32", "int64", "bool", "bfloat16"])
@pytest.mark.parametrize("name", ["sum", "prod", "amax", "amin", "any", "all", "mean", "count_nonzero", "nansum"])
def test_reductions(name, dtype):
    function = getattr(torch, name)
    if records.dtype_class(getattr(torch, dtype)) not in records._all()[name].details["dtypes"]:
        pytest.skip("not defined for the dtype")
    x = sample(getattr(torch, dtype), (2, 3, 2))
    tolerance = 2e-2 if dtype == "bfloat16" else 2e-5
    check(lambda x: function(x), x, tolerance=tolerance)
    check(lambda x: function(x, 1), x, tolerance=tolerance)
    if name not in ("count_nonzero",):
        check(lambda x: function(x, -1, keepdim=True), x, tolerance=tolerance)


X = torch.tensor(VALUES).reshape(3, 4)
IMAGE = torch.arange(2 * 2 * 5 * 6).reshape(2, 2, 5, 6).to(torch.float32) / 10
KERNEL = torch.arange(4 * 2 * 3 * 3).reshape(4, 2, 3, 3).to(torch.float32) / 20 - 1

PROGRAMS = {
    "broadcast": (lambda x: x + x[0] * x[:, :1], X),
    "strided": (lambda x: x.t() * 2 + x.t()[::2, 1:].sum(), X),
    "in_place": (lambda x: x.clone().mul_(2).add_(x), X),
    "setitem": (lambda x: _set(x.clone()), X),
    "cat": (lambda x: torch.cat([x, x * 2], 1), X),
    "stack": (lambda x: torch.stack([x, -x], 1), X),
    "where": (lambda x: torch.where(x > 0, x, -x), X),
    "matmul": (lambda x: x @ x.t(), X),
    "matmul_batch": (lambda x: torch.matmul(x.unsqueeze(0).expand(2, 3, 4), x.t()), X),
    "linear": (lambda x: F.linear(x, x, x[:, 0]), X),
    "addmm": (lambda x: torch.addmm(x[:, :3], x, x.t(), beta=2, alpha=0.5), X),
    "gather": (lambda x, i: torch.gather(x, 1, i), X, torch.tensor([[0, 1], [3, 2], [1, 1]])),
    "scatter": (lambda x, i: torch.scatter(x, 1, i, x * 10), X, torch.tensor([[0, 1], [3, 2], [1, 0]])),
    "scatter_add": (lambda x, i: torch.scatter_add(x, 1, i, x), X, torch.tensor([[0, 1], [3, 3], [1, 1]])),
    "index": (lambda x, i: x[i], X, torch.tensor([2, 0, -1])),
    "index_two": (lambda x, i: x[i, i], X, torch.tensor([[2, 0], [1, 1]])),
    "index_mask": (lambda x: x[x > 0], X),
    "index_put": (lambda x, i: _put(x.clone(), i), X, torch.tensor([2, 0])),
    "index_select": (lambda x, i: torch.index_select(x, 1, i), X, torch.tensor([3, 0, 0])),
    "masked_fill": (lambda x: x.masked_fill(x > 0, -1.0), X),
    "nonzero": (lambda x: torch.nonzero(x), X),
    "flip": (lambda x: x.flip(0, 1), X),
    "roll": (lambda x: x.roll(1, 1), X),
    "tril": (lambda x: torch.tril(x, 1), X),
    "triu": (lambda x: torch.triu(x), X),
    "pad": (lambda x: torch.constant_pad_nd(x, [1, 2, 0, 1], 5.0), X),
    "to_dtype": (lambda x: x.to(torch.float16).to(torch.int32), X),
    "reshape": (lambda x: x.t().reshape(2, 6).contiguous(), X),
    "factories": (lambda x: torch.zeros_like(x) + torch.ones_like(x) * torch.full_like(x, 3) + x.new_ones(4), X),
    "conv2d": (lambda x, k: F.conv2d(x, k, None, stride=2, padding=1), IMAGE, KERNEL),
    "conv2d_groups": (lambda x, k: F.conv2d(x, k[:, :1], None, dilation=2, groups=2), IMAGE, KERNEL),
    "conv_transpose2d": (lambda x, k: F.conv_transpose2d(x, k[:2], None, 2, 1, 1), IMAGE, KERNEL),
    "einsum": (lambda x: torch.einsum("ij,kj->ik", x, x), X),
    "softmax": (lambda x: torch.softmax(x, 1), X),
    "log_softmax": (lambda x: torch.log_softmax(x, 0), X),
    "max_dim": (lambda x: tuple(torch.max(x, 1)), X),
    "argmin": (lambda x: torch.argmin(x), X),
    "var": (lambda x: (torch.var(x), torch.std(x, 1)), X),
    "cumsum": (lambda x: torch.cumsum(x, 1), X),
    "sort": (lambda x: tuple(torch.sort(x, 1, descending=True)), X + torch.tensor(range(4)) / 100),
    "topk": (lambda x: tuple(torch.topk(x, 2)), X + torch.tensor(range(4)) / 100),
    "layer_norm": (lambda x: F.layer_norm(x, (4,)), X),
    "max_pool2d": (lambda x: F.max_pool2d(x, 2, 2, 1, return_indices=True), IMAGE),
    "avg_pool2d": (lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, count_include_pad=False), IMAGE),
    "adaptive_avg_pool2d": (lambda x: F.adaptive_avg_pool2d(x, (2, 3)), IMAGE),
    "batch_norm": (lambda x: F.batch_norm(x, None, None, training=True), IMAGE),
    "group_norm": (lambda x: F.group_norm(x, 2, x[0, :, 0, 0] + 1), IMAGE),
    "rms_norm": (lambda x: F.rms_norm(x, (4,)), X),
    "cross_entropy": (lambda x, t: F.cross_entropy(x, t), X, torch.tensor([1, 3, 0])),
    "nll_loss": (lambda x, t: F.nll_loss(x, t, reduction="none", ignore_index=3), X, torch.tensor([1, 3, 0])),
    "embedding": (lambda x, i: F.embedding(i, x), X, torch.tensor([[1, 0], [2, 2]])),
    "attention": (lambda x: F.scaled_dot_product_attention(x, x, x, is_causal=True), X.reshape(1, 1, 3, 4)),
    "kthvalue": (lambda x: tuple(torch.kthvalue(x, 2)), X + torch.tensor(range(4)) / 100),
    "cummax": (lambda x: tuple(torch.cummax(x, 1)), X),
    "norms": (lambda x: (x.norm(), torch.linalg.vector_norm(x, 1, dim=1), torch.linalg.vector_norm(x, math.inf)), X),
    "logsumexp": (lambda x: torch.logsumexp(x, 1), X),
    "any_all": (lambda x: ((x > 0).any(1), (x > -100).all(), torch.count_nonzero(x)), X),
    "repeat": (lambda x: x.repeat(2, 1).unsqueeze(0), X),
    "relu_gelu": (lambda x: F.relu(x) + F.gelu(x) + F.silu(x), X),
}


def _set(x):
    x[0] = 7
    x[:, 1] = x[:, 2]
    return x


def _put(x, index):
    x[index] = x[1].clone()  # PyTorch too refuses to read what it writes
    return x


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_agree_with_the_cpu(name):
    function, *args = PROGRAMS[name]
    check(function, *args, tolerance=1e-4)


# ---------------------------------------------------------------------------------------------- a device like others


def test_tensors_travel_and_print():
    x = torch.tensor([1.5, 2.5]).to("ref")
    assert x.device.type == "ref" and x.cpu().tolist() == [1.5, 2.5] and x.tolist() == [1.5, 2.5]
    assert repr(x) == "tensor([1.5000, 2.5000], device='ref')"
    assert x[1].item() == 2.5 and float(x[0]) == 1.5 and bool(x[0])
    assert torch.tensor([1, 2], device="ref").device.type == "ref"
    assert x.to("ref") is x


@pytest.mark.parametrize(
    "dtype",
    ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64", "complex64"],
)
def test_every_dtype_survives_the_trip(dtype):
    x = sample(getattr(torch, dtype))
    assert x.to("ref").cpu().tolist() == x.tolist()


def test_zero_dim_cpu_tensors_join_others_do_not():
    x = torch.ones(2).to("ref")
    assert (x + torch.tensor(2.0)).tolist() == [3, 3] and (torch.tensor(2.0) * x).tolist() == [2, 2]
    with pytest.raises(RuntimeError, match="one device"):
        x + torch.ones(2)
    with pytest.raises(RuntimeError, match="one device"):
        torch.mm(torch.ones(2, 2).to("ref"), torch.ones(2, 2))


def test_views_share_memory_on_the_device():
    x = torch.zeros(4).to("ref")
    x.view(2, 2)[1].fill_(3)
    assert x.tolist() == [0, 0, 3, 3]


def test_empty_tensors():
    x = torch.empty(0, 3, device="ref")
    assert (x + 1).shape == (0, 3) and torch.cat([x, torch.ones(1, 3, device="ref")]).shape == (1, 3)


def test_errors_are_those_of_the_operator():
    x = torch.ones(2, 3).to("ref")
    with pytest.raises(RuntimeError):
        torch.mm(x, x)
    with pytest.raises(RuntimeError):
        x + torch.ones(4).to("ref")
    with pytest.raises((IndexError, RuntimeError)):
        torch.gather(x, 1, torch.tensor([[5]]).to("ref"))


def test_an_operator_without_kernel_or_definition_says_so():
    with pytest.raises(NotImplementedError, match="ref"):
        torch.special.bessel_j0(torch.ones(1).to("ref"))


def test_gradients_flow_through_the_device():
    weight = torch.tensor(VALUES).reshape(3, 4)

    def loss_and_grads(device):
        w = weight.to(device).requires_grad_()
        y = F.relu(w * 2 + 1) * torch.sigmoid(w)
        y.backward((weight * 0.5).to(device))
        return y.detach(), w.grad

    same(loss_and_grads("ref"), loss_and_grads("cpu"), 1e-4)
