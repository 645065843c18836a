"""A generator and a discriminator of small images, trained against each other."""

import torch
from common import initialise, numbers, report
from torch import nn


class Generator(nn.Module):
    def __init__(self, noise=16, width=16):
        super().__init__()
        self.main = nn.Sequential(
            nn.ConvTranspose2d(noise, width * 2, 4, 1, 0, bias=False),
            nn.BatchNorm2d(width * 2),
            nn.ReLU(True),
            nn.ConvTranspose2d(width * 2, width, 4, 2, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(True),
            nn.ConvTranspose2d(width, 1, 4, 2, 1, bias=False),
            nn.Tanh(),
        )

    def forward(self, z):
        return self.main(z)


class Discriminator(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.main = nn.Sequential(
            nn.Conv2d(1, width, 4, 2, 1, bias=False),
            nn.LeakyReLU(0.2, inplace=True),
            nn.Conv2d(width, width * 2, 4, 2, 1, bias=False),
            nn.BatchNorm2d(width * 2),
            nn.LeakyReLU(0.2, inplace=True),
            nn.Conv2d(width * 2, 1, 4, 1, 0, bias=False),
            nn.Sigmoid(),
        )

    def forward(self, x):
        return self.main(x).view(-1, 1).squeeze(1)


def main():
    generator, discriminator = initialise(Generator()), initialise(Discriminator(), seed=50)
    criterion = nn.BCELoss()
    adam_g = torch.optim.Adam(generator.parameters(), lr=1e-3, betas=(0.5, 0.999))
    adam_d = torch.optim.Adam(discriminator.parameters(), lr=1e-3, betas=(0.5, 0.999))
    pattern = torch.outer(torch.linspace(-1, 1, 16), torch.linspace(1, -1, 16))
    ones, zeros = torch.full((16,), 1.0), torch.full((16,), 0.0)
    for step in range(12):
        real = (pattern + 0.1 * numbers(16, 1, 16, 16, seed=step)).clamp(-1, 1)
        fake = generator(numbers(16, 16, 1, 1, seed=1000 + step))
        discriminator.zero_grad()
        error_d = criterion(discriminator(real), ones) + criterion(discriminator(fake.detach()), zeros)
        error_d.backward()
        adam_d.step()
        generator.zero_grad()
        error_g = criterion(discriminator(fake), ones)
        error_g.backward()
        adam_g.step()
        print(f"generator {error_g.item():.4f}")
        report(step, error_d)


if __name__ == "__main__":
    main()
