"""Sharding rules of linear algebra."""

from __future__ import annotations

import dataclasses

from flambeau.ops.reductions.sharding import norm
from flambeau.ops.rules import sharding
from flambeau.ops.sharding import Call, Decision


@sharding("linalg_vector_norm")
def vector_norm(call: Call) -> Decision | None:
    return norm(dataclasses.replace(call, arguments={**call.arguments, "p": call.arguments["ord"]}))
