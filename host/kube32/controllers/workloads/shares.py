"""maxSurge and maxUnavailable: numbers, or percentages of the whole."""


def resolve(value: int | str | None, total: int, *, up: bool) -> int:
    """A number, or a percentage of `total`."""
    if isinstance(value, int):
        return value
    percent = int(str(value or "0").removesuffix("%"))
    return -(-total * percent // 100) if up else total * percent // 100
