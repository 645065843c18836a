"""PyTorch's place of the description of distributed tensors."""

from flambeau.distributed.tensor._spec import DTensorSpec, TensorMeta

__all__ = ["DTensorSpec", "TensorMeta"]
