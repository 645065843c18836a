"""Denoisers of images: a U-Net of convolutions with GroupNorm and SiLU, and a transformer (DiT-B/2)."""

from __future__ import annotations

import math
from typing import Any

from programs import Program


def _times(torch: Any, steps: Any, width: int) -> Any:
    """Sines and cosines of the steps."""
    rates = torch.exp(torch.arange(width // 2, device=steps.device) * (-math.log(10000.0) / (width // 2)))
    angles = steps.float()[:, None] * rates[None]
    return torch.cat((angles.sin(), angles.cos()), -1)


def _denoise(torch: Any, model: Any, device: str, shape: tuple[int, ...], channels_last: bool) -> Program:
    """A training step that predicts the noise."""
    model = model.to(device)
    images, noise = torch.randn(*shape).to(device), torch.randn(*shape).to(device)
    if channels_last:
        model = model.to(memory_format=torch.channels_last)
        images, noise = (t.contiguous(memory_format=torch.channels_last) for t in (images, noise))
    steps = torch.randint(0, 1000, (shape[0],)).to(device)
    labels = torch.randint(0, 10, (shape[0],)).to(device)

    def loss(images: Any, noise: Any, steps: Any, labels: Any) -> Any:
        signal = torch.cos(steps.float() * (math.pi / 2000))[:, None, None, None]
        noisy = images * signal + noise * (1 - signal * signal).sqrt()
        return torch.nn.functional.mse_loss(model(noisy, steps, labels).float(), noise)

    return Program(model, loss, (images, noise, steps, labels), torch.optim.AdamW(model.parameters(), lr=1e-4))


def unet(torch: Any, device: str, small: bool) -> Program:
    nn, F = torch.nn, torch.nn.functional
    widths, groups, shape = ((16, 32), 4, (2, 3, 16, 16)) if small else ((64, 128, 256), 32, (32, 3, 64, 64))
    time = 4 * widths[0]

    class Residual(nn.Module):
        def __init__(self, channels: int, width: int) -> None:
            super().__init__()
            self.first, self.second = nn.GroupNorm(groups, channels), nn.GroupNorm(groups, width)
            self.one, self.two = nn.Conv2d(channels, width, 3, padding=1), nn.Conv2d(width, width, 3, padding=1)
            self.time = nn.Linear(time, width)
            self.side = nn.Conv2d(channels, width, 1) if channels != width else nn.Identity()

        def forward(self, x: Any, t: Any) -> Any:
            y = self.one(F.silu(self.first(x))) + self.time(F.silu(t))[:, :, None, None]
            return self.side(x) + self.two(F.silu(self.second(y)))

    class UNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.time = nn.Sequential(nn.Linear(widths[0], time), nn.SiLU(), nn.Linear(time, time))
            self.classes = nn.Embedding(10, time)
            self.stem = nn.Conv2d(3, widths[0], 3, padding=1)
            down, up, channels = [], [], widths[0]
            for width in widths:
                down.append(nn.ModuleList([Residual(channels, width), Residual(width, width)]))
                channels = width
            self.middle = Residual(channels, channels)
            for width in reversed(widths):
                up.append(nn.ModuleList([Residual(channels + width, width), Residual(width, width)]))
                channels = width
            self.down, self.up = nn.ModuleList(down), nn.ModuleList(up)
            self.shrink = nn.ModuleList([nn.Conv2d(w, w, 3, 2, 1) for w in widths[:-1]])
            self.norm, self.last = nn.GroupNorm(groups, channels), nn.Conv2d(channels, 3, 3, padding=1)

        def forward(self, x: Any, steps: Any, labels: Any) -> Any:
            t = self.time(_times(torch, steps, widths[0])) + self.classes(labels)
            x, left = self.stem(x), []
            for i, (one, two) in enumerate(self.down):
                x = two(one(x, t), t)
                left.append(x)
                if i < len(self.shrink):
                    x = self.shrink[i](x)
            x = self.middle(x, t)
            for i, (one, two) in enumerate(self.up):
                x = two(one(torch.cat((x, left.pop()), 1), t), t)
                if i < len(self.shrink):
                    x = F.interpolate(x, scale_factor=2.0, mode="nearest")
            return self.last(F.silu(self.norm(x)))

    return _denoise(torch, UNet(), device, shape, channels_last=True)


def dit(torch: Any, device: str, small: bool) -> Program:
    nn, F = torch.nn, torch.nn.functional
    layers, width, heads, patch, shape = (2, 64, 4, 2, (2, 4, 8, 8)) if small else (12, 768, 12, 2, (32, 4, 32, 32))
    side = shape[2] // patch

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.LayerNorm(width, elementwise_affine=False, eps=1e-6)
            self.second = nn.LayerNorm(width, elementwise_affine=False, eps=1e-6)
            self.attend, self.join = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
            self.modulate = nn.Sequential(nn.SiLU(), nn.Linear(width, 6 * width))

        def forward(self, x: Any, c: Any) -> Any:
            batch, length, _ = x.shape
            shift, scale, gate, shift_up, scale_up, gate_up = self.modulate(c)[:, None].chunk(6, -1)
            y = self.first(x) * (1 + scale) + shift
            q, k, v = self.attend(y).view(batch, length, 3, heads, width // heads).permute(2, 0, 3, 1, 4)
            mixed = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(batch, length, width)
            x = x + gate * self.join(mixed)
            y = self.second(x) * (1 + scale_up) + shift_up
            return x + gate_up * self.down(F.gelu(self.up(y), approximate="tanh"))

    class DiT(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.patches = nn.Conv2d(shape[1], width, patch, patch)
            self.places = nn.Parameter(torch.randn(1, side * side, width) * 0.02)
            self.time = nn.Sequential(nn.Linear(256, width), nn.SiLU(), nn.Linear(width, width))
            self.classes = nn.Embedding(10, width)
            self.blocks = nn.ModuleList([Block() for _ in range(layers)])
            self.norm = nn.LayerNorm(width, elementwise_affine=False, eps=1e-6)
            self.modulate = nn.Sequential(nn.SiLU(), nn.Linear(width, 2 * width))
            self.last = nn.Linear(width, patch * patch * shape[1])

        def forward(self, x: Any, steps: Any, labels: Any) -> Any:
            c = self.time(_times(torch, steps, 256)) + self.classes(labels)
            x = self.patches(x).flatten(2).transpose(1, 2) + self.places
            for block in self.blocks:
                x = block(x, c)
            shift, scale = self.modulate(c)[:, None].chunk(2, -1)
            x = self.last(self.norm(x) * (1 + scale) + shift)
            x = x.view(x.shape[0], side, side, patch, patch, shape[1]).permute(0, 5, 1, 3, 2, 4)
            return x.reshape(x.shape[0], shape[1], side * patch, side * patch)

    return _denoise(torch, DiT(), device, shape, channels_last=False)


PROGRAMS = {"unet": unet, "dit": dit}
