"""`assume_pure`: functions without side effects, which need not be recorded anew. Programs that repeat themselves are followed
anyway, so that the function stays as it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["PureModule", "assume_pure"]


def assume_pure(function: Callable[..., Any] | None = None, *, add_rng_seed_argument: bool = False) -> Any:
    """A function, or a decorator of one. With `add_rng_seed_argument` calls take `rng_seed=`, which random numbers start at."""
    if function is None:
        return lambda f: assume_pure(f, add_rng_seed_argument=add_rng_seed_argument)
    if not add_rng_seed_argument:
        return function

    def seeded(*args: Any, rng_seed: int, **kwargs: Any) -> Any:
        from flambeau import xla

        xla.manual_seed(rng_seed)
        return function(*args, **kwargs)

    return seeded


def PureModule(module: Any) -> Any:
    """A module whose forward has no side effects."""
    return module
