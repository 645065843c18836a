# ruff: noqa
"""Tensor attributes, methods, creation, dtypes, views, in-place operators."""

import operator

import flambeau as fl
import flambeau.nn.functional as F

from . import T, program, t


@program(t(3, 4))
def attributes(x):
    return x.shape, x.dtype, x.device, x.ndim, x.requires_grad, x.is_leaf, x.T.shape, x.layout, x.itemsize, x.is_cuda


@program(t(3, 4))
def queries(x):
    return (
        x.size(),
        x.size(0),
        x.dim(),
        x.numel(),
        x.stride(),
        x.is_contiguous(),
        x.is_floating_point(),
        x.element_size(),
        x.nelement(),
    )


@program(t(3, 4))
def functions_of_tensors(x):
    return fl.is_tensor(x), fl.numel(x), fl.is_floating_point(x), len(x), isinstance(x, fl.Tensor), type(x) is fl.Tensor


@program(t(3, 4))
def arithmetic(x):
    return x + 1, 1 - x, x * x, x / 2, 2 / x, x // 2, x % 2, x**2, -x, +x, abs(x), x @ x.T, 2**x


@program(t(3))
def comparisons(x):
    return (
        x > 1,
        x < 1,
        x >= 1,
        x <= 1,
        x == 1,
        x != 1,
        (x > 0) & (x < 2),
        (x > 0) | (x < -5),
        ~(x > 0),
        (x > 0) ^ (x > 1),
    )


@program(t(3))
def compare_with_none(x):
    return x is None, x is not None


@program(lambda: T(4).to(fl.int64))
def integer_operators(x):
    return x << 1, x >> 1, x & 3, x | 4, x ^ 1, x // 2, x % 3


@program(t(2, 3))
def views(x):
    return (
        x.view(3, 2),
        x.reshape(-1),
        x.t(),
        x.permute(1, 0),
        x.transpose(0, 1),
        x.unsqueeze(0),
        x.flatten(),
        x.expand(2, 2, 3),
        x[None],
    )


@program(t(1, 3))
def squeeze(x):
    return x.squeeze(), x.squeeze(0), x.unsqueeze(-1).squeeze(-1)


@program(t(2, 3))
def reductions(x):
    return (
        x.sum(),
        x.mean(0),
        x.max(),
        x.min(dim=1),
        x.std(),
        x.var(0),
        x.prod(),
        x.argmax(),
        x.norm(),
        x.any(),
        x.all(),
        x.cumsum(0),
    )


@program(t(2, 3))
def keyword_reductions(x):
    return fl.sum(x, dim=1, keepdim=True), x.mean(dim=(0, 1)), x.amax(dim=-1), fl.logsumexp(x, dim=0)


@program(t(3))
def creation(x):
    return (
        fl.zeros(3) + x,
        fl.ones(3, dtype=fl.float64),
        fl.arange(3),
        fl.full((2,), 3.5),
        fl.eye(2),
        fl.linspace(0, 1, 3),
        fl.tensor([1.0, 2.0, 3.0]) * x,
    )


@program(t(3))
def creation_like(x):
    return (
        fl.zeros_like(x),
        fl.ones_like(x) * x,
        fl.full_like(x, 2),
        x.new_zeros(2),
        x.new_ones(3),
        fl.empty_like(x).shape,
        x.new_full((2,), 3),
    )


@program(t(3))
def creation_with_device(x):
    return fl.arange(x.shape[0], device=x.device) * x, fl.zeros(2, device="cpu", dtype=x.dtype)


@program(t(3))
def scalar_tensor(x):
    s = fl.tensor(2.5)
    return x * s, s.dtype, s.ndim


@program(t(3))
def dtype_conversion(x):
    return (
        x.to(fl.float64),
        x.int(),
        x.long(),
        x.half(),
        x.bool(),
        x.double().float(),
        x.type(fl.float16),
        x.to(x),
        x.to("cpu"),
    )


