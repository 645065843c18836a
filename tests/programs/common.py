"""What the programs share: numbers that do not depend on the library's random generator, and how losses are reported."""

import math

import numpy as np
import torch


def numbers(*shape, seed=0, low=None, high=None):
    """Normal numbers, or uniform ones between low and high, as a tensor of float32."""
    rng = np.random.RandomState(seed)
    values = rng.standard_normal(shape) if low is None else rng.uniform(low, high, shape)
    return torch.from_numpy(np.asarray(values, dtype=np.float32))


def integers(high, *shape, seed=0):
    return torch.from_numpy(np.random.RandomState(seed).randint(0, high, shape).astype(np.int64))


def initialise(module, seed=0):
    """The same weights in every library: scaled normal numbers for weights, zero for biases."""
    with torch.no_grad():
        for index, (name, parameter) in enumerate(module.named_parameters()):
            if parameter.dim() > 1:
                fan = parameter[0].numel()
                parameter.copy_(numbers(*parameter.shape, seed=seed + index) / math.sqrt(fan))
            elif "weight" in name:
                parameter.fill_(1.0)
            else:
                parameter.zero_()
    return module


def report(step, loss):
    print(f"step {step} loss {float(loss):.6f}", flush=True)
