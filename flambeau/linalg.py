"""Linear algebra. The functions are operators, installed here from the op records in `flambeau/ops/linalg`."""


class LinAlgError(RuntimeError):
    """A decomposition failed or a matrix was singular."""


LinAlgError.__module__ = "torch._C"
LinAlgError.__qualname__ = LinAlgError.__name__ = "_LinAlgError"
