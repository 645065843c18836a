"""Attributions of a small network: integrated gradients add up, GradientShap and DeepLift run."""

import torch
from captum.attr import DeepLift, GradientShap, IntegratedGradients, Saliency

model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
x = torch.randn(5, 4)
attributions, delta = IntegratedGradients(model).attribute(x, target=1, return_convergence_delta=True, n_steps=100)
assert delta.abs().max() < 0.05
assert DeepLift(model).attribute(x, target=0).shape == x.shape
assert GradientShap(model).attribute(x, baselines=torch.zeros(3, 4), target=2).shape == x.shape
assert Saliency(model).attribute(x, target=0).min() >= 0
