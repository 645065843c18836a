"""A convolutional classifier of digits, read from files in MNIST's format."""

import argparse
import os
import struct
import tempfile

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from common import initialise, report
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import DataLoader, Dataset


def write_digits(folder, count):
    """Ten blurred patterns with noise, as idx files."""
    rng = np.random.RandomState(0)
    patterns = rng.uniform(0, 200, (10, 28, 28))
    labels = rng.randint(0, 10, count).astype(np.uint8)
    images = np.clip(patterns[labels] + rng.normal(0, 40, (count, 28, 28)), 0, 255).astype(np.uint8)
    for name, array in (("images-idx3-ubyte", images), ("labels-idx1-ubyte", labels)):
        with open(os.path.join(folder, name), "wb") as file:
            file.write(struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape))
            file.write(array.tobytes())


class Digits(Dataset):
    def __init__(self, folder):
        self.images, self.labels = (self.read(os.path.join(folder, name)) for name in sorted(os.listdir(folder)))

    @staticmethod
    def read(path):
        with open(path, "rb") as file:
            _, _, rank = struct.unpack(">HBB", file.read(4))
            shape = struct.unpack(f">{rank}I", file.read(4 * rank))
            return torch.from_numpy(np.frombuffer(file.read(), np.uint8).reshape(shape).copy())

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return self.images[index].unsqueeze(0).float().div(255).sub(0.4).div(0.3), self.labels[index].long()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3, 1)
        self.conv2 = nn.Conv2d(8, 16, 3, 1)
        self.dropout = nn.Dropout(0.0)
        self.fc1 = nn.Linear(16 * 12 * 12, 32)
        self.fc2 = nn.Linear(32, 10)

    def forward(self, x):
        x = F.relu(self.conv1(x))
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        x = self.dropout(torch.flatten(x, 1))
        return F.log_softmax(self.fc2(F.relu(self.fc1(x))), dim=1)


def test(model, device, loader):
    model.eval()
    correct = 0
    with torch.no_grad():
        for data, target in loader:
            output = model(data.to(device))
            correct += output.argmax(dim=1, keepdim=True).eq(target.view_as(output[:, :1].long())).sum().item()
    model.train()
    return correct / len(loader.dataset)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--count", type=int, default=320)
    args = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    with tempfile.TemporaryDirectory() as folder:
        write_digits(folder, args.count)
        loader = DataLoader(Digits(folder), batch_size=32, shuffle=False)
        model = initialise(Net()).to(device)
        optimizer = torch.optim.Adadelta(model.parameters(), lr=1.0)
        scheduler = StepLR(optimizer, step_size=1, gamma=0.7)
        step = 0
        for _ in range(args.epochs):
            for data, target in loader:
                optimizer.zero_grad()
                loss = F.nll_loss(model(data.to(device)), target.to(device))
                loss.backward()
                optimizer.step()
                report(step, loss)
                step += 1
            scheduler.step()
        print(f"accuracy {test(model, device, loader):.3f}")


if __name__ == "__main__":
    main()
