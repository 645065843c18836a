"""A generative adversarial network: a forger learns to draw numbers like those of a bell curve around 4.

python examples/gan.py [--quick]
"""

import sys

import flambeau as torch
from flambeau import nn
from flambeau.nn import functional as F


def main():
    quick = "--quick" in sys.argv
    torch.manual_seed(0)
    forger = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 1))
    critic = nn.Sequential(nn.Linear(2, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))
    forger_steps = torch.optim.Adam(forger.parameters(), lr=2e-3, betas=(0.5, 0.9))
    critic_steps = torch.optim.Adam(critic.parameters(), lr=2e-3, betas=(0.5, 0.9))

    def judge(x):  # the square helps a small critic to tell how wide a curve is
        return critic(torch.cat([x, x * x / 8], 1))

    steps = 20 if quick else 1000
    for step in range(steps):
        real, forged = 4 + 0.7 * torch.randn(256, 1), forger(torch.randn(256, 4))
        # softplus(-x) is the cross entropy of a score x that should be high, softplus(x) of one that should be low.
        critic_loss = F.softplus(-judge(real)).mean() + F.softplus(judge(forged.detach())).mean()
        critic_steps.zero_grad()
        critic_loss.backward()
        critic_steps.step()

        forger_loss = F.softplus(-judge(forged)).mean()
        forger_steps.zero_grad()
        forger_loss.backward()
        forger_steps.step()
        if step % (steps // 5) == 0:
            print(
                f"step {step:4}  forged numbers: mean {forged.mean().item():6.3f}, deviation {forged.std().item():.3f}"
            )
    with torch.no_grad():
        drawn = forger(torch.randn(4096, 4))
    print(f"in the end: mean {drawn.mean().item():.2f} (4 wanted), deviation {drawn.std().item():.2f} (0.7 wanted)")
    assert quick or abs(drawn.mean().item() - 4) < 1


if __name__ == "__main__":
    main()
