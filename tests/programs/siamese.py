"""Two branches with the same weights that learn whether two images show the same thing."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from common import initialise, integers, numbers, report


class Siamese(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1), nn.GroupNorm(2, 8), nn.SiLU(), nn.AvgPool2d(2),
            nn.Conv2d(8, 16, 3, padding=1), nn.GroupNorm(4, 16), nn.SiLU(), nn.AdaptiveMaxPool2d(2),
        )  # fmt: skip
        self.project = nn.Linear(64, 16)
        self.judge = nn.Bilinear(16, 16, 1)

    def embed(self, x):
        return F.normalize(self.project(self.features(x).flatten(1)), dim=1)

    def forward(self, first, second):
        a, b = self.embed(first), self.embed(second)
        return self.judge(a, b).squeeze(1), F.pairwise_distance(a, b)


def main():
    templates = numbers(6, 1, 12, 12, seed=1)
    model = initialise(Siamese())
    optimizer = torch.optim.Adamax(model.parameters(), lr=5e-3)
    for step in range(25):
        left, right = integers(6, 32, seed=10 + step), integers(6, 32, seed=500 + step)
        right = torch.where(torch.arange(32) % 2 == 0, left, right)
        first = templates[left] + 0.3 * numbers(32, 1, 12, 12, seed=1000 + step)
        second = templates[right] + 0.3 * numbers(32, 1, 12, 12, seed=2000 + step)
        same = (left == right).float()
        score, distance = model(first, second)
        contrast = (same * distance.pow(2) + (1 - same) * (0.7 - distance).clamp(min=0).pow(2)).mean()
        loss = F.binary_cross_entropy_with_logits(score, same) + contrast
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        report(step, loss)


if __name__ == "__main__":
    main()
