"""A network that learns where to look: an affine grid, sampled, before a classifier."""

import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F
from common import initialise, integers, numbers, report


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 4, kernel_size=5)
        self.conv2 = nn.Conv2d(4, 8, kernel_size=5)
        self.fc = nn.Linear(8 * 4 * 4, 10)
        self.localization = nn.Sequential(
            nn.Conv2d(1, 4, kernel_size=7), nn.MaxPool2d(2, stride=2), nn.ReLU(True),
            nn.Conv2d(4, 5, kernel_size=5), nn.MaxPool2d(2, stride=2), nn.ReLU(True),
        )  # fmt: skip
        self.fc_loc = nn.Sequential(nn.Linear(5 * 3 * 3, 16), nn.ReLU(True), nn.Linear(16, 3 * 2))
        initialise(self)
        self.fc_loc[2].weight.data.zero_()
        self.fc_loc[2].bias.data.copy_(torch.tensor([1, 0, 0, 0, 1, 0], dtype=torch.float))

    def stn(self, x):
        theta = self.fc_loc(self.localization(x).view(-1, 5 * 3 * 3)).view(-1, 2, 3)
        return F.grid_sample(x, F.affine_grid(theta, x.size(), align_corners=False), align_corners=False)

    def forward(self, x):
        x = F.relu(F.max_pool2d(self.conv1(self.stn(x)), 2))
        x = F.relu(F.max_pool2d(self.conv2(x), 2)).view(-1, 8 * 4 * 4)
        return F.log_softmax(self.fc(x), dim=1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=8)
    args = parser.parse_args()
    use = torch.accelerator.is_available()
    device = torch.accelerator.current_accelerator() if use else torch.device("cpu")
    model = Net().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    data, target = numbers(16, 1, 28, 28).to(device), integers(10, 16).to(device)
    for step in range(args.steps):
        optimizer.zero_grad()
        loss = F.nll_loss(model(data), target)
        loss.backward()
        optimizer.step()
        report(step, loss.item())


if __name__ == "__main__":
    main()
