"""First tensors and gradients.

python examples/first_tensors.py
"""

import flambeau as torch

# A tensor is a block of numbers with a shape; arithmetic works on all of them at once.
x = torch.arange(6.0).reshape(2, 3)
print(x)
print("sum of rows   ", x.sum(0))
print("row minus mean", x - x.mean(1, keepdim=True))

# Slices are views: writing to one writes to the tensor.
x[:, 0] = 10
print("after writing to a column", x)

# Autograd remembers what was computed from a tensor that requires it, and goes back.
t = torch.tensor(2.0, requires_grad=True)
height = t**3 - 4 * t
height.backward()
print(f"t³ - 4t at 2: value {height.item()}, slope {t.grad.item()} (3t² - 4 = 8)")

# The root by Newton's method needs value and slope, no formula for the slope.
guess = torch.tensor(3.0)
for _ in range(6):
    guess = guess.detach().requires_grad_()
    value = guess**3 - 4 * guess
    (slope,) = torch.autograd.grad(value, guess)
    guess = guess - value / slope
print(f"root found at {guess.item():.6f}")
assert abs(guess.item() - 2) < 1e-5
