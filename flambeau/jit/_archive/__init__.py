"""Archives of scripted modules and functions in PyTorch's zip format: `code/` in the language of scripts, `data.pkl`, tensors."""

from flambeau.jit._archive.read import load
from flambeau.jit._archive.write import save

__all__ = ["load", "save"]
