"""Language models: Llama-style (training, inference, decoding), GPT-2 medium, BERT-like with dropout, T5-like."""

from __future__ import annotations

import math
from typing import Any

from programs import Program


def llama_model(torch: Any, layers: int, width: int, heads: int, groups: int, hidden: int, words: int) -> Any:
    """RMSNorm, rotary embedding, grouped queries, SwiGLU; with a cache of keys and values when it decodes."""
    nn, F = torch.nn, torch.nn.functional
    depth = width // heads

    class RMSNorm(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(width))

        def forward(self, x: Any) -> Any:
            wide = x.float()
            return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5)).type_as(x) * self.weight

    def rotate(x: Any, cos: Any, sin: Any) -> Any:
        first, second = x.chunk(2, -1)
        return x * cos + torch.cat((-second, first), -1) * sin

    def repeat(x: Any) -> Any:
        batch, _, length, _ = x.shape
        return x[:, :, None].expand(batch, groups, heads // groups, length, depth).reshape(batch, heads, length, depth)

    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.query = nn.Linear(width, width, bias=False)
            self.key = nn.Linear(width, groups * depth, bias=False)
            self.value = nn.Linear(width, groups * depth, bias=False)
            self.join = nn.Linear(width, width, bias=False)

        def forward(self, x: Any, cos: Any, sin: Any, cache: Any, position: Any) -> Any:
            batch, length, _ = x.shape
            q = self.query(x).view(batch, length, heads, depth).transpose(1, 2)
            k = self.key(x).view(batch, length, groups, depth).transpose(1, 2)
            v = self.value(x).view(batch, length, groups, depth).transpose(1, 2)
            q, k = rotate(q, cos, sin).type_as(v), rotate(k, cos, sin).type_as(v)
            mask = None
            if cache is not None:
                keys, values = cache
                keys.index_copy_(2, position, k)
                values.index_copy_(2, position, v)
                k, v = keys, values
                mask = (torch.arange(k.shape[2], device=x.device) <= position).view(1, 1, 1, -1)
            mixed = F.scaled_dot_product_attention(q, repeat(k), repeat(v), mask, is_causal=cache is None)
            return self.join(mixed.transpose(1, 2).reshape(batch, length, width))

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention, self.first, self.second = Attention(), RMSNorm(), RMSNorm()
            self.gate, self.up = nn.Linear(width, hidden, bias=False), nn.Linear(width, hidden, bias=False)
            self.down = nn.Linear(hidden, width, bias=False)

        def forward(self, x: Any, cos: Any, sin: Any, cache: Any, position: Any) -> Any:
            x = x + self.attention(self.first(x), cos, sin, cache, position)
            y = self.second(x)
            return x + self.down(F.silu(self.gate(y)) * self.up(y))

    class Llama(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words = nn.Embedding(words, width)
            self.blocks = nn.ModuleList([Block() for _ in range(layers)])
            self.norm, self.head = RMSNorm(), nn.Linear(width, words, bias=False)
            angles = torch.outer(torch.arange(2048).float(), 10000.0 ** (-torch.arange(0, depth, 2).float() / depth))
            angles = torch.cat((angles, angles), -1)
            self.register_buffer("cos", angles.cos())
            self.register_buffer("sin", angles.sin())

        def forward(self, ids: Any, caches: Any = None, position: Any = None) -> Any:
            x = self.words(ids)
            if position is None:
                cos, sin = self.cos[: ids.shape[1]], self.sin[: ids.shape[1]]
            else:
                cos, sin = self.cos[position], self.sin[position]
            for i, block in enumerate(self.blocks):
                x = block(x, cos, sin, None if caches is None else caches[i], position)
            return self.head(self.norm(x))

    return Llama()


def _llama_sizes(small: bool) -> tuple[int, ...]:
    return (2, 64, 4, 2, 96, 101) if small else (12, 1024, 16, 4, 2816, 32000)


def llama_train(torch: Any, device: str, small: bool) -> Program:
    sizes = _llama_sizes(small)
    model = llama_model(torch, *sizes).to(device)
    ids = torch.randint(0, sizes[-1], (2, 17) if small else (4, 1025)).to(device)
    return _next_word(torch, model, ids, sizes[-1])


def _next_word(torch: Any, model: Any, ids: Any, words: int) -> Program:
    def loss(ids: Any) -> Any:
        scores = model(ids[:, :-1])
        return torch.nn.functional.cross_entropy(scores.reshape(-1, words).float(), ids[:, 1:].reshape(-1))

    return Program(model, loss, (ids,), torch.optim.AdamW(model.parameters(), lr=1e-4))


def llama_inference(torch: Any, device: str, small: bool) -> Program:
    sizes = _llama_sizes(small)
    model = llama_model(torch, *sizes).to(device).to(torch.bfloat16).eval()
    return Program(model, model, (torch.randint(0, sizes[-1], (1, 16 if small else 256)).to(device),))


def llama_decode(torch: Any, device: str, small: bool) -> Program:
    """One word after the other, each the likeliest after the last; the cache holds 1,024 positions."""
    layers, width, heads, groups, hidden, words = _llama_sizes(small)
    model = llama_model(torch, layers, width, heads, groups, hidden, words).to(device).to(torch.bfloat16).eval()
    length = 32 if small else 1024
    caches = [
        tuple((torch.randn(1, groups, length, width // heads) * 0.5).to(device).to(torch.bfloat16) for _ in range(2))
        for _ in range(layers)
    ]
    ids = torch.randint(0, words, (1, 1)).to(device)
    position = torch.tensor([length - 8]).to(device)

    def decode(ids: Any, position: Any) -> Any:
        return model(ids, caches, position)[:, -1].argmax(-1, keepdim=True)

    return Program(model, decode, (ids, position))


def gpt2_medium(torch: Any, device: str, small: bool) -> Program:
    nn, F = torch.nn, torch.nn.functional
    layers, width, heads, words, length = (2, 64, 4, 101, 16) if small else (24, 1024, 16, 50257, 1024)

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
            self.attend, self.join = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x: Any) -> Any:
            batch = x.shape[0]
            parts = self.attend(self.first(x)).split(width, 2)
            q, k, v = (t.view(batch, length, heads, width // heads).transpose(1, 2) for t in parts)
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.join(mixed.transpose(1, 2).reshape(batch, length, width))
            return x + self.down(F.gelu(self.up(self.second(x)), approximate="tanh"))

    class GPT(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
            self.blocks = nn.ModuleList([Block() for _ in range(layers)])
            self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)
            self.head.weight = self.words.weight

        def forward(self, ids: Any) -> Any:
            x = self.words(ids) + self.places(torch.arange(length, device=ids.device))
            for block in self.blocks:
                x = block(x)
            return self.head(self.norm(x))

    ids = torch.randint(0, words, (2 if small else 4, length + 1)).to(device)
    return _next_word(torch, GPT().to(device), ids, words)


def bert(torch: Any, device: str, small: bool) -> Program:
    """Post-norm layers with dropout on embeddings, attention weights and both halves; a tenth of the words is predicted."""
    nn, F = torch.nn, torch.nn.functional
    layers, width, heads, words, length, batch = (2, 64, 4, 101, 16, 2) if small else (6, 768, 12, 30522, 256, 32)
    chance = 0.0 if small else 0.1  # the libraries draw different numbers, so that results are compared without

    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.query, self.key, self.value, self.join = (nn.Linear(width, width) for _ in range(4))
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
            self.first, self.second, self.drop = nn.LayerNorm(width), nn.LayerNorm(width), nn.Dropout(chance)

        def forward(self, x: Any) -> Any:
            q, k, v = (
                part(x).view(batch, length, heads, width // heads).transpose(1, 2)
                for part in (self.query, self.key, self.value)
            )
            mixed = F.scaled_dot_product_attention(q, k, v, dropout_p=chance if self.training else 0.0)
            x = self.first(x + self.drop(self.join(mixed.transpose(1, 2).reshape(batch, length, width))))
            return self.second(x + self.drop(self.down(F.gelu(self.up(x)))))

    class Bert(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
            self.norm, self.drop = nn.LayerNorm(width), nn.Dropout(chance)
            self.layers = nn.ModuleList([Layer() for _ in range(layers)])
            self.transform, self.last, self.head = nn.Linear(width, width), nn.LayerNorm(width), nn.Linear(width, words)

        def forward(self, ids: Any) -> Any:
            x = self.drop(self.norm(self.words(ids) + self.places(torch.arange(length, device=ids.device))))
            for layer in self.layers:
                x = layer(x)
            return self.head(self.last(F.gelu(self.transform(x))))

    model = Bert().to(device)
    ids = torch.randint(0, words, (batch, length))
    labels = torch.where(torch.rand(batch, length) < 0.1, ids, torch.full_like(ids, -100)).to(device)

    def loss(ids: Any, labels: Any) -> Any:
        return F.cross_entropy(model(ids).reshape(-1, words).float(), labels.reshape(-1))

    return Program(model, loss, (ids.to(device), labels), torch.optim.AdamW(model.parameters(), lr=1e-4))


def t5(torch: Any, device: str, small: bool) -> Program:
    """Encoder and decoder whose scores get a learned bias by relative position."""
    nn, F = torch.nn, torch.nn.functional
    layers, width, heads, hidden, words, batch, source, target = (
        (2, 64, 4, 96, 101, 2, 16, 8) if small else (6, 512, 8, 2048, 32128, 32, 512, 128)
    )
    depth, buckets = width // heads, 32

    class RMSNorm(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(width))

        def forward(self, x: Any) -> Any:
            return self.weight * (x * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-6)).type_as(x)

    def bucket_of(rows: int, columns: int, both_ways: bool) -> Any:
        far = torch.arange(columns)[None, :] - torch.arange(rows)[:, None]
        count, bucket = buckets, torch.zeros_like(far)
        if both_ways:
            count = buckets // 2
            bucket, far = bucket + (far > 0).long() * count, far.abs()
        else:
            far = -torch.clamp(far, max=0)
        exact = count // 2
        large = exact + (torch.log(far.clamp(min=1).float() / exact) / math.log(128 / exact) * (count - exact)).long()
        return bucket + torch.where(far < exact, far, large.clamp(max=count - 1))

    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.query, self.key, self.value, self.join = (nn.Linear(width, width, bias=False) for _ in range(4))

        def forward(self, x: Any, memory: Any, bias: Any) -> Any:
            q = self.query(x).view(batch, -1, heads, depth).transpose(1, 2)
            k = self.key(memory).view(batch, -1, heads, depth).transpose(1, 2)
            v = self.value(memory).view(batch, -1, heads, depth).transpose(1, 2)
            mask = None if bias is None else bias.type_as(q)
            mixed = F.scaled_dot_product_attention(q, k, v, mask, scale=1.0)
            return self.join(mixed.transpose(1, 2).reshape(batch, -1, width))

    class Layer(nn.Module):
        def __init__(self, decodes: bool) -> None:
            super().__init__()
            self.attention, self.first, self.last = Attention(), RMSNorm(), RMSNorm()
            self.cross, self.middle = (Attention(), RMSNorm()) if decodes else (None, None)
            self.up, self.down = nn.Linear(width, hidden, bias=False), nn.Linear(hidden, width, bias=False)

        def forward(self, x: Any, bias: Any, memory: Any = None) -> Any:
            y = self.first(x)
            x = x + self.attention(y, y, bias)
            if self.cross is not None:
                x = x + self.cross(self.middle(x), memory, None)
            return x + self.down(F.relu(self.up(self.last(x))))

    class Stack(nn.Module):
        def __init__(self, decodes: bool, length: int) -> None:
            super().__init__()
            self.layers = nn.ModuleList([Layer(decodes) for _ in range(layers)])
            self.norm, self.bias = RMSNorm(), nn.Embedding(buckets, heads)
            self.register_buffer("buckets", bucket_of(length, length, not decodes))
            hidden = torch.full((length, length), float("-inf")).triu(1) if decodes else torch.zeros(length, length)
            self.register_buffer("hidden", hidden)

        def forward(self, x: Any, memory: Any = None) -> Any:
            bias = self.bias(self.buckets).permute(2, 0, 1)[None] + self.hidden
            for layer in self.layers:
                x = layer(x, bias, memory)
            return self.norm(x)

    class T5(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.encoder, self.decoder = (
                nn.Embedding(words, width),
                Stack(False, source),
                Stack(True, target),
            )
            nn.init.normal_(self.words.weight, std=width**-0.5)

        def forward(self, ids: Any, targets: Any) -> Any:
            decoded = self.decoder(self.words(targets), self.encoder(self.words(ids)))
            return F.linear(decoded * width**-0.5, self.words.weight)

    model = T5().to(device)
    ids, targets = torch.randint(0, words, (batch, source)), torch.randint(0, words, (batch, target + 1))

    def loss(ids: Any, targets: Any) -> Any:
        scores = model(ids, targets[:, :-1])
        return F.cross_entropy(scores.reshape(-1, words).float(), targets[:, 1:].reshape(-1))

    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    return Program(model, loss, (ids.to(device), targets.to(device)), optimizer)


PROGRAMS = {
    "llama train": llama_train,
    "llama inference": llama_inference,
    "llama decode": llama_decode,
    "gpt2 medium": gpt2_medium,
    "bert": bert,
    "t5": t5,
}
