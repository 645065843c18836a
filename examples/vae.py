"""A variational autoencoder: points on a ring in eight dimensions, told by two numbers each.

python examples/vae.py [--quick]
"""

import sys

import flambeau as torch
from flambeau import nn


class Autoencoder(nn.Module):
    def __init__(self, seen=8, hidden=64, latent=2):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(seen, hidden), nn.Tanh(), nn.Linear(hidden, 2 * latent))
        self.decoder = nn.Sequential(nn.Linear(latent, hidden), nn.Tanh(), nn.Linear(hidden, seen))

    def forward(self, x):
        mean, log_scale = self.encoder(x).chunk(2, -1)
        code = mean + log_scale.exp() * torch.randn_like(mean)  # gradients go through the draw
        return self.decoder(code), mean, log_scale


def divergence(mean, log_scale):
    """How far a normal distribution is from the standard one, in nats."""
    return 0.5 * (mean.square() + (2 * log_scale).exp() - 1) - log_scale


def main():
    quick = "--quick" in sys.argv
    torch.manual_seed(0)
    angle = 6.2832 * torch.rand(512, 1)
    points = torch.cat([angle.cos(), angle.sin()], 1) @ torch.randn(2, 8) + 0.05 * torch.randn(512, 8)
    model = Autoencoder()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    steps = 20 if quick else 400
    misfit = torch.empty(0)
    for step in range(steps):
        rebuilt, mean, log_scale = model(points)
        misfit = (rebuilt - points).square().sum(1).mean()
        surprise = divergence(mean, log_scale).sum(1).mean()
        optimizer.zero_grad()
        (misfit + 0.05 * surprise).backward()
        optimizer.step()
        if step % (steps // 5) == 0:
            print(f"step {step:3}  misfit {misfit.item():7.3f}  surprise {surprise.item():6.3f}")
    drawn = model.decoder(torch.randn(4, 2))
    print(f"points had a spread of {points.var(0).sum().item():.2f}, of which {misfit.item():.2f} is lost; drawn anew:")
    print(drawn.detach())
    assert quick or misfit < 0.3 * points.var(0).sum()


if __name__ == "__main__":
    main()
