"""Dictionaries of tensors are indexed, stacked, and go through modules."""

import torch
from tensordict import TensorDict
from tensordict.nn import TensorDictModule, TensorDictSequential

data = TensorDict({"x": torch.randn(4, 3), "inner": {"y": torch.zeros(4, 2)}}, batch_size=[4])
assert data[:2].batch_size == (2,) and data["inner", "y"].shape == (4, 2)
both = torch.stack([data, data])
assert both.shape == (2, 4) and (both + 1)["inner", "y"].sum() == 16
first = TensorDictModule(torch.nn.Linear(3, 5), in_keys=["x"], out_keys=["hidden"])
second = TensorDictModule(torch.nn.Linear(5, 1), in_keys=["hidden"], out_keys=["value"])
result = TensorDictSequential(first, second)(data)
assert result["value"].shape == (4, 1)
result["value"].sum().backward()