@program(t(3))
def to_same(x):
    return x.to(fl.float32) is x, x.float() is x, x.contiguous() is x


@program(lambda: T(3).to(fl.int64), t(3))
def promotion(i, f):
    return i + f, i / 2, i * 2.5, fl.result_type(i, f), fl.promote_types(fl.int32, fl.float16)


@program(t(3, 4))
def inplace_methods(x):
    y = x.clone()
    y.add_(1).mul_(2)
    y.relu_()
    y.clamp_(max=5)
    return y


@program(t(3))
def inplace_view(x):
    y = x.clone()
    v = y[1:]
    v += 10
    return y


@program(t(3))
def inplace_on_input_view(x):
    x[1:].mul_(3)
    return x.sum()


@program(t(3), t(3))
def copy_into_argument(x, y):
    y.copy_(x * 2)
    return y + 1


@program(t(3))
def zero_and_fill(x):
    y = fl.empty(3)
    y.zero_()
    z = fl.empty(2).fill_(4)
    return y, z


@program(t(3))
def out_argument(x):
    out = fl.empty(3)
    fl.add(x, 1, out=out)
    return out


@program(t(4, 4))
def boolean_mask_assign(x):
    y = x.clone()
    y[y > 2] = 0
    return y


@program(t(4, 4))
def where_and_masks(x):
    return fl.where(x > 0, x, -x), x.masked_fill(x < 0, 7), fl.tril(x), fl.triu(x, 1), x.clamp(-1, 1)


@program(t(4, 4))
def gather_scatter(x):
    i = fl.tensor([[0, 1], [2, 3]])
    return (
        x.gather(0, i),
        x.scatter(0, i, 9.0),
        x.index_select(1, fl.tensor([0, 2])),
        fl.take_along_dim(x, fl.tensor([[0], [1], [2], [3]]), 1),
    )


@program(t(2, 3), t(2, 3))
def joining(x, y):
    return fl.cat([x, y]), fl.cat((x, y), dim=1), fl.stack([x, y], 1), fl.hstack([x, y]), fl.vstack((x, y))


@program(t(4, 6))
def splitting(x):
    return x.split(2), x.chunk(3, dim=1), fl.unbind(x), x.tensor_split(3, dim=1), x.split([1, 3])


@program(t(2, 3), t(3, 2))
def products(x, y):
    return x @ y, fl.mm(x, y), fl.matmul(x, y), fl.einsum("ij,jk->ik", x, y), x.mv(y[:, 0]), fl.bmm(x[None], y[None])


@program(t(2, 3))
def sorting(x):
    return x.sort(), x.argsort(dim=0), x.topk(2, dim=1), x.flip(0), x.roll(1, 0)


@program(t(2, 3))
def activations(x):
    return (
        fl.sigmoid(x),
        x.tanh(),
        F.silu(x),
        F.leaky_relu(x, 0.1),
        F.elu(x),
        F.softplus(x),
        F.log_softmax(x, -1),
        F.hardtanh(x),
    )


@program(t(2, 3))
def iterate_rows(x):
    return [row * i for i, row in enumerate(x)]


@program(t(2, 3))
def zip_rows(x):
    return [a + b for a, b in zip(x, x * 2)]


@program(t(2, 3))
def star_rows(x):
    first, *rest = x
    return first, rest


@program(t(3))
def method_by_name(x):
    return getattr(x, "sin")(), getattr(fl, "cos")(x), fl.Tensor.exp(x), fl.Tensor.__add__(x, 1)


@program(t(3))
def operator_functions(x):
    return operator.add(x, 1), operator.mul(x, x), operator.neg(x), operator.getitem(x, 0), operator.truediv(x, 2)


@program(t(3))
def function_table(x):
    table = {"sin": fl.sin, "cos": fl.cos, "neg": operator.neg}
    return [f(x) for f in table.values()]


@program(lambda: T(3).requires_grad_())
def detach(x):
    return x.detach() * 2, (x * 2).detach().requires_grad, x.data + 1


