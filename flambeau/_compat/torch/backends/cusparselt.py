"""cuSPARSELt, which is not used."""


def is_available() -> bool:
    return False


def version() -> int | None:
    return None
