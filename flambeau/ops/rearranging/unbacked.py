"""Results of repetitions whose sizes the data decides, for graphs that hold such sizes as symbols."""

from __future__ import annotations

from typing import Any

from flambeau.ops.rules import unbacked


@unbacked("repeat_interleave.Tensor")
def repeat_interleave(make: Any, repeats: Any, output_size: Any) -> Any:
    return make.tensor((make.size(0, None) if output_size is None else output_size,), repeats.dtype)