@program(lambda: T(3).requires_grad_())
def requires_grad_flows(x):
    y = x * 2
    return y.requires_grad, y.is_leaf, y


@program(t(3), t(3))
def same_tensor_twice(x, y):
    return x + y, x is y


@program(lambda: (lambda a: (a, a))(T(3)))
def aliased_tensors(pair):
    return pair[0] + pair[1], pair[0] is pair[1]


@program(lambda: (lambda a: [a, a[1:]])(T(3)))
def view_of_other_argument(pair):
    a, b = pair
    b.add_(1)
    return a * 2


@program(t(3))
def returned_argument(x):
    return x, (x,), [x]


@program(t(3))
def returned_view(x):
    return x[1:], x.view(3, 1)


@program(t(3))
def unused_results(x):
    x.sin()
    x + 1
    return x


@program(t(2, 3))
def size_arithmetic(x):
    n = x.size(0) * x.size(1)
    return (
        x.reshape(n),
        n,
        x.shape[0] + 1,
        x.shape[-1] // 2,
        x.numel() == 6,
        tuple(x.shape),
        list(x.shape),
        x.shape + (1,),
    )


@program(t(2, 3))
def size_object(x):
    s = x.size()
    return s[0], s[-1], s[:1], len(s), s.numel(), s == (2, 3), fl.Size([2, 3]), 3 in s, [*s]


@program(t(2, 3))
def shape_unpack(x):
    rows, columns = x.shape
    return fl.zeros(columns, rows) + x.t(), rows * columns, f"{rows}-{columns}"


@program(t(2, 3))
def shape_prod(x):
    n = 1
    for s in x.shape:
        n *= s
    return x.view(n), max(x.shape), min(x.shape), sum(x.shape), sorted(x.shape)


@program(t(5))
def slice_by_size(x):
    half = x.shape[0] // 2
    return x[:half], x[half:], x[-half:], x[: x.shape[0] - 1]


@program(t(3))
def random_shapes(x):
    return fl.rand(3).shape, fl.randn(2, x.shape[0]).shape, fl.rand_like(x).dtype


@program(t(3))
def seeded_random(x):
    return x


@program(t(3), breaks=True)
def item(x):
    return x.sum().item() + 1


@program(t(3), breaks=True)
def tolist(x):
    return (x * 2).tolist()


@program(t(3), breaks=True)
def to_int(x):
    n = int(x[0])
    return x * n, float(x[1]), bool(x[0] > 0)


@program(t(3), breaks=True)
def nonzero(x):
    return (x > 0).nonzero(), x + 1


@program(t(3), breaks=True)
def boolean_index(x):
    return x[x > 0] * 2


@program(t(3))
def numpy_roundtrip(x):
    a = (x * 2).numpy()
    return fl.from_numpy(a + 1)


@program(t(3), breaks=True)
def equal(x):
    return fl.equal(x, x + 0), fl.allclose(x, x)


@program(lambda: T(3).requires_grad_())
def backward(x):
    y = (x * x).sum()
    y.backward()
    return x.grad * 2


@program(t(3))
def set_requires_grad(x):
    y = x.clone().requires_grad_()
    (y * y).sum().backward()
    return y.grad


@program(t(2, 3))
def store_requires_grad(x):
    y = x[:, None]
    y.requires_grad = True
    z = y * y
    z.requires_grad = True
    z.sum().backward()
    return y.grad, y.requires_grad, x.requires_grad


@program(t(3))
def autograd_grad(x):
    y = x.clone().requires_grad_()
    (g,) = fl.autograd.grad((y * y).sum(), y)
    return g + 1


@program(t(3), breaks=True)
def manual_seed(x):
    fl.manual_seed(3)
    return fl.randn(3) + x


@program(t(3), breaks=True)
def index_with_item(x):
    i = x.argmax().item()
    return x[i], [10, 20, 30][i]


@program(t(3), breaks=True)
def format_tensor(x):
    return f"{x.sum():.2f}", str(x)
