"""The version of PyTorch/XLA whose names these are."""

from flambeau.xla import __version__ as __version__
