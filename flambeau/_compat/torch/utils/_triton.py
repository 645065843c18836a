"""Whether kernels can be written in Triton: not here."""


def has_triton_package() -> bool:
    return False


def has_triton() -> bool:
    return False


def has_triton_tma() -> bool:
    return False
