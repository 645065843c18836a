"""Exchange of tensors with other libraries without copying."""

import flambeau
from flambeau import from_dlpack  # noqa: F401


def to_dlpack(tensor: flambeau.Tensor):
    """A capsule that another library takes the tensor from."""
    return tensor.__dlpack__()
