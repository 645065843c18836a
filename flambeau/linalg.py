"""Linear algebra. The functions are operators, installed here from the op records in `flambeau/ops/linalg`."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from flambeau._C.linalg import *  # noqa: F403


class LinAlgError(RuntimeError):
    """A decomposition failed or a matrix was singular.

    >>> try:
    ...     flambeau.linalg.inv(flambeau.zeros(2, 2))
    ... except flambeau.linalg.LinAlgError:
    ...     print("singular")
    singular
    """


LinAlgError.__module__ = "torch._C"
LinAlgError.__qualname__ = LinAlgError.__name__ = "_LinAlgError"
