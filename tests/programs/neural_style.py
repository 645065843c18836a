"""A network that repaints images: features of a fixed network say what is kept and which style is wanted."""

from collections import namedtuple

import torch
import torch.nn as nn
from common import initialise, numbers, report
from torch.optim import Adam


class Features(nn.Module):
    def __init__(self):
        super().__init__()
        self.slices = nn.ModuleList(
            [
                nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU()),
                nn.Sequential(nn.MaxPool2d(2), nn.Conv2d(8, 16, 3, padding=1), nn.ReLU()),
            ]
        )
        for p in self.parameters():
            p.requires_grad = False

    def forward(self, x):
        found = []
        for part in self.slices:
            x = part(x)
            found.append(x)
        return namedtuple("Outputs", ["low", "high"])(*found)


class ConvLayer(nn.Module):
    def __init__(self, inputs, outputs, kernel, stride):
        super().__init__()
        self.pad = nn.ReflectionPad2d(kernel // 2)
        self.conv = nn.Conv2d(inputs, outputs, kernel, stride)

    def forward(self, x):
        return self.conv(self.pad(x))


class Residual(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv1, self.in1 = ConvLayer(channels, channels, 3, 1), nn.InstanceNorm2d(channels, affine=True)
        self.conv2, self.in2 = ConvLayer(channels, channels, 3, 1), nn.InstanceNorm2d(channels, affine=True)

    def forward(self, x):
        return self.in2(self.conv2(torch.relu(self.in1(self.conv1(x))))) + x


class Upsample(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.layer = ConvLayer(inputs, outputs, 3, 1)

    def forward(self, x):
        return self.layer(nn.functional.interpolate(x, mode="nearest", scale_factor=2))


def gram(y):
    b, c, h, w = y.size()
    features = y.view(b, c, w * h)
    return features.bmm(features.transpose(1, 2)) / (c * h * w)


def main():
    network = initialise(
        nn.Sequential(
            ConvLayer(3, 8, 5, 1), nn.InstanceNorm2d(8, affine=True), nn.ReLU(), ConvLayer(8, 16, 3, 2), nn.ReLU(),
            Residual(16), Upsample(16, 8), nn.InstanceNorm2d(8, affine=True), nn.ReLU(), ConvLayer(8, 3, 5, 1),
        )
    )  # fmt: skip
    features = initialise(Features(), seed=40)
    style = [gram(f) for f in features(numbers(1, 3, 24, 24, seed=1))]
    optimizer = Adam(network.parameters(), 5e-3)
    mse = nn.MSELoss()
    for step in range(15):
        x = nn.functional.avg_pool2d(numbers(2, 3, 24, 24, seed=10 + step % 3), 3, 1, 1)
        y = network(x)
        found, wanted = features(y), features(x)
        content = mse(found.high, wanted.high)
        manner = sum(mse(gram(f), s.expand(2, -1, -1)) for f, s in zip(found, style))
        loss = content + 10 * manner
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        report(step, loss)


if __name__ == "__main__":
    main()
