"""PyTorch's place of helpers of distributed tensors."""

from flambeau.distributed.tensor._spec import compute_local_shape_and_global_offset
from flambeau.distributed.tensor._spec import local_shape as compute_local_shape

__all__ = ["compute_local_shape", "compute_local_shape_and_global_offset"]
