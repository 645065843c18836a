"""Settings for reproducible runs. New memory is never filled, whatever the mode, so the setting is False and stays so."""

from flambeau._compat.settings import fix

fill_uninitialized_memory = False
fix(__name__, "fill_uninitialized_memory", "memory of new tensors is not filled")
