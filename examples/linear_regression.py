"""Linear regression by hand: no layers, no optimizer, only tensors and gradients; then the same in closed form.

python examples/linear_regression.py
"""

import flambeau as torch

torch.manual_seed(0)
points = torch.randn(200, 3)
truth = torch.tensor([1.5, -2.0, 0.5])
values = points @ truth + 4 + 0.1 * torch.randn(200)

weight, bias = torch.zeros(3, requires_grad=True), torch.zeros((), requires_grad=True)
for step in range(100):
    loss = (points @ weight + bias - values).square().mean()
    loss.backward()
    with torch.no_grad():  # the update itself is not to be differentiated
        for parameter in (weight, bias):
            parameter -= 0.1 * parameter.grad
            parameter.grad = None
    if step % 20 == 0:
        print(f"step {step:3}  loss {loss.item():8.4f}")
print("descent    ", [round(w, 3) for w in weight.tolist()], round(bias.item(), 3))

columns = torch.cat([points, torch.ones(200, 1)], 1)
exact = torch.linalg.lstsq(columns, values.unsqueeze(1)).solution.squeeze(1)
print("closed form", [round(w, 3) for w in exact.tolist()])
assert torch.allclose(torch.cat([weight, bias.reshape(1)]), exact, atol=1e-2)
