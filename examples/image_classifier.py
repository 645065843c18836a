"""An image classifier: a Dataset of drawn digits, a DataLoader, a convolutional network, `compile`.

python examples/image_classifier.py [--quick]

The digits are those of a pocket calculator, moved about and covered with noise, so that nothing has to be downloaded.
"""

import sys

import flambeau as torch
from flambeau import nn
from flambeau.utils.data import DataLoader, Dataset

# Which of the seven bars each digit lights: top, upper left and right, middle, lower left and right, bottom.
BARS = ["1110111", "0010010", "1011101", "1011011", "0111010", "1101011", "1101111", "1010010", "1111111", "1111011"]
PLACES = [(0, 0, 1, 5), (0, 0, 5, 1), (0, 4, 5, 1), (4, 0, 1, 5), (4, 0, 5, 1), (4, 4, 5, 1), (8, 0, 1, 5)]


class Digits(Dataset):
    """Item i is a picture of 16 x 16 and the digit on it; the same i always gives the same picture."""

    def __init__(self, count, seed):
        generator = torch.Generator().manual_seed(seed)
        self.labels = torch.randint(10, (count,), generator=generator)
        self.shifts = torch.randint(6, (count, 2), generator=generator)
        self.noise = 0.3 * torch.randn(count, 1, 16, 16, generator=generator)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        picture = self.noise[i].clone()
        down, right = self.shifts[i].tolist()
        for lit, (y, x, height, width) in zip(BARS[self.labels[i]], PLACES):
            if lit == "1":
                picture[0, down + y : down + y + height, right + x : right + x + width] += 1
        return picture, self.labels[i]


def main():
    quick = "--quick" in sys.argv
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(32 * 4 * 4, 10),
    )  # fmt: skip
    compiled = torch.compile(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    training = DataLoader(Digits(320 if quick else 2560, seed=1), batch_size=64, shuffle=True)
    unseen = Digits(128 if quick else 512, seed=2)
    held_out = DataLoader(unseen, batch_size=64)
    share, loss = 0.0, torch.empty(0)
    for epoch in range(1 if quick else 4):
        for pictures, labels in training:
            loss = nn.functional.cross_entropy(compiled(pictures), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            right = sum((model(pictures).argmax(1) == labels).sum().item() for pictures, labels in held_out)
        share = right / len(unseen)
        print(f"epoch {epoch + 1}  loss {loss.item():.3f}  right on held-out pictures {share:.1%}")
    assert quick or share > 0.9


if __name__ == "__main__":
    main()
