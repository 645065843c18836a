"""Modules for the C++ program of tests/runtime/script.cpp: each holds its inputs and its result. `deployed.py FOLDER` saves them.

Import this after `flambeau.as_torch` to save them with flambeau.
"""

import sys

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Holder(nn.Module):
    def __init__(self, inner, example):
        super().__init__()
        self.inner, self.example = inner, (example,)
        self.expected = inner(example).detach()

    def forward(self, x: Tensor):
        return self.inner(x)


class Control(nn.Module):
    """Control flow, lists, dicts, strings and a fork."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4) for _ in range(3)])
        self.names = {"first": 0, "last": 2}

    def branch(self, x: Tensor) -> Tensor:
        return torch.relu(x)

    def forward(self, x: Tensor) -> Tensor:
        seen: list[Tensor] = []
        for i, layer in enumerate(self.layers):
            if bool(x.mean() > 0) or i == self.names["last"]:
                x = layer(x)
            else:
                x = x + i
            seen.append(x)
        for j in range(9):
            if "{}".format(j) == "3":  # noqa: UP032
                break
            x = x + j
        future = torch.jit.fork(self.branch, x)
        steps = 0
        while bool(x.abs().max() > 1) and steps < 5:
            x = x / 2
            steps += 1
        seen.append(torch.jit.wait(future))
        return torch.cat(seen, 1) + steps


class Block(nn.Module):
    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        b, t, c = x.shape
        q, k, v = [
            p.view(b, t, self.heads, c // self.heads).transpose(1, 2)
            for p in self.qkv(self.norms[0](x)).split(c, dim=2)
        ]
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, c))
        return x + self.mlp(self.norms[1](x))


class Language(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.places = nn.Embedding(17, 16), nn.Embedding(8, 16)
        self.blocks = nn.Sequential(Block(16, 4), Block(16, 4))
        self.norm, self.head = nn.LayerNorm(16), nn.Linear(16, 17, bias=False)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.tokens(ids) + self.places(torch.arange(ids.size(1), device=ids.device))
        return self.head(self.norm(self.blocks(x)))


def convolutions():
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 8, 3, groups=2),
        nn.SiLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5),
    )  # fmt: skip


def save_all(folder):
    torch.manual_seed(0)
    models = {
        "mlp": (nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3), nn.Softmax(-1)), torch.randn(5, 6)),
        "convolutions": (convolutions(), torch.randn(2, 3, 10, 10)),
        "control": (Control(), torch.randn(2, 4)),
        "language": (Language(), torch.randint(0, 17, (2, 8))),
    }
    for name, (model, example) in models.items():
        model.eval()
        torch.jit.script(Holder(model, example).eval()).save(f"{folder}/{name}.pt")
        if name != "control":
            traced = torch.jit.trace(model, example)
            torch.jit.script(Holder(traced, example).eval()).save(f"{folder}/traced_{name}.pt")


if __name__ == "__main__":
    save_all(sys.argv[1])
