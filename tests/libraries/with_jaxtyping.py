"""Shapes of arguments are checked as they are annotated."""

import torch
from beartype import beartype
from jaxtyping import Float, TypeCheckError, jaxtyped


@jaxtyped(typechecker=beartype)
def product(a: Float[torch.Tensor, "n k"], b: Float[torch.Tensor, "k m"]) -> Float[torch.Tensor, "n m"]:  # noqa: F722
    return a @ b


assert product(torch.ones(2, 3), torch.ones(3, 4)).shape == (2, 4)
for wrong in (torch.ones(2, 4), torch.ones(3, 4, dtype=torch.int64)):
    try:
        product(torch.ones(2, 3), wrong)
    except TypeCheckError:
        continue
    raise AssertionError(f"{wrong.shape} of {wrong.dtype} was accepted")
