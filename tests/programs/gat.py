"""A graph attention network with masked dense attention."""

import torch
import torch.nn.functional as F
from common import initialise, integers, numbers, report
from torch import nn


class GraphAttention(nn.Module):
    def __init__(self, inputs, outputs, heads, mean=False):
        super().__init__()
        self.heads, self.outputs, self.mean = heads, outputs, mean
        self.W = nn.Parameter(torch.empty(inputs, heads * outputs))
        self.a = nn.Parameter(torch.empty(heads, 2 * outputs, 1))
        nn.init.xavier_normal_(self.W)
        nn.init.xavier_normal_(self.a)
        self.slope = nn.LeakyReLU(0.2)

    def forward(self, h, mask):
        n = h.shape[0]
        wh = (h @ self.W).view(n, self.heads, self.outputs).permute(1, 0, 2)
        source = torch.matmul(wh, self.a[:, : self.outputs])
        target = torch.matmul(wh, self.a[:, self.outputs :])
        scores = self.slope(source + target.mT)
        attention = F.softmax(scores.masked_fill(mask == 0, -9e16), dim=-1)
        out = torch.matmul(attention, wh)
        return out.mean(dim=0) if self.mean else out.permute(1, 0, 2).reshape(n, -1)


class GAT(nn.Module):
    def __init__(self, features, hidden, classes, heads):
        super().__init__()
        self.first = GraphAttention(features, hidden, heads)
        self.second = GraphAttention(hidden * heads, classes, 1, mean=True)

    def forward(self, x, mask):
        return F.log_softmax(self.second(F.elu(self.first(x, mask)), mask), dim=1)


def main():
    nodes, classes = 50, 4
    labels = integers(classes, nodes, seed=1)
    chance = numbers(nodes, nodes, seed=2, low=0.0, high=1.0)
    mask = ((chance < 0.25) & (labels[:, None] == labels[None])) | (chance < 0.02) | torch.eye(nodes).bool()
    features = F.one_hot(labels, classes).float() + numbers(nodes, classes, seed=3)
    model = initialise(GAT(classes, 8, classes, 4))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
    for step in range(30):
        optimizer.zero_grad()
        loss = nn.NLLLoss()(model(features, mask.int())[::2], labels[::2])
        loss.backward()
        optimizer.step()
        report(step, loss)


if __name__ == "__main__":
    main()
