"""`torch._awaits`: the type of calls that wait until their result is asked for."""

from flambeau.jit._await import _Await

__all__ = ["_Await"]
