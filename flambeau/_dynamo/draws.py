"""Random numbers of Python's `random` in captured code.

A draw is made anew by each run of the artifact, before the graph, which takes the number as an input. So the numbers and
the generator's state are those of the plain program. Where the program's course depends on a number, the graph breaks.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from flambeau._dynamo import breaks
from flambeau._dynamo.breaks import Unsupported, UserError
from flambeau._dynamo.effects import Draw
from flambeau._dynamo.source import DRAW, Source
from flambeau._dynamo.traced import TracedNumber

if TYPE_CHECKING:
    from flambeau._dynamo.trace import Tracer

# Methods that return one number and change nothing but the generator.
METHODS = frozenset(
    "random uniform randint randrange getrandbits gauss normalvariate lognormvariate expovariate betavariate gammavariate "
    "paretovariate triangular vonmisesvariate weibullvariate".split()
)


def is_draw(owner: Any, name: str) -> bool:
    return type(owner) is random.Random and name in METHODS


def draw(tracer: Tracer, owner: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> TracedNumber:
    """owner.name(...), of a generator from outside."""
    known = tracer.outside.known.get(id(owner))
    if known is None or not all(type(a) in (int, float) for a in (*args, *kwargs.values())):
        raise Unsupported(breaks.RANDOM, f"Random.{name}")
    try:
        hint = getattr(random.Random(0), name)(*args, **kwargs)  # only its type is used
    except Exception as error:
        raise UserError(error) from None
    source = Source(None, DRAW, len(tracer.effects.draws))
    tracer.effects.draws.append(Draw(known.source, name, args, kwargs, source))
    tracer.effects.impure = True
    return TracedNumber(tracer, None, hint, source, {}, unknown=breaks.RANDOM)
