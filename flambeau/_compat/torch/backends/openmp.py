"""OpenMP, which runs the kernels on several threads."""


def is_available() -> bool:
    return True
