"""Sparse models: clicks from tables of embeddings (DLRM), and a language model with a mixture of experts (Mixtral-like)."""

from __future__ import annotations

import itertools
from typing import Any

from programs import Program


def dlrm(torch: Any, device: str, small: bool) -> Program:
    nn, F = torch.nn, torch.nn.functional
    tables, rows, width, batch = (4, 50, 8, 6) if small else (26, 100000, 64, 8192)

    def layers(*sizes: int) -> Any:
        parts: list[Any] = []
        for one, two in itertools.pairwise(sizes):
            parts += [nn.Linear(one, two), nn.ReLU()]
        return nn.Sequential(*parts)

    class DLRM(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tables = nn.ModuleList([nn.Embedding(rows, width) for _ in range(tables)])
            self.bottom = layers(13, 512, 256, width)
            self.top = layers((tables + 1) * tables // 2 + width, 1024, 512, 256)
            self.last = nn.Linear(256, 1)
            self.register_buffer("pairs", torch.tril_indices(tables + 1, tables + 1, -1))

        def forward(self, dense: Any, sparse: Any) -> Any:
            x = self.bottom(dense)
            features = torch.stack([x, *(t(sparse[:, i]).type_as(x) for i, t in enumerate(self.tables))], 1)
            products = features @ features.transpose(1, 2)
            flat = products[:, self.pairs[0], self.pairs[1]]
            return self.last(self.top(torch.cat((x, flat), 1)))[:, 0]

    model = DLRM().to(device)
    dense, sparse = torch.randn(batch, 13).to(device), torch.randint(0, rows, (batch, tables)).to(device)
    clicks = torch.randint(0, 2, (batch,)).float().to(device)

    def loss(dense: Any, sparse: Any, clicks: Any) -> Any:
        return F.binary_cross_entropy_with_logits(model(dense, sparse).float(), clicks)

    return Program(model, loss, (dense, sparse, clicks), torch.optim.SGD(model.parameters(), lr=0.01))


def mixtral(torch: Any, device: str, small: bool) -> Program:
    """Each token goes to two of eight experts, up to the room that an expert has."""
    nn, F = torch.nn, torch.nn.functional
    layers, width, heads, hidden, experts, words, batch, length = (
        (2, 32, 4, 48, 4, 101, 2, 16) if small else (8, 768, 12, 2048, 8, 32000, 4, 1024)
    )
    room = 2 * batch * length // experts * 5 // 4

    class Experts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.route = nn.Linear(width, experts, bias=False)
            self.gate, self.up = (nn.Parameter(torch.randn(experts, width, hidden) * width**-0.5) for _ in range(2))
            self.down = nn.Parameter(torch.randn(experts, hidden, width) * hidden**-0.5)

        def forward(self, x: Any) -> Any:
            flat = x.reshape(-1, width)
            chance, chosen = torch.topk(torch.softmax(self.route(flat).float(), -1), 2, -1)
            chance = chance / chance.sum(-1, keepdim=True)
            picks = F.one_hot(chosen.flatten(), experts)
            place = ((picks.cumsum(0) - 1) * picks).sum(-1)
            has_room = place < room
            slot = torch.where(has_room, chosen.flatten() * room + place, experts * room)
            tokens = flat.repeat_interleave(2, 0)
            sent = flat.new_zeros(experts * room + 1, width).index_copy(0, slot, tokens)
            sent = sent[:-1].view(experts, room, width)
            outputs = (F.silu(sent @ self.gate) * (sent @ self.up)) @ self.down
            back = outputs.view(-1, width)[torch.where(has_room, slot, 0)]
            back = back * (chance.flatten() * has_room)[:, None].type_as(back)
            return back.view(-1, 2, width).sum(1).view_as(x)

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second, self.experts = nn.RMSNorm(width), nn.RMSNorm(width), Experts()
            self.attend, self.join = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)

        def forward(self, x: Any) -> Any:
            parts = self.attend(self.first(x)).split(width, 2)
            q, k, v = (t.view(batch, length, heads, width // heads).transpose(1, 2) for t in parts)
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.join(mixed.transpose(1, 2).reshape(batch, length, width))
            return x + self.experts(self.second(x))

    class Mixtral(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.blocks = nn.Embedding(words, width), nn.ModuleList([Block() for _ in range(layers)])
            self.norm, self.head = nn.RMSNorm(width), nn.Linear(width, words, bias=False)

        def forward(self, ids: Any) -> Any:
            x = self.words(ids)
            for block in self.blocks:
                x = block(x)
            return self.head(self.norm(x))

    model = Mixtral().to(device)
    ids = torch.randint(0, words, (batch, length + 1)).to(device)

    def loss(ids: Any) -> Any:
        return F.cross_entropy(model(ids[:, :-1]).reshape(-1, words).float(), ids[:, 1:].reshape(-1))

    return Program(model, loss, (ids,), torch.optim.AdamW(model.parameters(), lr=1e-4))


PROGRAMS = {"dlrm": dlrm, "mixtral": mixtral}
