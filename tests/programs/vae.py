"""A variational autoencoder of small images; the noise comes from outside, so that every run draws the same."""

import torch
import torch.nn.functional as F
from common import initialise, numbers, report
from torch import nn, optim


class VAE(nn.Module):
    def __init__(self, size, hidden=64, latent=8):
        super().__init__()
        self.fc1 = nn.Linear(size, hidden)
        self.fc21 = nn.Linear(hidden, latent)
        self.fc22 = nn.Linear(hidden, latent)
        self.fc3 = nn.Linear(latent, hidden)
        self.fc4 = nn.Linear(hidden, size)

    def encode(self, x):
        h = F.relu(self.fc1(x))
        return self.fc21(h), self.fc22(h)

    def decode(self, z):
        return torch.sigmoid(self.fc4(F.relu(self.fc3(z))))

    def forward(self, x, noise):
        mu, logvar = self.encode(x.view(x.shape[0], -1))
        z = mu + noise * torch.exp(0.5 * logvar)
        return self.decode(z), mu, logvar


def loss_function(recon, x, mu, logvar):
    bce = F.binary_cross_entropy(recon, x.view(x.shape[0], -1), reduction="sum")
    kld = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
    return bce + kld


def main():
    model = initialise(VAE(144))
    optimizer = optim.Adam(model.parameters(), lr=3e-3)
    bases = numbers(4, 12, 12, seed=1, low=0.0, high=1.0)
    for step in range(30):
        mixture = numbers(32, 4, seed=100 + step).softmax(-1)
        images = torch.einsum("nk,khw->nhw", mixture, bases)
        recon, mu, logvar = model(images, numbers(32, 8, seed=200 + step))
        loss = loss_function(recon, images, mu, logvar)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        report(step, loss.item() / len(images))


if __name__ == "__main__":
    main()
