"""An LSTM learns to continue a wave: it sees a stretch of the curve and then lives on its own predictions.

python examples/lstm.py [--quick]
"""

import sys

import flambeau as torch
from flambeau import nn


class Forecaster(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.lstm = nn.LSTM(1, width, batch_first=True)
        self.head = nn.Linear(width, 1)

    def forward(self, wave, state=None):
        features, state = self.lstm(wave, state)
        return self.head(features), state


@torch.no_grad()
def carry_on(model, wave, count):
    """What the model expects after `wave`, each value fed back as the next input."""
    prediction, state = model(wave)
    value, values = prediction[:, -1:], []
    for _ in range(count):
        values.append(value)
        value, state = model(value, state)
    return torch.cat(values, 1)


def main():
    quick = "--quick" in sys.argv
    torch.manual_seed(0)
    time = torch.arange(81) * 0.25
    waves = torch.sin(time + 6.28 * torch.rand(32, 1)).unsqueeze(2)
    seen, after = waves[:, :60], waves[:, 60:]
    model = Forecaster()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    steps = 20 if quick else 150
    for step in range(steps):
        prediction, _ = model(seen[:, :-1])
        loss = nn.functional.mse_loss(prediction, seen[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % (steps // 5) == 0:
            print(f"step {step:3}  loss {loss.item():.5f}")
    error = (carry_on(model, seen, after.shape[1]) - after).abs().mean().item()
    print(f"mean error over {after.shape[1]} steps into the future: {error:.3f}")
    assert quick or error < 0.4


if __name__ == "__main__":
    main()
