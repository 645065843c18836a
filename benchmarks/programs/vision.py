"""Classifiers of images, in channels-last memory where they have convolutions: ViT-B/16, ResNet-50, ConvNeXt-T, Swin-T."""

from __future__ import annotations

from typing import Any

from programs import Program


def _classes(torch: Any, model: Any, device: str, batch: int, side: int, classes: int, channels_last: bool) -> Program:
    """A training step of a classifier of random images."""
    model = model.to(device)
    images = torch.randn(batch, 3, side, side).to(device)
    if channels_last:
        model = model.to(memory_format=torch.channels_last)
        images = images.contiguous(memory_format=torch.channels_last)
    labels = torch.randint(0, classes, (batch,)).to(device)

    def loss(images: Any, labels: Any) -> Any:
        return torch.nn.functional.cross_entropy(model(images), labels)

    return Program(model, loss, (images, labels), torch.optim.AdamW(model.parameters(), lr=1e-4))


def vit(torch: Any, device: str, small: bool) -> Program:
    """196 tokens, averaged before the classifier."""
    nn, F = torch.nn, torch.nn.functional
    layers, width, heads, side, patch, batch, classes = (
        (2, 64, 4, 28, 4, 2, 10) if small else (12, 768, 12, 224, 16, 64, 1000)
    )

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
            self.attend, self.join = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x: Any) -> Any:
            batch, length, _ = x.shape
            q, k, v = self.attend(self.first(x)).view(batch, length, 3, heads, width // heads).permute(2, 0, 3, 1, 4)
            mixed = F.scaled_dot_product_attention(q, k, v)
            x = x + self.join(mixed.transpose(1, 2).reshape(batch, length, width))
            return x + self.down(F.gelu(self.up(self.second(x))))

    class ViT(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.patches = nn.Conv2d(3, width, patch, patch)
            self.places = nn.Parameter(torch.randn(1, (side // patch) ** 2, width) * 0.02)
            self.blocks = nn.ModuleList([Block() for _ in range(layers)])
            self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, classes)

        def forward(self, images: Any) -> Any:
            x = self.patches(images).flatten(2).transpose(1, 2) + self.places
            for block in self.blocks:
                x = block(x)
            return self.head(self.norm(x).mean(1))

    return _classes(torch, ViT(), device, batch, side, classes, channels_last=False)


def resnet50(torch: Any, device: str, small: bool) -> Program:
    nn, F = torch.nn, torch.nn.functional
    depths, first, side, batch, classes = ((1, 1), 8, 32, 2, 10) if small else ((3, 4, 6, 3), 64, 224, 64, 1000)

    class Bottleneck(nn.Module):
        def __init__(self, channels: int, width: int, stride: int) -> None:
            super().__init__()
            self.one, self.norm_one = nn.Conv2d(channels, width, 1, bias=False), nn.BatchNorm2d(width)
            self.two, self.norm_two = nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width)
            self.three, self.norm_three = nn.Conv2d(width, 4 * width, 1, bias=False), nn.BatchNorm2d(4 * width)
            self.side = None
            if stride != 1 or channels != 4 * width:
                self.side = nn.Sequential(
                    nn.Conv2d(channels, 4 * width, 1, stride, bias=False), nn.BatchNorm2d(4 * width)
                )

        def forward(self, x: Any) -> Any:
            y = F.relu(self.norm_one(self.one(x)))
            y = F.relu(self.norm_two(self.two(y)))
            y = self.norm_three(self.three(y))
            return F.relu(y + (x if self.side is None else self.side(x)))

    class ResNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem = nn.Sequential(
                nn.Conv2d(3, first, 7, 2, 3, bias=False), nn.BatchNorm2d(first), nn.ReLU(), nn.MaxPool2d(3, 2, 1)
            )
            stages, channels = [], first
            for i, depth in enumerate(depths):
                for j in range(depth):
                    stages.append(Bottleneck(channels, first << i, 2 if i and not j else 1))
                    channels = 4 * (first << i)
            self.stages, self.head = nn.Sequential(*stages), nn.Linear(channels, classes)

        def forward(self, images: Any) -> Any:
            return self.head(self.stages(self.stem(images)).mean((2, 3)))

    return _classes(torch, ResNet(), device, batch, side, classes, channels_last=True)


def convnext(torch: Any, device: str, small: bool) -> Program:
    nn, F = torch.nn, torch.nn.functional
    depths, widths, side, batch, classes = (
        ((1, 1), (16, 32), 32, 2, 10) if small else ((3, 3, 9, 3), (96, 192, 384, 768), 224, 64, 1000)
    )

    class Block(nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.spread = nn.Conv2d(width, width, 7, padding=3, groups=width)
            self.norm = nn.LayerNorm(width, eps=1e-6)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
            self.scale = nn.Parameter(torch.full((width,), 1e-2))

        def forward(self, x: Any) -> Any:
            y = self.norm(self.spread(x).permute(0, 2, 3, 1))
            return x + (self.scale * self.down(F.gelu(self.up(y)))).permute(0, 3, 1, 2)

    class Shrink(nn.Module):
        def __init__(self, channels: int, width: int) -> None:
            super().__init__()
            self.norm, self.join = nn.LayerNorm(channels, eps=1e-6), nn.Conv2d(channels, width, 2, 2)

        def forward(self, x: Any) -> Any:
            return self.join(self.norm(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2))

    class ConvNeXt(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem, self.first = nn.Conv2d(3, widths[0], 4, 4), nn.LayerNorm(widths[0], eps=1e-6)
            stages: list[Any] = []
            for i, (depth, width) in enumerate(zip(depths, widths)):
                stages += [Shrink(widths[i - 1], width)] if i else []
                stages += [Block(width) for _ in range(depth)]
            self.stages = nn.Sequential(*stages)
            self.norm, self.head = nn.LayerNorm(widths[-1], eps=1e-6), nn.Linear(widths[-1], classes)

        def forward(self, images: Any) -> Any:
            x = self.first(self.stem(images).permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
            return self.head(self.norm(self.stages(x).mean((2, 3))))

    return _classes(torch, ConvNeXt(), device, batch, side, classes, channels_last=True)


def swin(torch: Any, device: str, small: bool) -> Program:
    """Attention within windows of 7 by 7, every second layer with shifted windows, and a learned bias by distance."""
    nn, F = torch.nn, torch.nn.functional
    depths, first, side, window, batch, classes = (
        ((2, 2), 32, 32, 4, 2, 10) if small else ((2, 2, 6, 2), 96, 224, 7, 64, 1000)
    )
    area = window * window

    def places() -> Any:
        grid = torch.stack(torch.meshgrid(torch.arange(window), torch.arange(window), indexing="ij")).flatten(1)
        far = grid[:, :, None] - grid[:, None, :] + window - 1
        return far[0] * (2 * window - 1) + far[1]

    def hidden_between(size: int, shift: int) -> Any:
        """For each window which of its tokens were neighbours before the shift."""
        part = torch.zeros(size, size)
        edges = (slice(0, -window), slice(-window, -shift), slice(-shift, None))
        for i, rows in enumerate(edges):
            for j, columns in enumerate(edges):
                part[rows, columns] = 3 * i + j
        part = part.view(size // window, window, size // window, window).transpose(1, 2).reshape(-1, area)
        return torch.where(part[:, None] == part[:, :, None], 0.0, -100.0)

    class Block(nn.Module):
        def __init__(self, width: int, size: int, shift: int) -> None:
            super().__init__()
            self.heads, self.size, self.shift = width // 32 if not small else 2, size, shift
            self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
            self.attend, self.join = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
            self.bias = nn.Parameter(torch.randn((2 * window - 1) ** 2, self.heads) * 0.02)
            self.register_buffer("places", places())
            self.register_buffer("hidden", hidden_between(size, shift) if shift else None)

        def mix(self, x: Any) -> Any:
            """Attention within windows, (windows, tokens, width)."""
            windows, _, width = x.shape
            q, k, v = self.attend(x).view(windows, area, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
            bias = self.bias[self.places.view(-1)].view(area, area, self.heads).permute(2, 0, 1)[None]
            if self.hidden is not None:
                count = self.hidden.shape[0]
                bias = (bias + self.hidden[:, None]).repeat(windows // count, 1, 1, 1)
            mixed = F.scaled_dot_product_attention(q, k, v, bias.type_as(q))
            return self.join(mixed.transpose(1, 2).reshape(windows, area, width))

        def forward(self, x: Any) -> Any:
            batch, size, _, width = x.shape
            y, count = self.first(x), size // window
            if self.shift:
                y = torch.roll(y, (-self.shift, -self.shift), (1, 2))
            y = y.view(batch, count, window, count, window, width).transpose(2, 3).reshape(-1, area, width)
            y = self.mix(y).view(batch, count, count, window, window, width).transpose(2, 3)
            y = y.reshape(batch, size, size, width)
            if self.shift:
                y = torch.roll(y, (self.shift, self.shift), (1, 2))
            x = x + y
            return x + self.down(F.gelu(self.up(self.second(x))))

    class Merge(nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.norm, self.join = nn.LayerNorm(4 * width), nn.Linear(4 * width, 2 * width, bias=False)

        def forward(self, x: Any) -> Any:
            parts = (x[:, 0::2, 0::2], x[:, 1::2, 0::2], x[:, 0::2, 1::2], x[:, 1::2, 1::2])
            return self.join(self.norm(torch.cat(parts, -1)))

    class Swin(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem, self.first = nn.Conv2d(3, first, 4, 4), nn.LayerNorm(first)
            stages: list[Any] = []
            size, width = side // 4, first
            for i, depth in enumerate(depths):
                if i:
                    stages.append(Merge(width))
                    size, width = size // 2, 2 * width
                stages += [Block(width, size, window // 2 if j % 2 and size > window else 0) for j in range(depth)]
            self.stages = nn.Sequential(*stages)
            self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, classes)

        def forward(self, images: Any) -> Any:
            x = self.first(self.stem(images).permute(0, 2, 3, 1))
            return self.head(self.norm(self.stages(x)).mean((1, 2)))

    return _classes(torch, Swin(), device, batch, side, classes, channels_last=False)


PROGRAMS = {"vit": vit, "resnet50": resnet50, "convnext": convnext, "swin": swin}
