"""Sine waves predicted by two LSTM cells in double precision, fitted with L-BFGS."""

import numpy as np
import torch
import torch.nn as nn
import torch.optim as optim
from common import initialise, report


class Sequence(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm1 = nn.LSTMCell(1, 12)
        self.lstm2 = nn.LSTMCell(12, 12)
        self.linear = nn.Linear(12, 1)

    def forward(self, input, future=0):
        outputs = []
        h1 = torch.zeros(input.size(0), 12, dtype=torch.double)
        c1 = torch.zeros(input.size(0), 12, dtype=torch.double)
        h2, c2 = torch.zeros_like(h1), torch.zeros_like(c1)
        for value in input.split(1, dim=1):
            h1, c1 = self.lstm1(value, (h1, c1))
            h2, c2 = self.lstm2(h1, (h2, c2))
            output = self.linear(h2)
            outputs += [output]
        for _ in range(future):
            h1, c1 = self.lstm1(output, (h1, c1))
            h2, c2 = self.lstm2(h1, (h2, c2))
            output = self.linear(h2)
            outputs += [output]
        return torch.cat(outputs, dim=1)


def main():
    shift = np.random.RandomState(2).randint(-40, 40, 8).reshape(-1, 1)
    data = np.sin((np.arange(40) + shift) / 4.0).astype("float64")
    input, target = torch.from_numpy(data[2:, :-1]), torch.from_numpy(data[2:, 1:])
    model = initialise(Sequence()).double()
    criterion = nn.MSELoss()
    optimizer = optim.LBFGS(model.parameters(), lr=0.5, max_iter=5)
    for step in range(4):

        def closure():
            optimizer.zero_grad()
            loss = criterion(model(input), target)
            loss.backward()
            return loss

        report(step, optimizer.step(closure))
    with torch.no_grad():
        ahead = model(torch.from_numpy(data[:2, :-1]), future=5)
    print(f"ahead {ahead[0, -1].item():.4f}")
    report(step + 1, criterion(model(input), target))


if __name__ == "__main__":
    main()
