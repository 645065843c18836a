"""Graph convolutions and attention, and a pooled graph classifier, without compiled extensions."""

import torch
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GATConv, GCNConv, GINConv, SAGEConv, global_mean_pool

edges = torch.tensor([[0, 1, 1, 2, 2, 3, 3, 0], [1, 0, 2, 1, 3, 2, 0, 3]])
graphs = [
    Data(x=torch.randn(4, 5) + label, edge_index=edges, y=torch.tensor([label])) for label in (0, 1) for _ in range(8)
]


class Network(torch.nn.Module):
    def __init__(self):
        super().__init__()
        mlp = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU())
        self.layers = torch.nn.ModuleList([GCNConv(5, 8), GATConv(8, 4, heads=2), SAGEConv(8, 8), GINConv(mlp)])
        self.head = torch.nn.Linear(8, 2)

    def forward(self, data):
        x = data.x
        for layer in self.layers:
            x = layer(x, data.edge_index).relu()
        return self.head(global_mean_pool(x, data.batch))


model = Network()
optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
for _ in range(30):
    for batch in DataLoader(graphs, batch_size=8, shuffle=True):
        loss = torch.nn.functional.cross_entropy(model(batch), batch.y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
assert loss.item() < 0.5
