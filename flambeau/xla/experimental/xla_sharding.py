"""The older place of torch_xla.distributed.spmd."""

from flambeau.xla.distributed.spmd import *  # noqa: F403
from flambeau.xla.distributed.spmd import __all__ as __all__
