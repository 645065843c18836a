"""A residual network with batch normalisation on small colour images, with momentum and a one-cycle schedule."""

import torch
from common import initialise, integers, numbers, report
from torch import nn


class Block(nn.Module):
    def __init__(self, inputs, outputs, stride=1):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(inplace=True),
            nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        self.shortcut = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        return torch.relu(self.body(x) + self.shortcut(x))


def main():
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), Block(8, 8), Block(8, 16, 2), Block(16, 32, 2),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10),
    )  # fmt: skip
    initialise(model)
    templates = numbers(10, 3, 32, 32, seed=1)
    labels = integers(10, 128, seed=2)
    images = templates[labels] + 0.5 * numbers(128, 3, 32, 32, seed=3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4, nesterov=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.05, total_steps=16)
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
    for step in range(16):
        batch = slice(step % 4 * 32, step % 4 * 32 + 32)
        optimizer.zero_grad(set_to_none=True)
        loss = criterion(model(images[batch].contiguous(memory_format=torch.channels_last)), labels[batch])
        loss.backward()
        optimizer.step()
        schedule.step()
        report(step, loss)
    model.eval()
    with torch.inference_mode():
        print(f"accuracy {(model(images).argmax(1) == labels).float().mean().item():.3f}")


if __name__ == "__main__":
    main()
