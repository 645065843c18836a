"""Intel's MKL, which is not used."""


def is_available() -> bool:
    return False
