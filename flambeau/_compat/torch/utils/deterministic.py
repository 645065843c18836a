"""Settings for reproducible runs. New memory is never filled, whatever the mode: asking for it is answered with a warning."""

from flambeau._compat.settings import fix

fill_uninitialized_memory = False
fix(__name__, "fill_uninitialized_memory", "memory of new tensors is not filled", refuse=False)
