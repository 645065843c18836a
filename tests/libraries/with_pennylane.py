"""A quantum circuit in a layer, differentiated by backpropagation."""

import pennylane as qml
import torch

device = qml.device("default.qubit", wires=2)


@qml.qnode(device, interface="torch", diff_method="backprop")
def circuit(inputs, weights):
    qml.AngleEmbedding(inputs, wires=range(2))
    qml.BasicEntanglerLayers(weights, wires=range(2))
    return [qml.expval(qml.PauliZ(i)) for i in range(2)]


torch.manual_seed(0)
model = torch.nn.Sequential(
    torch.nn.Linear(3, 2), qml.qnn.TorchLayer(circuit, {"weights": (2, 2)}), torch.nn.Linear(2, 1)
)
optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
x, y = torch.randn(8, 3), torch.ones(8, 1)
losses = []
for _ in range(8):
    loss = (model(x) - y).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
assert losses[-1] < losses[0], losses
