"""Images made three times larger by a network with pixel shuffling."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from common import initialise, numbers, report


class Net(nn.Module):
    def __init__(self, factor):
        super().__init__()
        self.relu = nn.ReLU()
        self.conv1 = nn.Conv2d(1, 16, (5, 5), (1, 1), (2, 2))
        self.conv2 = nn.Conv2d(16, 16, (3, 3), (1, 1), (1, 1))
        self.conv3 = nn.Conv2d(16, factor**2, (3, 3), (1, 1), (1, 1))
        self.pixel_shuffle = nn.PixelShuffle(factor)

    def forward(self, x):
        x = self.relu(self.conv1(x))
        x = self.relu(self.conv2(x))
        return self.pixel_shuffle(self.conv3(x))


def main():
    model = initialise(Net(3))
    criterion = nn.MSELoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    smooth = F.interpolate(numbers(16, 1, 6, 6, seed=1), size=(36, 36), mode="bicubic", align_corners=False)
    small = F.avg_pool2d(smooth, 3)
    for step in range(25):
        optimizer.zero_grad()
        loss = criterion(model(small), smooth)
        loss.backward()
        optimizer.step()
        report(step, loss)
    with torch.no_grad():
        noise_ratio = 10 * torch.log10(smooth.max() ** 2 / criterion(model(small), smooth))
    print(f"psnr {noise_ratio.item():.3f}")


if __name__ == "__main__":
    main()
