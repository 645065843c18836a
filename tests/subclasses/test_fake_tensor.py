"""Fake tensors: sizes, strides, dtypes and devices without data, for symbolic sizes as for plain ones.

Each function below is run on fakes whose sizes are all symbolic, and the answer is compared with the meta kernels: at the
sizes it was made for, and at other sizes under the guards that were recorded.
"""

import inspect

import pytest

import flambeau as fl
from flambeau._subclasses import DataDependentOutput, DynamicOutputShapeException, FakeTensor, FakeTensorMode
from flambeau.ops.rules import shape as shapes
from flambeau.ops.symbolic import ShapeEnv, evaluate, expr_of, hint_of

F = fl.nn.functional


def attention(x):
    batch, time, width = x.shape
    q, k, v = (t.reshape(batch, time, 2, width // 2).transpose(1, 2) for t in (x, x, x))
    return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(batch, time, width)


# function, sizes of its arguments, other sizes at which the same trace must serve
CASES = {
    "add": (lambda x, y: x + y, [(3, 4), (3, 4)], [(5, 1), (5, 1)]),
    "broadcast": (lambda x, y: x * y[:, None], [(3, 4), (3,)], [(7, 2), (7,)]),
    "where": (lambda x: fl.where(x > 0, x, 0.0), [(3, 4)], [(0, 4)]),
    "gelu": (F.gelu, [(3, 4)], [(1, 1)]),
    "sum": (lambda x: x.sum(1, keepdim=True), [(3, 4, 5)], [(1, 1, 1)]),
    "mean of several": (lambda x: x.mean((0, 2)), [(3, 4, 5)], [(6, 2, 8)]),
    "argmax": (lambda x: x.argmax(-1), [(3, 4)], [(9, 9)]),
    "max with places": (lambda x: x.max(1), [(3, 4)], [(9, 9)]),
    "var_mean": (lambda x: fl.var_mean(x, 0), [(3, 4)], [(9, 9)]),
    "mm": (lambda x, y: x @ y, [(3, 4), (4, 5)], [(1, 6), (6, 2)]),
    "batched matmul": (lambda x, y: fl.matmul(x, y), [(2, 3, 4), (4, 5)], [(7, 1, 6), (6, 2)]),
    "addmm": (fl.addmm, [(5,), (3, 4), (4, 5)], [(2,), (1, 6), (6, 2)]),
    "linear": (F.linear, [(2, 3, 4), (5, 4), (5,)], [(1, 1, 8), (3, 8), (3,)]),
    "einsum": (lambda x, y: fl.einsum("bij,bjk->bik", x, y), [(2, 3, 4), (2, 4, 5)], [(1, 2, 6), (1, 6, 1)]),
    "view with -1": (lambda x: x.view(-1, x.shape[-1]), [(2, 3, 4)], [(5, 1, 7)]),
    "reshape of a transpose": (lambda x: x.transpose(0, 1).reshape(-1), [(3, 4)], [(5, 2)]),
    "flatten": (lambda x: x.flatten(1), [(2, 3, 4)], [(5, 1, 7)]),
    "unflatten": (lambda x: x.unflatten(1, (2, -1)), [(3, 4)], [(3, 8)]),
    "permute": (lambda x: x.permute(2, 0, 1), [(2, 3, 4)], [(5, 1, 7)]),
    "expand": (lambda x: x[:, None].expand(-1, 3, -1), [(2, 4)], [(5, 7)]),
    "select and slice": (lambda x: x[:, -1, 1:], [(2, 3, 4)], [(5, 2, 7)]),
    "strided slice": (lambda x: x[::2], [(5,)], [(8,)]),
    "squeeze of a known one": (lambda x: x.unsqueeze(1).squeeze(1), [(2, 4)], [(5, 7)]),
    "split": (lambda x: x.split(2, 1), [(3, 4)], [(6, 4)]),
    "chunk": (lambda x: x.chunk(2, -1), [(3, 4)], [(6, 8)]),
    "unbind": (lambda x: fl.stack([x, x]).unbind(0), [(3, 4)], [(6, 8)]),
    "diagonal": (lambda x: x.diagonal(), [(3, 4)], [(8, 6)]),
    "unfold": (lambda x: x.unfold(0, 2, 1), [(5,)], [(9,)]),
    "cat": (lambda x, y: fl.cat([x, y], 1), [(3, 4), (3, 2)], [(6, 1), (6, 5)]),
    "stack": (lambda x: fl.stack([x, x], 1), [(3, 4)], [(6, 1)]),
    "pad": (lambda x: F.pad(x, (1, 2)), [(3, 4)], [(6, 1)]),
    "repeat": (lambda x: x.repeat(2, 3), [(3, 4)], [(6, 1)]),
    "conv2d": (
        lambda x, w: F.conv2d(x, w, stride=2, padding=1),
        [(2, 3, 8, 9), (4, 3, 3, 3)],
        [(1, 5, 11, 6), (2, 5, 3, 3)],
    ),
    "conv_transpose1d": (
        lambda x, w: F.conv_transpose1d(x, w, stride=2),
        [(2, 3, 8), (3, 4, 3)],
        [(1, 5, 6), (5, 2, 3)],
    ),
    "max_pool2d": (lambda x: F.max_pool2d(x, 3, 2, 1), [(2, 3, 8, 9)], [(1, 5, 11, 6)]),
    "avg_pool2d rounding up": (lambda x: F.avg_pool2d(x, 2, ceil_mode=True), [(2, 3, 8, 9)], [(1, 5, 10, 7)]),
    "adaptive_avg_pool2d": (lambda x: F.adaptive_avg_pool2d(x, (1, 2)), [(2, 3, 8, 9)], [(1, 5, 10, 7)]),
    "interpolate": (lambda x: F.interpolate(x, scale_factor=2), [(2, 3, 4, 5)], [(1, 2, 8, 3)]),
    "softmax": (lambda x: x.softmax(-1), [(3, 4)], [(6, 1)]),
    "layer_norm": (lambda x: F.layer_norm(x, x.shape[-1:]), [(3, 4)], [(6, 2)]),
    "batch_norm": (lambda x, m, v: F.batch_norm(x, m, v), [(2, 3, 4), (3,), (3,)], [(3, 5, 2), (5,), (5,)]),
    "group_norm": (lambda x: F.group_norm(x, 2), [(2, 4, 3)], [(3, 6, 5)]),
    "attention": (attention, [(2, 3, 8)], [(5, 7, 8)]),
    "embedding": (lambda i, w: F.embedding(i.long(), w), [(2, 3), (9, 4)], [(1, 7), (5, 2)]),
    "gather": (lambda x: x.gather(1, x.argsort(1)), [(3, 4)], [(6, 2)]),
    "index": (lambda x: x[x.argmax(0)], [(3, 4)], [(6, 2)]),
    "scatter": (lambda x: fl.zeros_like(x).scatter_(1, x.argmax(1, keepdim=True), 1.0), [(3, 4)], [(6, 2)]),
    "topk": (lambda x: x.topk(2), [(3, 4)], [(6, 2)]),
    "sort": (lambda x: x.sort(), [(3, 4)], [(6, 2)]),
    "cross_entropy": (lambda x: F.cross_entropy(x, x.argmax(1), reduction="none"), [(3, 4)], [(6, 2)]),
    "dropout": (lambda x: F.dropout(x, 0.5), [(3, 4)], [(6, 2)]),
    "feature dropout": (lambda x: F.dropout2d(x, 0.5), [(3, 4, 2, 2)], [(6, 2, 3, 1)]),
    "factory": (lambda x: fl.zeros(x.shape[0], x.shape[1] * 2), [(3, 4)], [(6, 2)]),
    "arange": (lambda x: fl.arange(x.shape[0]), [(3, 4)], [(6, 2)]),
    "mask": (lambda x: fl.full((x.shape[0],) * 2, -1e9).triu(1), [(3, 4)], [(6, 2)]),
    "in place": (lambda x: x.add_(1).mul_(2), [(3, 4)], [(6, 2)]),
    "one_hot": (lambda x: F.one_hot(x.long(), 5), [(3, 4)], [(6, 2)]),
    "pixel_shuffle": (lambda x: F.pixel_shuffle(x, 2), [(1, 4, 2, 3)], [(2, 8, 1, 5)]),
    "unfold images": (lambda x: F.unfold(x, 2), [(1, 4, 3, 3)], [(2, 8, 5, 4)]),
    "rfft": (lambda x: fl.fft.rfft(x), [(3, 8)], [(2, 6)]),
    "complex": (lambda x: fl.complex(x, x), [(3, 8)], [(2, 6)]),
    "dtype": (lambda x: x.to(fl.bfloat16), [(3, 8)], [(2, 6)]),
}


def fakes(sizes):
    env = ShapeEnv()
    mode = FakeTensorMode(shape_env=env)
    return env, [mode.from_tensor(fl.rand(*shape)) for shape in sizes]


def flat(result):
    return list(result) if isinstance(result, (tuple, list)) else [result]


def meta(function, sizes):
    return flat(function(*(fl.rand(*shape, device="meta") for shape in sizes)))


def check(result, expected, values):
    for fake, real in zip(flat(result), expected, strict=True):
        assert isinstance(fake, FakeTensor)
        assert tuple(evaluate(expr_of(s), values) for s in fake.shape) == tuple(real.shape)
        assert fake.dtype == real.dtype
        strides = [evaluate(expr_of(s), values) for s in fake.stride()]
        if real.numel():
            assert all(a == b for a, b, n in zip(strides, real.stride(), real.shape) if n > 1)
        assert fake.device.type == "cpu"


@pytest.mark.parametrize("name", CASES)
def test_symbolic_sizes_agree_with_the_kernels(name):
    function, sizes, others = CASES[name]
    env, arguments = fakes(sizes)
    result = function(*arguments)
    assert env.holds(env.hints)
    check(result, meta(function, sizes), env.hints)
    values = dict(zip(env.symbols, [n for shape in others for n in shape]))
    assert env.holds(values), env.explain()
    check(result, meta(function, others), values)


@pytest.mark.parametrize("name", CASES)
def test_plain_sizes_agree_with_the_kernels(name):
    function, sizes, _ = CASES[name]
    arguments = [fl.rand(*shape) for shape in sizes]
    with FakeTensorMode() as mode:
        result = function(*map(mode.from_tensor, arguments))
    check(result, meta(function, sizes), {})


def test_an_operator_without_a_rule_gives_up_its_symbols_by_a_guard():
    env, (x,) = fakes([(3, 3)])
    assert shapes.find("tril_indices") is None
    assert tuple(fl.tril_indices(*x.shape).shape) == (2, 6)
    assert env.guard_texts() == ["s0 == 3", "s1 == 3"]


def test_broadcasting_guards_only_what_was_needed():
    env, (x, y) = fakes([(3, 4), (3, 1)])
    assert str((x + y).shape) == "torch.Size([s0, s1])"
    assert env.guard_texts() == ["s0 == s2", "s3 == 1"]
    env, (x, y) = fakes([(1, 4), (1, 4)])
    x + y
    assert env.guard_texts() == ["s0 == s2", "s1 == s3"]


QUESTIONS = [
    lambda x: x.nonzero(),
    lambda x: x[x > 0],
    lambda x: x.masked_select(x > 0),
    lambda x: fl.unique(x),
    lambda x: x.sum().item(),
    lambda x: x.tolist(),
    lambda x: fl.bincount(x.long().flatten()),
]


@pytest.mark.parametrize("ask", [*QUESTIONS, lambda x: bool(x.sum()), lambda x: float(x.max())])
def test_questions_about_data_raise(ask):
    x = FakeTensorMode().from_tensor(fl.randn(3, 4))
    with pytest.raises(DataDependentOutput):
        ask(x)
    with pytest.raises(DynamicOutputShapeException):
        x.nonzero()


@pytest.mark.parametrize("ask", QUESTIONS)
def test_with_symbols_answers_about_data_are_symbols(ask):
    _env, (x,) = fakes([(3, 4)])
    answer = ask(x)
    assert "u" in str(answer.shape if isinstance(answer, fl.Tensor) else answer)
    for decide in (lambda: bool(x.sum()), lambda: float(x.max())):
        with pytest.raises(DataDependentOutput):
            decide()


def test_errors_are_those_of_the_kernels():
    _, (x, y) = fakes([(3, 4), (5, 6)])
    with pytest.raises(RuntimeError, match="matmul"):
        x @ y
    with pytest.raises(IndexError):
        x.sum(4)
    with pytest.raises(RuntimeError):
        x.view(5, 5)


def test_views_share_storage_and_know_their_offset():
    _, (x,) = fakes([(3, 4)])
    row = x[1]
    assert str(row.storage_offset()) == "s1"
    assert row.stride() == (1,)
    assert str(x.t().stride()) == "(1, s1)"


def test_gradients_are_followed_without_a_graph():
    mode = FakeTensorMode()
    x = mode.from_tensor(fl.rand(3, requires_grad=True))
    y = x * 2
    assert x.is_leaf
    assert y.requires_grad
    assert not y.is_leaf
    assert not y.argmax().requires_grad
    assert not y.detach().requires_grad
    with fl.no_grad():
        assert not (x * 2).requires_grad
    z = fl.zeros_like(y)
    z.add_(y)
    assert z.requires_grad


def test_devices_are_kept_apart():
    mode = FakeTensorMode()
    x = mode.fake_like((2, 3), fl.float32, "cuda")
    assert (x + 1).device == fl.device("cuda")
    assert x.cpu().device == fl.device("cpu")
    with pytest.raises(RuntimeError, match="one device"):
        x + mode.fake_like((2, 3), fl.float32)


def test_everything_made_in_a_mode_is_fake():
    with FakeTensorMode() as mode:
        x = fl.ones(2, 3)
        y = fl.tensor([1.0, 2.0, 3.0])
        z = fl.nn.Linear(3, 4)(x)
    for t in (x, y, x + y):
        assert isinstance(t, FakeTensor)
    assert isinstance(z, FakeTensor)
    assert z.shape == (2, 4)
    assert isinstance(mode.from_tensor(fl.ones(1)), FakeTensor)


def test_data_indexed_with_symbolic_numbers_is_fake():
    env, (x,) = fakes([(3, 4)])
    table = fl.rand(8, 8)
    assert str(table[: x.shape[0], None, : x.shape[1]].shape) == "torch.Size([s0, 1, s1])"
    assert env.guard_texts() == ["s0 <= 8", "s1 <= 8"]


def test_a_tensor_has_one_fake():
    mode = FakeTensorMode(shape_env=ShapeEnv())
    t = fl.ones(2)
    assert mode.from_tensor(t) is mode.from_tensor(t)


def test_a_million_elements_cost_nothing():
    mode = FakeTensorMode()
    x = mode.fake_like((10**6, 10**5), fl.float32)
    assert (x @ x.t()).shape == (10**6, 10**6)


def test_only_chosen_sizes_are_symbolic():
    env = ShapeEnv()
    x = FakeTensorMode(shape_env=env).from_tensor(fl.ones(2, 3), dynamic_dims=[0], source="x")
    assert str(x.shape) == "torch.Size([s0, 3])"
    assert env.sources[env.symbols[0]] == "x.size(0)"
    assert hint_of(x.shape[0]) == 2


@pytest.mark.parametrize(
    "write, sizes, guards",
    [
        (lambda x, y: x.add_(y), [(3, 4), (3, 4)], ["s0 == s2", "s1 == s3"]),
        (lambda x, y: x.copy_(y), [(3, 4), (4,)], ["s1 == s2"]),
        (lambda x, y: x.masked_fill_(y > 0, 1.0), [(3, 4), (3, 4)], ["s0 == s2", "s1 == s3"]),
        (lambda x, y: x.index_add_(0, y.long(), x[:2]), [(3, 4), (2,)], ["s0 >= 2", "s2 == 2"]),
        (lambda x, y: x.unsqueeze_(0), [(3, 4), (3,)], []),
        (lambda x, y: x.zero_(), [(3, 4), (3,)], []),
        (lambda x, y: x.uniform_(), [(3, 4), (3,)], []),
    ],
)
def test_writes_guard_that_values_fit(write, sizes, guards):
    env, (x, y) = fakes(sizes)
    assert write(x, y) is x
    assert env.guard_texts() == guards


def test_rules_name_arguments_of_their_operators():
    from flambeau.ao.quantization.graphs import decomposed  # noqa: F401  operators without a record that have rules

    known = {}
    for text in fl._C._list_operators():
        name, _, rest = text.partition("(")
        known[name] = rest
    for name, rule in shapes.all().items():
        parameters = inspect.signature(rule).parameters
        missing = [p for p in parameters if f" {p}" not in known[name]]
        optional = {"dim", "keepdim", "start", "end", "step", "dilation", "shape", "size", "split_size", "split_sizes",
                        "weight", "bias", "dim0", "dim1", "axis0", "axis1", "ndim", "src", "training"}  # fmt: skip
        assert set(missing) <= optional, (name, missing)


def test_fake_tensors_print_what_is_known_of_them():
    with FakeTensorMode():
        assert repr(fl.empty(2, 2)) == "FakeTensor(..., size=(2, 2))"
        assert repr(fl.empty(2, dtype=fl.int64)) == "FakeTensor(..., size=(2,), dtype=torch.int64)"
        assert repr(fl.empty((), requires_grad=True)) == "FakeTensor(..., size=(), requires_grad=True)"
        assert repr(fl.empty(3, device="meta")) == "FakeTensor(..., device='meta', size=(3,))"


@pytest.mark.parametrize("allow", [False, True])
@pytest.mark.parametrize("dtype", [fl.uint8, fl.bool, fl.float16, fl.float32, fl.complex64])
def test_numbers_beside_fakes_are_numbers(allow, dtype):
    def results(t):
        return [2 ** t.int(), 1j * t, t * 2.5, t / 0.5, 0.5 / t, 2.5 + t, fl.where(t == 1, 1.5, t)]

    expected = [t.dtype for t in results(fl.tensor([1, 2]).to(dtype))]
    with FakeTensorMode(allow_non_fake_inputs=allow) as mode:
        fake = mode.from_tensor(fl.tensor([1, 2]).to(dtype))
        assert [t.dtype for t in results(fake)] == expected


@pytest.mark.parametrize(
    "call",
    [
        lambda x: x.flatten(), lambda x: x.contiguous(), lambda x: x.to(x.dtype), lambda x: x.float(), lambda x: x.real, lambda x: x.conj(),
        lambda x: x.resolve_conj(), lambda x: x.type_as(x), lambda x: x.cpu(), lambda x: x.reshape(-1), lambda x: x.clone(), lambda x: x.positive(),
    ],
)  # fmt: skip
@pytest.mark.parametrize("symbolic", [False, True])
def test_what_hands_back_its_argument_does_so_for_fakes(call, symbolic):
    x = fl.ones(3)
    mode = FakeTensorMode(shape_env=ShapeEnv() if symbolic else None)
    fake = mode.from_tensor(x)
    handed_back = call(x) is x
    with mode:
        assert (call(fake) is fake) == handed_back
    with FakeTensorMode() as mode:
        moved = mode.from_tensor(x).to("meta")
        assert moved.cpu() is not moved and moved.cpu().device.type == "cpu"
