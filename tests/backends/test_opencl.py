"""OpenCL, where there is a driver: operators and compiled training against the CPU."""

import pytest

import flambeau as fl

try:
    import flambeau.backends.opencl
except ImportError as error:
    pytest.skip(f"no OpenCL: {error}", allow_module_level=True)

F = fl.nn.functional
device = fl.backends.registered["opencl"]

PROGRAMS = {
    "arithmetic": lambda x: (x * 2 - x.t().contiguous().t() / 3).clamp(-1, 1),
    "functions": lambda x: F.gelu(x) + x.sigmoid() * x.tanh() + x.abs().sqrt() + x.exp().log1p(),
    "halves": lambda x: x.to(fl.bfloat16) * 2 + x.to(fl.float16),
    "integers": lambda x: (x * 10).to(fl.int32) // 3 % 4,
    "reductions": lambda x: (x.sum(), x.mean(1), x.amax(0), (x > 0).any(), x.prod(1), x.std()),
    "products": lambda x: (x @ x.t(), fl.bmm(x.expand(2, 6, 8), x.t().expand(2, 8, 6))),
    "indexing": lambda x: (x[fl.tensor([2, 0], device=x.device)], x[x > 0], x.gather(1, (x > 0).to(fl.int64))),
    "scans": lambda x: (x.cumsum(1), fl.sort(x, 1, descending=True), fl.topk(x, 3)),
    "normalization": lambda x: (F.softmax(x, 1), F.layer_norm(x, (8,)), F.log_softmax(x, 0)),
    "convolution": lambda x: F.conv2d(x.reshape(1, 2, 4, 6), x.reshape(2, 2, 3, 4)),
}


def flat(value):
    return [t for v in value for t in flat(v)] if isinstance(value, (tuple, list)) else [value]


@pytest.mark.parametrize("name", PROGRAMS)
def test_operators_agree_with_the_cpu(name):
    x = fl.randn(6, 8)
    for got, want in zip(flat(PROGRAMS[name](x.to("opencl"))), flat(PROGRAMS[name](x))):
        assert got.device.type == "opencl" and got.dtype is want.dtype
        fl.testing.assert_close(got.cpu(), want, rtol=1e-3, atol=1e-4)


def losses(place, compiled):
    fl.manual_seed(0)
    model = fl.nn.Sequential(fl.nn.Linear(6, 16), fl.nn.GELU(), fl.nn.LayerNorm(16), fl.nn.Linear(16, 3)).to(place)
    optimizer = fl.optim.AdamW(model.parameters(), lr=0.01)
    x, y = fl.randn(8, 6).to(place), fl.randint(0, 3, (8,)).to(place)
    step = (
        fl.compile(lambda x, y: F.cross_entropy(model(x), y), fullgraph=True)
        if compiled
        else lambda x, y: F.cross_entropy(model(x), y)
    )
    history = []
    for _ in range(3):
        optimizer.zero_grad()
        loss = step(x, y)
        loss.backward()
        optimizer.step()
        history.append(loss.item())
    return history


def test_training_eager_and_compiled():
    want, host_calls = losses("cpu", False), device.host_calls
    before = device.launches
    assert losses("opencl", False) == pytest.approx(want, abs=1e-4)
    eager, before = device.launches - before, device.launches
    assert losses("opencl", True) == pytest.approx(want, abs=1e-4)
    assert device.launches - before < eager and device.host_calls == host_calls


@pytest.mark.parametrize("dtype", [fl.float32, fl.bfloat16, fl.float16])
def test_cross_entropy_is_compiled(dtype):
    scores, classes = (fl.randn(5, 7) * 4).to(dtype), fl.randint(0, 7, (5,))
    loss = fl.compile(lambda s, c: F.cross_entropy(s, c), fullgraph=True)
    want, got = scores.clone().requires_grad_(), scores.to("opencl").requires_grad_()
    F.cross_entropy(want, classes).backward()
    loss(got, classes.to("opencl")).backward()
    fl.testing.assert_close(got.grad.cpu(), want.grad, rtol=1e-2, atol=1e-3)


