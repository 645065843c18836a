"""The older place of torch_xla.runtime."""

from flambeau.xla.runtime import *  # noqa: F403
from flambeau.xla.runtime import __all__ as __all__
