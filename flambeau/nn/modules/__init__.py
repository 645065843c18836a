"""The layers, by file. Each file names what it gives in `__all__`; all of it is found in `nn` too."""

from flambeau.nn.modules.container import *  # noqa: F403
from flambeau.nn.modules.module import Module  # noqa: F401