def test_convolutions_and_pooling_are_compiled():
    fl.manual_seed(0)
    model = fl.nn.Sequential(
        fl.nn.Conv2d(1, 2, 3), fl.nn.ReLU(), fl.nn.MaxPool2d(2), fl.nn.Flatten(), fl.nn.Linear(8, 3)
    )
    x = fl.randn(2, 1, 6, 6)
    want = model(x).square().mean()
    model, x = model.to("opencl"), x.to("opencl")
    got = fl.compile(lambda x: model(x).square().mean(), fullgraph=True)(x)
    got.backward()
    assert got.item() == pytest.approx(want.item(), abs=1e-5)


@pytest.mark.parametrize("dtype", [fl.float32, fl.float64, fl.int64, fl.bfloat16])
@pytest.mark.parametrize("sizes", [(1, 1, 1), (5, 3, 7), (9, 40, 33), (8, 16, 16), (17, 100, 50), (3, 15, 70)])
def test_products_of_all_layouts(sizes, dtype):
    rows, inner, columns = sizes
    a, b = (fl.randn(rows, inner) * 4).to(dtype), (fl.randn(inner, columns) * 4).to(dtype)
    want = a.double() @ b.double()
    for left in (a, a.t().contiguous().t()):
        for right in (b, b.t().contiguous().t()):
            got = left.to("opencl") @ right.to("opencl")
            tolerance = 0.1 if dtype is fl.bfloat16 else 1e-3
            fl.testing.assert_close(got.cpu().double(), want, rtol=tolerance, atol=tolerance)


def test_compiled_products_are_launches_of_the_program():
    model = fl.nn.Linear(40, 24).to("opencl")
    x = fl.randn(8, 40).to("opencl")
    compiled = fl.compile(lambda x: model(x).relu() @ model.weight[:, :20].contiguous())
    want = model.cpu()(x.cpu()).relu() @ model.weight[:, :20]
    model.to("opencl")
    fl.testing.assert_close(compiled(x).cpu(), want, rtol=1e-4, atol=1e-4)
    device = fl.backends.registered["opencl"]
    native = device.native_launches.value
    compiled(x)
    assert device.native_launches.value > native


@pytest.mark.parametrize("optimizer", ["SGD", "AdamW"])
def test_an_optimizer_step_is_one_launch(optimizer):
    def parameters(device):
        fl.manual_seed(0)
        sizes = [(3, 5), (700,), (1,), (20, 30)]
        tensors = [fl.randn(s).to(device).requires_grad_() for s in sizes]
        for t in tensors:
            t.grad = fl.randn(t.shape).to(device)
        return tensors

    here, there = parameters("opencl"), parameters("cpu")
    chosen = [getattr(fl.optim, optimizer)(p, lr=0.1, weight_decay=0.01) for p in (here, there)]
    device = fl.backends.registered["opencl"]
    for step in range(3):
        before = device.launches
        for o in chosen:
            o.param_groups[0]["lr"] = 0.1 / (step + 1)
            o.step()
        assert step == 0 or device.launches == before + 1
    for got, want in zip(here, there):
        fl.testing.assert_close(got.detach().cpu(), want.detach(), rtol=1e-5, atol=1e-6)


def test_freed_blocks_are_used_again_and_given_back():
    address = fl.empty(1000, device="opencl").data_ptr()
    assert fl.empty(1000, device="opencl").data_ptr() == address
    fl.opencl.empty_cache()
    assert fl.ones(1000, device="opencl").sum().item() == 1000


def test_bessel_functions():
    x = fl.linspace(-4, 4, 9)
    for function in (fl.special.i0, fl.special.i1, fl.special.modified_bessel_i0):
        fl.testing.assert_close(function(x.to("opencl")).cpu(), function(x), rtol=1e-4, atol=1e-5)


def test_arithmetic_of_numbers_alone_is_an_operand_of_a_recorded_call(monkeypatch):
    monkeypatch.setenv("FLAMBEAU_STRICT", "1")

    def gradients(device):
        fl.manual_seed(0)
        model = fl.nn.Sequential(fl.nn.Linear(5, 6), fl.nn.LayerNorm(6), fl.nn.GELU(), fl.nn.Linear(6, 2)).to(device)
        x = fl.linspace(-1, 1, 15).reshape(3, 5).to(device).requires_grad_()
        (first,) = fl.autograd.grad(model(x).square().sum(), x, create_graph=True)
        first.norm().backward()
        return [p.grad.cpu() for p in model.parameters() if p.grad is not None]

    fl.lazy.over("opencl")
    try:
        got = gradients("lazy")
    finally:
        fl.lazy.over("cpu")
    for one, other in zip(got, gradients("cpu")):
        fl.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)
