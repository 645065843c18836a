"""The models that the compiler is measured with, for any library with PyTorch's API.

`make(torch, name)` gives a `Task`: the model, a function from a step's number to a batch, and the loss of a batch.
`small=True` gives the same architectures in sizes that train in a moment.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

NAMES = ("mlp", "classifier", "lstm", "resnet18", "gpt")


class Task(NamedTuple):
    model: Any
    batch: Callable[[int], tuple[Any, Any]]  # the inputs and targets of a step
    loss: Callable[[Any, Any], Any]  # of the model's result and the targets


def make(torch: Any, name: str, small: bool = False) -> Task:
    torch.manual_seed(0)
    makers = {
        "mlp": _mlp,
        "classifier": _classifier,
        "lstm": _lstm,
        "resnet18": _resnet18,
        "gpt": _gpt,
        "wide gpt": _wide_gpt,
    }
    return makers[name](torch, small)


def _classes(torch: Any, shape: tuple[int, ...], classes: int = 10) -> Callable[[int], tuple[Any, Any]]:
    """Batches that can be learnt: the class is where a fixed projection of the sample is largest."""
    torch.manual_seed(1)
    size = 1
    for n in shape[1:]:
        size *= n
    projection = torch.randn(size, classes)

    def batch(step: int) -> tuple[Any, Any]:
        torch.manual_seed(1000 + step % 8)
        x = torch.randn(*shape)
        return x, (x.flatten(1) @ projection).argmax(1)

    return batch


def _mlp(torch: Any, small: bool) -> Task:
    nn = torch.nn
    model = nn.Sequential(nn.Linear(100, 50), nn.ReLU(), nn.Linear(50, 10))
    return Task(model, _classes(torch, (32, 100)), nn.functional.cross_entropy)


def _classifier(torch: Any, small: bool) -> Task:
    nn = torch.nn
    width = 64 if small else 784
    model = nn.Sequential(
        nn.Linear(width, 256 if not small else 32), nn.ReLU(), nn.Linear(256 if not small else 32, 128 if not small else 16),
        nn.ReLU(), nn.Linear(128 if not small else 16, 10),
    )  # fmt: skip
    return Task(model, _classes(torch, (32, width)), nn.functional.cross_entropy)


def _lstm(torch: Any, small: bool) -> Task:
    nn = torch.nn
    features, hidden, steps = (8, 16, 6) if small else (64, 128, 32)

    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm = nn.LSTM(features, hidden, batch_first=True)
            self.head = nn.Linear(hidden, 10)

        def forward(self, x: Any) -> Any:
            return self.head(self.lstm(x)[0][:, -1])

    return Task(Recurrent(), _classes(torch, (16, steps, features)), nn.functional.cross_entropy)


def _resnet18(torch: Any, small: bool) -> Task:
    nn, F = torch.nn, torch.nn.functional
    first, side = (4, 8) if small else (64, 32)

    class Block(nn.Module):
        def __init__(self, channels: int, out_channels: int, stride: int) -> None:
            super().__init__()
            self.conv1 = nn.Conv2d(channels, out_channels, 3, stride, 1, bias=False)
            self.norm1 = nn.BatchNorm2d(out_channels)
            self.conv2 = nn.Conv2d(out_channels, out_channels, 3, 1, 1, bias=False)
            self.norm2 = nn.BatchNorm2d(out_channels)
            self.short = None
            if stride != 1 or channels != out_channels:
                self.short = nn.Sequential(
                    nn.Conv2d(channels, out_channels, 1, stride, bias=False), nn.BatchNorm2d(out_channels)
                )

        def forward(self, x: Any) -> Any:
            y = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x)))))
            return F.relu(y + (x if self.short is None else self.short(x)))

    class ResNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem = nn.Conv2d(3, first, 3, 1, 1, bias=False)
            self.norm = nn.BatchNorm2d(first)
            blocks, width = [], first
            for factor, stride in ((1, 1), (2, 2), (4, 2), (8, 2)):
                blocks += [Block(width, first * factor, stride), Block(first * factor, first * factor, 1)]
                width = first * factor
            self.body = nn.Sequential(*blocks)
            self.head = nn.Linear(width, 10)

        def forward(self, x: Any) -> Any:
            x = self.body(F.relu(self.norm(self.stem(x))))
            return self.head(F.adaptive_avg_pool2d(x, 1).flatten(1))

    return Task(ResNet(), _classes(torch, (16, 3, side, side)), F.cross_entropy)


def _gpt(torch: Any, small: bool) -> Task:
    return _gpt_of(torch, (32, 16, 2, 2, 16, 4) if small else (256, 256, 4, 4, 128, 8))


def _wide_gpt(torch: Any, small: bool) -> Task:
    """100 MB of parameters and few tokens: communication takes a part of the step that can be measured."""
    return _gpt_of(torch, (32, 32, 2, 2, 16, 1) if small else (256, 512, 8, 8, 64, 1))


def _gpt_of(torch: Any, sizes: tuple[int, ...]) -> Task:
    nn, F = torch.nn, torch.nn.functional
    vocabulary, d, heads, layers, length, size = sizes

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(d), nn.LayerNorm(d)
            self.qkv, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)
            self.up, self.down = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

        def forward(self, x: Any) -> Any:
            n, t, c = x.shape
            q, k, v = self.qkv(self.norm1(x)).split(c, dim=2)
            q, k, v = (z.view(n, t, heads, c // heads).transpose(1, 2) for z in (q, k, v))
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(y.transpose(1, 2).contiguous().view(n, t, c))
            return x + self.down(F.gelu(self.up(self.norm2(x))))

    class GPT(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tokens, self.positions = nn.Embedding(vocabulary, d), nn.Embedding(length, d)
            self.blocks = nn.ModuleList([Block() for _ in range(layers)])
            self.norm, self.head = nn.LayerNorm(d), nn.Linear(d, vocabulary, bias=False)

        def forward(self, tokens: Any) -> Any:
            x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1], device=tokens.device))
            for block in self.blocks:
                x = block(x)
            return self.head(self.norm(x))

    def batch(step: int) -> tuple[Any, Any]:
        torch.manual_seed(1000 + step % 8)
        tokens = torch.randint(0, vocabulary, (size, length))
        return tokens, (tokens * 7 + 3) % vocabulary

    return Task(GPT(), batch, lambda out, target: F.cross_entropy(out.view(-1, vocabulary), target.view(-1)))


def residual_network(torch: Any, depth: int) -> Any:
    """ResNet-18 or ResNet-50 for images of 224 x 224, in the published form."""
    nn = torch.nn
    deep, counts = depth == 50, {18: (2, 2, 2, 2), 50: (3, 4, 6, 3)}[depth]
    expansion = 4 if deep else 1

    def unit(inputs: int, outputs: int, kernel: int, stride: int = 1, active: bool = True) -> list[Any]:
        convolution = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False)
        return [convolution, nn.BatchNorm2d(outputs), *([nn.ReLU()] if active else [])]

    class Block(nn.Module):
        def __init__(self, inputs: int, width: int, stride: int) -> None:
            super().__init__()
            outputs = width * expansion
            layers = unit(inputs, width, 1) + unit(width, width, 3, stride) if deep else unit(inputs, width, 3, stride)
            self.body = nn.Sequential(*layers, *unit(width, outputs, 1 if deep else 3, 1, False))
            direct = stride == 1 and inputs == outputs
            self.short = nn.Identity() if direct else nn.Sequential(*unit(inputs, outputs, 1, stride, False))
            self.relu = nn.ReLU()

        def forward(self, x: Any) -> Any:
            return self.relu(self.body(x) + self.short(x))

    blocks, inputs = [], 64
    for stage, count in enumerate(counts):
        for i in range(count):
            blocks.append(Block(inputs, 64 << stage, 2 if stage and i == 0 else 1))
            inputs = (64 << stage) * expansion
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, 1000)]
    return nn.Sequential(*unit(3, 64, 7, 2), nn.MaxPool2d(3, 2, 1), *blocks, *head)
