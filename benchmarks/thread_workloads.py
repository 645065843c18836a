"""Kernels and whole steps whose time is measured over the number of threads; for any library with PyTorch's API.

`KERNELS` and `STEPS` map names to functions that take the library and return what is timed. Steps also take a wrapper, which
is `compile` or does nothing.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

__all__ = ["KERNELS", "STEPS"]

Run = Callable[[], Any]
Wrap = Callable[[Any], Any]


# ---------------------------------------------------------------------------------------------- kernels


def _kernels(torch: Any) -> dict[str, Callable[[], Run]]:
    F = importlib.import_module(f"{torch.__name__}.nn.functional")
    r = torch.randn

    def backward(function: Callable[..., Any], *inputs: Any) -> Run:
        leaves = [x.requires_grad_() if x.is_floating_point() else x for x in inputs]
        result = function(*leaves)
        seed = torch.ones_like(result)
        wanted = [x for x in leaves if x.requires_grad]
        return lambda: torch.autograd.grad(result, wanted, seed, retain_graph=True)

    def product(*sizes: int) -> Run:
        a, b = r(sizes[0], sizes[1]), r(sizes[1], sizes[2])
        return lambda: a @ b

    def of(function: Callable[..., Any], *inputs: Any) -> Run:
        return lambda: function(*inputs)

    def updated(name: str) -> Run:
        parameters = [r(256, 256).requires_grad_() for _ in range(30)]
        for p in parameters:
            p.grad = torch.ones_like(p)
        optim = importlib.import_module(f"{torch.__name__}.optim")
        return getattr(optim, name)(parameters, lr=1e-3).step

    rows = torch.randint(0, 20000, (100000,))
    return {
        "product 64": lambda: product(64, 64, 64),
        "product 128": lambda: product(128, 128, 128),
        "product 256": lambda: product(256, 256, 256),
        "product 512": lambda: product(512, 512, 512),
        "product 1024": lambda: product(1024, 1024, 1024),
        "product 2048": lambda: product(2048, 2048, 2048),
        "linear 1568x256x1024": lambda: of(F.linear, r(1568, 256), r(1024, 256), r(1024)),
        "linear 1024x1024x256": lambda: of(F.linear, r(1024, 1024), r(256, 1024), r(256)),
        "product 784x256x10": lambda: product(784, 256, 10),
        "product 1024x64x4096": lambda: product(1024, 64, 4096),
        "product 16x1024x1024": lambda: product(16, 1024, 1024),
        "matrix times vector 2048": lambda: product(2048, 2048, 1),
        "batched product 64x64": lambda: of(torch.bmm, r(128, 64, 64), r(128, 64, 64)),
        "convolution 64 channels": lambda: of(
            lambda x, w: F.conv2d(x, w, padding=1), r(16, 64, 32, 32), r(64, 64, 3, 3)
        ),
        "convolution backward": lambda: backward(
            lambda x, w: F.conv2d(x, w, padding=1), r(16, 64, 32, 32), r(64, 64, 3, 3)
        ),
        "depthwise convolution": lambda: of(
            lambda x, w: F.conv2d(x, w, padding=1, groups=64), r(16, 64, 32, 32), r(64, 1, 3, 3)
        ),
        "attention": lambda: of(lambda q: F.scaled_dot_product_attention(q, q, q, is_causal=True), r(4, 8, 256, 64)),
        "attention backward": lambda: backward(
            lambda q, k, v: F.scaled_dot_product_attention(q, k, v), *(r(4, 8, 256, 64) for _ in range(3))
        ),
        "add 16k": lambda: of(torch.add, r(16384), r(16384)),
        "add 64k": lambda: of(torch.add, r(65536), r(65536)),
        "add 256k": lambda: of(torch.add, r(262144), r(262144)),
        "add 4m": lambda: of(torch.add, r(1 << 22), r(1 << 22)),
        "gelu 256k": lambda: of(F.gelu, r(262144)),
        "layer_norm": lambda: of(lambda x: F.layer_norm(x, (512,)), r(2048, 512)),
        "layer_norm backward": lambda: backward(
            lambda x, w, b: F.layer_norm(x, (512,), w, b), r(2048, 512), r(512), r(512)
        ),
        "batch_norm": lambda: of(lambda x: F.batch_norm(x, None, None, training=True), r(16, 64, 32, 32)),
        "softmax": lambda: of(lambda x: torch.softmax(x, -1), r(2048, 512)),
        "log_softmax backward": lambda: backward(lambda x: torch.log_softmax(x, -1), r(2048, 512)),
        "sum of all": lambda: of(torch.sum, r(1 << 20)),
        "sum over rows": lambda: of(lambda x: x.sum(0), r(2048, 512)),
        "sum over columns": lambda: of(lambda x: x.sum(1), r(2048, 512)),
        "argmax": lambda: of(lambda x: x.argmax(1), r(2048, 512)),
        "index_add": lambda: of(lambda x, i, y: x.index_add_(0, i, y), torch.zeros(20000, 64), rows, r(100000, 64)),
        "scatter_add": lambda: of(lambda x, i, y: x.scatter_add_(0, i, y), torch.zeros(20000), rows, r(100000)),
        "gather of rows": lambda: of(lambda x, i: x[i], r(20000, 64), rows),
        "embedding backward": lambda: backward(lambda w: F.embedding(rows, w), r(20000, 64)),
        "adam": lambda: updated("Adam"),
        "sgd": lambda: updated("SGD"),
        "copy of a transpose": lambda: of(lambda x: x.t().contiguous(), r(2048, 1024)),
        "conversion": lambda: of(lambda x: x.to(torch.bfloat16), r(1 << 20)),
        "cat": lambda: of(lambda x, y: torch.cat((x, y), 1), r(2048, 512), r(2048, 512)),
        "sort": lambda: of(lambda x: torch.sort(x, -1), r(2048, 512)),
        "sort of one row": lambda: of(torch.sort, r(1 << 18)),
        "topk": lambda: of(lambda x: torch.topk(x, 8), r(2048, 512)),
        "cumsum": lambda: of(lambda x: x.cumsum(-1), r(2048, 512)),
        "max_pool": lambda: of(lambda x: F.max_pool2d(x, 2), r(16, 64, 32, 32)),
        "randn": lambda: of(lambda: r(1 << 20)),
        "fft": lambda: of(torch.fft.rfft, r(512, 1024)),
    }


KERNELS = _kernels


# ---------------------------------------------------------------------------------------------- whole steps


def _inference(torch: Any, model: Any, wrap: Wrap, *inputs: Any) -> Run:
    function = wrap(model.eval())

    def step() -> Any:
        with torch.no_grad():
            return function(*inputs)

    return step


def _training(torch: Any, model: Any, wrap: Wrap, loss: Callable[..., Any], *inputs: Any) -> Run:
    """The loss of the model is compiled, the optimizer's step is its own call."""
    optim = importlib.import_module(f"{torch.__name__}.optim")
    optimizer = optim.Adam(model.train().parameters(), lr=1e-3)
    function = wrap(lambda *inputs: loss(model, *inputs))

    def step() -> None:
        optimizer.zero_grad()
        function(*inputs).backward()
        optimizer.step()

    return step


