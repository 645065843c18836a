"""Whole models through fx: the graph's printed code runs and returns the same numbers, rewrites keep them, and one
symbolic trace tells the shapes for any batch size."""

import math

import pytest

import flambeau as fl
from flambeau import fx, nn
from flambeau._subclasses import FakeTensorMode
from flambeau.fx.passes import inference
from flambeau.fx.passes.fake_tensor_prop import FakeTensorProp
from flambeau.ops.symbolic import ShapeEnv, evaluate, expr_of
from flambeau.vision import models

F = nn.functional


class Attention(nn.Module):
    """Attention as written in many repositories, with the mask as a buffer."""

    def __init__(self, width=16, heads=2, length=8):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.drop = nn.Dropout(0.1)
        self.register_buffer("bias", fl.tril(fl.ones(length, length)).view(1, 1, length, length))

    def forward(self, x):
        B, T, C = x.size()
        q, k, v = self.qkv(x).split(C, dim=2)
        k = k.view(B, T, self.heads, C // self.heads).transpose(1, 2)
        q = q.view(B, T, self.heads, C // self.heads).transpose(1, 2)
        v = v.view(B, T, self.heads, C // self.heads).transpose(1, 2)
        scores = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(8))
        scores = scores.masked_fill(self.bias[:, :, :T, :T] == 0, float("-inf"))
        y = self.drop(F.softmax(scores, dim=-1)) @ v
        return self.out(y.transpose(1, 2).contiguous().view(B, T, C))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(20, 16), nn.Embedding(8, 16)
        self.h = nn.ModuleList(nn.ModuleDict({"ln": nn.LayerNorm(16), "attn": Attention()}) for _ in range(2))
        self.head = nn.Linear(16, 20, bias=False)
        self.head.weight = self.wte.weight

    def forward(self, idx):
        x = self.wte(idx) + self.wpe(fl.arange(0, idx.shape[1], device=idx.device))
        for block in self.h:
            x = x + block["attn"](block["ln"](x))
        return self.head(x)[:, -1, :]


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())
        self.middle = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.GroupNorm(2, 8), nn.SiLU())
        self.up = nn.ConvTranspose2d(8, 8, 2, stride=2)
        self.end = nn.Conv2d(16, 1, 1)

    def forward(self, x):
        skip = self.down(x)
        y = self.up(self.middle(F.max_pool2d(skip, 2)))
        return fl.sigmoid(self.end(fl.cat([skip, y], dim=1)))


class Autoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(12, 8), nn.Tanh(), nn.Linear(8, 4))
        self.decode = nn.Sequential(nn.Linear(2, 8), nn.ELU(), nn.Linear(8, 12))

    def forward(self, x):
        mean, logvar = self.encode(x.flatten(1)).chunk(2, dim=-1)
        z = mean + fl.exp(0.5 * logvar)
        return self.decode(z).reshape(x.shape), -0.5 * (1 + logvar - mean**2 - logvar.exp()).sum(dim=-1)


CASES = {
    "gpt": (GPT, lambda n: fl.randint(0, 20, (n, 6))),
    "unet": (UNet, lambda n: fl.randn(n, 3, 8, 8)),
    "autoencoder": (Autoencoder, lambda n: fl.randn(n, 3, 4)),
    "vit": (lambda: models.VisionTransformer(32, 16, 2, 2, 16, 32), lambda n: fl.randn(n, 3, 32, 32)),
    "encoder": (
        lambda: nn.Sequential(nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), nn.Linear(16, 3)),
        lambda n: fl.randn(n, 5, 16),
    ),
    "resnet18": (models.resnet18, lambda n: fl.randn(n, 3, 32, 32)),
    "mobilenet_v3_small": (models.mobilenet_v3_small, lambda n: fl.randn(n, 3, 32, 32)),
}


def flat(x):
    return list(x) if isinstance(x, (tuple, list)) else [x]


@pytest.fixture(params=CASES)
def case(request):
    make, inputs = CASES[request.param]
    model = make().eval()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.normal_(std=0.1)
            module.running_var.uniform_(0.5, 2)
    return model, inputs


def test_printed_code_returns_the_same(case):
    model, inputs = case
    module = fx.symbolic_trace(model)
    module.graph.lint()
    x = inputs(2)
    printed = module.graph.python_code("self")
    scope = dict(printed.globals)
    exec(printed.src, scope)
    for own, expected in zip(flat(scope["forward"](module, x)), flat(model(x)), strict=True):
        assert fl.equal(own, expected)


def test_inference_passes_return_the_same(case):
    model, inputs = case
    x = inputs(2)
    module = inference.prepare_for_inference(model)
    module.graph.lint()
    for own, expected in zip(flat(module(x)), flat(model(x)), strict=True):
        assert fl.allclose(own, expected, atol=1e-4, rtol=1e-4)


def test_one_trace_knows_the_shapes_for_all_batch_sizes(case):
    model, inputs = case
    env = ShapeEnv()
    mode = FakeTensorMode(shape_env=env)
    module = fx.symbolic_trace(model)
    results = flat(FakeTensorProp(module, mode).propagate(mode.from_tensor(inputs(2), dynamic_dims=[0])))
    (batch,) = env.symbols
    for n in (1, 5):
        assert env.holds({batch: n}), env.explain()
        for fake, real in zip(results, flat(model(inputs(n))), strict=True):
            assert tuple(evaluate(expr_of(s), {batch: n}) for s in fake.shape) == tuple(real.shape)
            assert fake.dtype == real.dtype
