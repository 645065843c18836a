"""Exchange of tensors with other libraries without copying."""

import flambeau
from flambeau import from_dlpack  # noqa: F401


def to_dlpack(tensor: flambeau.Tensor):  # type: ignore[no-untyped-def]
    """A capsule that another library takes the tensor from."""
    if not isinstance(tensor, flambeau.Tensor):
        raise TypeError(f"[to_dlpack] expected a Tensor, got {type(tensor).__name__}")
    return tensor.__dlpack__()