def _mixer(torch: Any, wrap: Wrap) -> Run:
    nn = importlib.import_module(f"{torch.__name__}.nn")

    class Block(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self, tokens: int, width: int) -> None:
            super().__init__()
            self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
            self.across = nn.Sequential(nn.Linear(tokens, 256), nn.GELU(), nn.Linear(256, tokens))
            self.within = nn.Sequential(nn.Linear(width, 1024), nn.GELU(), nn.Linear(1024, width))

        def forward(self, x: Any) -> Any:
            x = x + self.across(self.first(x).transpose(1, 2)).transpose(1, 2)
            return x + self.within(self.second(x))

    model = nn.Sequential(*(Block(196, 256) for _ in range(4)))
    return _inference(torch, model, wrap, torch.randn(8, 196, 256))


def _gnn(torch: Any, wrap: Wrap) -> Run:
    nn = importlib.import_module(f"{torch.__name__}.nn")
    F = importlib.import_module(f"{torch.__name__}.nn.functional")

    class Network(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList([nn.Linear(64, 64) for _ in range(3)])
            self.last = nn.Linear(64, 7)

        def forward(self, x: Any, source: Any, target: Any) -> Any:
            for layer in self.layers:
                messages = layer(x)[source]
                x = torch.relu(torch.zeros_like(x).index_add(0, target, messages) + x)
            return self.last(x)

    source, target = torch.randint(0, 2000, (2, 10000))
    labels = torch.randint(0, 7, (2000,))
    return _training(
        torch,
        Network(),
        wrap,
        lambda m, x, s, t: F.cross_entropy(m(x, s, t), labels),
        torch.randn(2000, 64),
        source,
        target,
    )


def _encoder(torch: Any, width: int, heads: int, layers: int) -> Any:
    nn = importlib.import_module(f"{torch.__name__}.nn")
    layer = nn.TransformerEncoderLayer(width, heads, 4 * width, dropout=0.0, activation="gelu", batch_first=True)
    return nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)


