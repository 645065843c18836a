"""Recurrences: a language model of two LSTM layers, and state spaces (Mamba-like) computed in chunks."""

from __future__ import annotations

from typing import Any

from programs import Program


def lstm(torch: Any, device: str, small: bool) -> Program:
    nn, F = torch.nn, torch.nn.functional
    words, width, hidden, batch, length = (101, 32, 48, 2, 8) if small else (10000, 512, 1024, 64, 128)

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.lstm = nn.Embedding(words, width), nn.LSTM(width, hidden, 2, batch_first=True)
            self.head = nn.Linear(hidden, words)

        def forward(self, ids: Any) -> Any:
            return self.head(self.lstm(self.words(ids))[0])

    model = Model().to(device)
    ids = torch.randint(0, words, (batch, length + 1)).to(device)

    def loss(ids: Any) -> Any:
        return F.cross_entropy(model(ids[:, :-1]).reshape(-1, words).float(), ids[:, 1:].reshape(-1))

    return Program(model, loss, (ids,), torch.optim.AdamW(model.parameters(), lr=1e-4))


def mamba(torch: Any, device: str, small: bool) -> Program:
    """Layers whose state decays by a factor that each step chooses: products within chunks, a scan over chunks."""
    nn, F = torch.nn, torch.nn.functional
    layers, width, depth, states, chunk, words, batch, length = (
        (2, 32, 16, 8, 4, 101, 2, 16) if small else (12, 768, 64, 64, 64, 32000, 8, 1024)
    )
    inner = 2 * width
    heads = inner // depth

    def sums_between(x: Any) -> Any:
        """Sums of x from after each column's place to each row's, minus infinity above the diagonal."""
        size, total = x.shape[-1], x.cumsum(-1)
        below = torch.ones(size, size, dtype=torch.bool, device=x.device).tril()
        return (total[..., :, None] - total[..., None, :]).masked_fill(~below, float("-inf"))

    def scan(x: Any, decay: Any, b: Any, c: Any) -> Any:
        """(batch, length, heads, depth), logarithms (batch, length, heads), two (batch, length, states)."""
        batch, count = x.shape[0], length // chunk
        x = x.view(batch, count, chunk, heads, depth).permute(0, 3, 1, 2, 4)
        decay = decay.view(batch, count, chunk, heads).permute(0, 3, 1, 2)
        b, c = (t.view(batch, 1, count, chunk, states) for t in (b, c))
        total = decay.cumsum(-1)
        within = (c @ b.transpose(-1, -2)) * torch.exp(sums_between(decay)).type_as(x)
        outputs = within @ x
        left = (b * torch.exp(total[..., -1:] - total)[..., None].type_as(x)).transpose(-1, -2) @ x
        ends = F.pad(total[..., -1], (1, 0))
        carried = torch.exp(sums_between(ends)).type_as(x)[..., :-1, 1:]
        states_before = (carried @ left.flatten(3)).view(batch, heads, count, states, depth)
        outputs = outputs + (c * torch.exp(total)[..., None].type_as(x)) @ states_before
        return outputs.permute(0, 2, 3, 1, 4).reshape(batch, length, inner)

    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.LayerNorm(width)
            self.split = nn.Linear(width, 2 * inner + 2 * states + heads, bias=False)
            self.mix = nn.Conv1d(inner + 2 * states, inner + 2 * states, 4, padding=3, groups=inner + 2 * states)
            self.decay = nn.Parameter(torch.zeros(heads))
            self.skip = nn.Parameter(torch.ones(heads))
            self.last, self.join = nn.LayerNorm(inner), nn.Linear(inner, width, bias=False)

        def forward(self, x: Any) -> Any:
            z, y, step = self.split(self.norm(x)).split((inner, inner + 2 * states, heads), -1)
            y = F.silu(self.mix(y.transpose(1, 2))[..., :length].transpose(1, 2))
            y, b, c = y.split((inner, states, states), -1)
            step = F.softplus(step.float())
            y = y.reshape(y.shape[0], length, heads, depth)
            outputs = scan(y * step[..., None].type_as(y), -self.decay.exp() * step, b, c)
            outputs = outputs + (y * self.skip[:, None]).flatten(2)
            return x + self.join(self.last(outputs * F.silu(z)))

    class Mamba(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.layers = nn.Embedding(words, width), nn.ModuleList([Layer() for _ in range(layers)])
            self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)

        def forward(self, ids: Any) -> Any:
            x = self.words(ids)
            for layer in self.layers:
                x = layer(x)
            return self.head(self.norm(x))

    model = Mamba().to(device)
    ids = torch.randint(0, words, (batch, length + 1)).to(device)

    def loss(ids: Any) -> Any:
        return F.cross_entropy(model(ids[:, :-1]).reshape(-1, words).float(), ids[:, 1:].reshape(-1))

    return Program(model, loss, (ids,), torch.optim.AdamW(model.parameters(), lr=1e-4))


PROGRAMS = {"lstm": lstm, "mamba": mamba}
