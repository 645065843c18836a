"""A graph convolutional network over a sparse adjacency matrix."""

import math

import torch
import torch.nn.functional as F
from common import initialise, integers, numbers, report
from torch import nn
from torch.nn.parameter import Parameter


class GraphConvolution(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight = Parameter(torch.empty(inputs, outputs))
        self.bias = Parameter(torch.empty(outputs))
        bound = 1.0 / math.sqrt(outputs)
        self.weight.data.uniform_(-bound, bound)
        self.bias.data.uniform_(-bound, bound)

    def forward(self, input, adjacency):
        return torch.spmm(adjacency, torch.mm(input, self.weight)) + self.bias


class GCN(nn.Module):
    def __init__(self, features, hidden, classes):
        super().__init__()
        self.gc1 = GraphConvolution(features, hidden)
        self.gc2 = GraphConvolution(hidden, classes)

    def forward(self, x, adjacency):
        x = F.relu(self.gc1(x, adjacency))
        return F.log_softmax(self.gc2(x, adjacency), dim=1)


def main():
    nodes, classes = 60, 3
    labels = integers(classes, nodes, seed=1)
    chance = numbers(nodes, nodes, seed=2, low=0.0, high=1.0)
    linked = chance < torch.where(labels[:, None] == labels[None], 0.3, 0.02)
    edges = torch.nonzero(linked | linked.t() | torch.eye(nodes, dtype=torch.bool)).t()
    degree = torch.zeros(nodes).index_add_(0, edges[0], torch.ones(edges.shape[1]))
    weights = degree.pow(-0.5)[edges[0]] * degree.pow(-0.5)[edges[1]]
    adjacency = torch.sparse_coo_tensor(edges, weights, (nodes, nodes)).coalesce()
    features = F.one_hot(labels, classes).float() + 2 * numbers(nodes, classes, seed=3)
    known = torch.arange(0, nodes, 3)
    model = initialise(GCN(classes, 16, classes))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05, weight_decay=5e-4)
    for step in range(30):
        optimizer.zero_grad()
        loss = F.nll_loss(model(features, adjacency)[known], labels[known])
        loss.backward()
        optimizer.step()
        report(step, loss)
    print(f"accuracy {(model(features, adjacency).argmax(1) == labels).float().mean().item():.2f}")


if __name__ == "__main__":
    main()