def _vit(torch: Any, wrap: Wrap) -> Run:
    nn = importlib.import_module(f"{torch.__name__}.nn")
    F = importlib.import_module(f"{torch.__name__}.nn.functional")

    class Network(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.patches, self.body = nn.Conv2d(3, 192, 8, 8), _encoder(torch, 192, 3, 4)
            self.head = nn.Linear(192, 10)

        def forward(self, x: Any) -> Any:
            return self.head(self.body(self.patches(x).flatten(2).transpose(1, 2)).mean(1))

    labels = torch.randint(0, 10, (8,))
    return _training(torch, Network(), wrap, lambda m, x: F.cross_entropy(m(x), labels), torch.randn(8, 3, 64, 64))


def _bert(torch: Any, wrap: Wrap) -> Run:
    nn = importlib.import_module(f"{torch.__name__}.nn")
    model = nn.Sequential(nn.Embedding(5000, 256), _encoder(torch, 256, 4, 4), nn.Linear(256, 2))
    return _inference(torch, model, wrap, torch.randint(0, 5000, (8, 128)))


def _moe(torch: Any, wrap: Wrap) -> Run:
    nn = importlib.import_module(f"{torch.__name__}.nn")

    class Network(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.gate = nn.Linear(256, 8)
            self.up = nn.Parameter(torch.randn(8, 256, 512) / 16)
            self.down = nn.Parameter(torch.randn(8, 512, 256) / 22)

        def forward(self, x: Any) -> Any:
            weight, expert = torch.topk(torch.softmax(self.gate(x), -1), 2)
            spread = torch.zeros_like(x[:, :8]).scatter(1, expert, weight)
            hidden = torch.relu(torch.einsum("td,edh->eth", x, self.up))
            return torch.einsum("eth,ehd,te->td", hidden, self.down, spread)

    return _training(torch, Network(), wrap, lambda m, x: m(x).pow(2).mean(), torch.randn(512, 256))


def _dlrm(torch: Any, wrap: Wrap) -> Run:
    nn = importlib.import_module(f"{torch.__name__}.nn")
    F = importlib.import_module(f"{torch.__name__}.nn.functional")

    class Network(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.tables = nn.ModuleList([nn.Embedding(2000, 32) for _ in range(8)])
            self.dense = nn.Sequential(nn.Linear(13, 64), nn.ReLU(), nn.Linear(64, 32))
            self.top = nn.Sequential(nn.Linear(32 + 81, 128), nn.ReLU(), nn.Linear(128, 1))

        def forward(self, numbers: Any, categories: Any) -> Any:
            dense = self.dense(numbers)
            parts = torch.stack([dense, *(t(categories[:, i]) for i, t in enumerate(self.tables))], 1)
            crossed = (parts @ parts.transpose(1, 2)).flatten(1)
            return self.top(torch.cat((dense, crossed), 1))

    clicked = torch.rand(512, 1).round()
    return _training(
        torch, Network(), wrap, lambda m, x, i: F.binary_cross_entropy_with_logits(m(x, i), clicked),
        torch.randn(512, 13), torch.randint(0, 2000, (512, 8)),
    )  # fmt: skip


def _unet(torch: Any, wrap: Wrap) -> Run:
    nn = importlib.import_module(f"{torch.__name__}.nn")
    F = importlib.import_module(f"{torch.__name__}.nn.functional")

    def block(inside: int, outside: int) -> Any:
        return nn.Sequential(nn.Conv2d(inside, outside, 3, padding=1), nn.GroupNorm(8, outside), nn.SiLU())

    class Network(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.c = block(3, 32), block(32, 64), block(64, 64)
            self.d, self.e = block(128, 32), nn.Conv2d(64, 3, 3, padding=1)

        def forward(self, x: Any) -> Any:
            a = self.a(x)
            b = self.b(F.max_pool2d(a, 2))
            c = self.c(F.max_pool2d(b, 2))
            d = self.d(torch.cat((F.interpolate(c, scale_factor=2.0), b), 1))
            return self.e(torch.cat((F.interpolate(d, scale_factor=2.0), a), 1))

    x = torch.randn(4, 3, 64, 64)
    return _training(torch, Network(), wrap, lambda m, x: (m(x) - x).pow(2).mean(), x)


def _ragged(torch: Any, wrap: Wrap) -> Run:
    """Sequences of different lengths, padded and masked."""
    nn = importlib.import_module(f"{torch.__name__}.nn")

    class Network(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.words, self.first, self.second = nn.Embedding(1000, 128), nn.Linear(128, 256), nn.Linear(256, 10)

        def forward(self, ids: Any, lengths: Any) -> Any:
            mask = (torch.arange(ids.shape[1])[None, :] < lengths[:, None])[..., None]
            hidden = torch.relu(self.first(self.words(ids))) * mask
            return self.second(hidden.sum(1) / lengths[:, None])

    return _training(
        torch, Network(), wrap, lambda m, ids, lengths: m(ids, lengths).pow(2).mean(), torch.randint(0, 1000, (64, 100)),
        torch.randint(1, 100, (64,)),
    )  # fmt: skip


def _ppo(torch: Any, wrap: Wrap) -> Run:
    nn = importlib.import_module(f"{torch.__name__}.nn")

    class Network(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh())
            self.policy, self.value = nn.Linear(64, 4), nn.Linear(64, 1)

        def forward(self, x: Any) -> Any:
            hidden = self.body(x)
            return torch.log_softmax(self.policy(hidden), -1), self.value(hidden)[:, 0]

    def loss(model: Any, x: Any, action: Any, old: Any, advantage: Any, goal: Any) -> Any:
        scores, value = model(x)
        ratio = torch.exp(scores.gather(1, action[:, None])[:, 0] - old)
        clipped = torch.clamp(ratio, 0.8, 1.2) * advantage
        entropy = -(scores.exp() * scores).sum(-1).mean()
        return -torch.minimum(ratio * advantage, clipped).mean() + (value - goal).pow(2).mean() - 0.01 * entropy

    r = torch.randn
    return _training(
        torch, Network(), wrap, loss, r(256, 16), torch.randint(0, 4, (256,)), -r(256).abs(), r(256), r(256)
    )


def _preprocessing(torch: Any, wrap: Wrap) -> Run:
    F = importlib.import_module(f"{torch.__name__}.nn.functional")
    images = torch.randint(0, 256, (16, 3, 256, 256), dtype=torch.uint8)
    mean, deviation = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])

    def prepare(images: Any) -> Any:
        x = images[:, :, 16:240, 16:240].float() / 255
        x = F.interpolate(x, size=(160, 160), mode="bilinear", align_corners=False)
        return ((x - mean[:, None, None]) / deviation[:, None, None]).flip(-1)

    function = wrap(prepare)

    def step() -> Any:
        with torch.no_grad():
            return function(images)

    return step


STEPS: dict[str, Callable[[Any, Wrap], Run]] = {
    "mixer": _mixer,
    "gnn": _gnn,
    "vit": _vit,
    "bert": _bert,
    "moe": _moe,
    "dlrm": _dlrm,
    "unet": _unet,
    "ragged": _ragged,
    "ppo": _ppo,
    "preprocessing": _preprocessing,
}
