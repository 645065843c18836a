"""Whole models on the device against the CPU."""

import pytest

import flambeau as fl

F = fl.nn.functional


def train(device, build, batch, loss_of, optimizer, steps=8):
    fl.manual_seed(0)
    model = build().to(device)
    inputs = [t.to(device) for t in batch]
    opt = optimizer(model.parameters())
    losses = []
    for _ in range(steps):
        opt.zero_grad()
        loss = loss_of(model, *inputs)
        loss.backward()
        opt.step()
        losses.append(loss.item())
    return losses


class Block(fl.nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln1, self.ln2 = fl.nn.LayerNorm(width), fl.nn.LayerNorm(width)
        self.qkv, self.out = fl.nn.Linear(width, 3 * width), fl.nn.Linear(width, width)
        self.up, self.down = fl.nn.Linear(width, 4 * width), fl.nn.Linear(4 * width, width)

    def forward(self, x):
        b, t, w = x.shape
        q, k, v = self.qkv(self.ln1(x)).reshape(b, t, 3, self.heads, w // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, w))
        return x + self.down(F.gelu(self.up(self.ln2(x))))


class GPT(fl.nn.Module):
    def __init__(self, vocabulary=50, length=16, width=32):
        super().__init__()
        self.tokens, self.places = fl.nn.Embedding(vocabulary, width), fl.nn.Embedding(length, width)
        self.blocks = fl.nn.Sequential(Block(width, 4), Block(width, 4))
        self.norm, self.head = fl.nn.LayerNorm(width), fl.nn.Linear(width, vocabulary, bias=False)

    def forward(self, x):
        places = fl.arange(x.shape[1], device=x.device)
        return self.head(self.norm(self.blocks(self.tokens(x) + self.places(places))))


def token_loss(model, x, y):
    return F.cross_entropy(model(x).flatten(0, 1), y.flatten())


fl.manual_seed(1)
TOKENS = fl.randint(0, 50, (4, 17))
CASES = {
    "mlp": (
        lambda: fl.nn.Sequential(fl.nn.Linear(10, 32), fl.nn.ReLU(), fl.nn.Linear(32, 3)),
        (fl.randn(16, 10), fl.randint(0, 3, (16,))),
        lambda m, x, y: F.cross_entropy(m(x), y),
    ),
    "gpt": (GPT, (TOKENS[:, :-1], TOKENS[:, 1:]), token_loss),
    "convolution": (
        lambda: fl.nn.Sequential(
            fl.nn.Conv2d(3, 8, 3, padding=1), fl.nn.BatchNorm2d(8), fl.nn.ReLU(), fl.nn.MaxPool2d(2),
            fl.nn.Conv2d(8, 8, 3, stride=2), fl.nn.AdaptiveAvgPool2d(1), fl.nn.Flatten(), fl.nn.Linear(8, 4),
        ),
        (fl.randn(4, 3, 12, 12), fl.randint(0, 4, (4,))),
        lambda m, x, y: F.cross_entropy(m(x), y),
    ),
}  # fmt: skip


@pytest.mark.parametrize("optimizer", ["SGD", "AdamW"])
@pytest.mark.parametrize("name", list(CASES))
def test_training_agrees_with_the_cpu(name, optimizer):
    build, batch, loss_of = CASES[name]
    kind = getattr(fl.optim, optimizer)

    def make(parameters):
        return kind(parameters, lr=0.01)

    host = train("cpu", build, batch, loss_of, make)
    device = train("cuda", build, batch, loss_of, make)
    assert device == pytest.approx(host, rel=2e-3, abs=2e-3)
    assert device[-1] < device[0]


@pytest.mark.parametrize("dtype", [fl.bfloat16, fl.float16])
def test_mixed_precision(dtype):
    fl.manual_seed(0)
    model = GPT().cuda()
    optimizer = fl.optim.AdamW(model.parameters(), lr=1e-2)
    scaler = fl.amp.GradScaler("cuda", enabled=dtype is fl.float16)
    x, y = TOKENS[:, :-1].cuda(), TOKENS[:, 1:].cuda()
    losses = []
    for _ in range(10):
        optimizer.zero_grad()
        with fl.autocast("cuda", dtype=dtype):
            loss = token_loss(model, x, y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
    assert losses[-1] < losses[0]


def test_training_goes_on_after_running_out_of_memory():
    model = fl.nn.Linear(64, 64).cuda()
    optimizer = fl.optim.SGD(model.parameters(), lr=0.1)
    x = fl.randn(32, 64, device="cuda")
    total = fl.cuda.mem_get_info()[1]
    survived = 0
    for i in range(6):
        try:
            if i % 2:
                fl.empty(total, 2, dtype=fl.uint8, device="cuda")
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
        except fl.cuda.OutOfMemoryError:
            survived += 1
    assert survived == 3


@pytest.mark.parametrize("name", ["Adam", "AdamW", "NAdam", "RAdam", "Adamax", "ASGD", "Rprop", "RMSprop", "Adadelta"])
def test_steps_that_are_counted_on_the_device(name):
    """The same as with counts on the host, and nothing is waited for: a step can be captured."""
    made = getattr(fl.optim, name)

    def run(capture, **options):
        fl.manual_seed(0)
        weights = [fl.randn(40, 7, device="cuda", requires_grad=True), fl.randn(5, device="cuda", requires_grad=True)]
        optimizer = made(weights, lr=0.01, **options)
        gradients = [fl.randn_like(w) for w in weights]

        def step():
            for w, g in zip(weights, gradients):
                w.grad = g * w.detach()
            optimizer.step()

        for _ in range(3):
            step()
        if capture:
            graph = fl.cuda.CUDAGraph()
            with fl.cuda.graph(graph):
                step()
        for _ in range(4):
            graph.replay() if capture else step()
        return [w.detach().cpu() for w in weights], {
            k: v for k, v in optimizer.state[weights[0]].items() if k == "step"
        }

    want, _ = run(False)
    got, state = run(True, capturable=True)
    for a, b in zip(got, want):
        assert fl.allclose(a, b, rtol=1e-5, atol=1e-6)
    assert state["step"].is_cuda and state["step"].item() == 7


def test_parameters_that_modules_share_stay_shared_on_the_device():
    words, head = fl.nn.Embedding(7, 4), fl.nn.Linear(4, 7, bias=False)
    head.weight = words.weight
    optimizer = fl.optim.SGD(words.parameters(), lr=0.1)
    model = fl.nn.ModuleList([words, head]).cuda()
    assert model[0].weight is model[1].weight is optimizer.param_groups[0]["params"][0]
    assert len(list(model.parameters())) == 1 and model[0].weight.is_cuda
    assert words.cpu().weight is head.weight and not head.weight.is_cuda


def test_updates_of_many_tensors_of_odd_sizes():
    sizes = [1, 7, 2048, 2049, 5000, 70000, *range(3, 80), 0]
    want = [fl.randn(n).requires_grad_() for n in sizes]
    got = [t.detach().cuda().requires_grad_() for t in want]
    for tensors in (want, got):
        optimizer = fl.optim.AdamW(tensors, lr=0.01, foreach=True)
        for _ in range(3):
            for t in tensors:
                t.grad = fl.cos(t.detach() * 3)
            optimizer.step()
    for mine, other in zip(got, want):
        fl.testing.assert_close(mine.detach().cpu(), other.detach())
