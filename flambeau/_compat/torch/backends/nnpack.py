"""NNPACK, which is not used."""


def is_available() -> bool:
    return False


def set_flags(_enabled: bool) -> tuple[bool]:
    return (False,)
