"""Kubernetes quantities ("32Ki", "0.5", "100m", "1e3") as numbers and in canonical form; sizes for people."""

import re
from decimal import ROUND_CEILING, Context, Decimal
from functools import lru_cache

_FORM = re.compile(r"([+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+))([eE][+-]?[0-9]{1,4}|[numkMGTPE]|[KMGTPE]i|)")
_BINARY = ("Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_DECIMAL_NAMES = {exponent: name for name, exponent in _DECIMAL.items()}
# Exact for everything a quantity can say: 64 digits and exponents far past Ei.
_CONTEXT = Context(prec=100)
_MAX_TEXT = 64
_LARGEST = Decimal(2**63 - 1)
_NANO = Decimal("1e-9")
MALFORMED = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"


@lru_cache(maxsize=1024)
def parse(text: str) -> Decimal:
    """The value, to the next nano-unit up and capped at 2^63-1 as in Kubernetes; ValueError if malformed."""
    value, _ = _parse(text)
    return value


def _parse(text: str) -> tuple[Decimal, str]:
    match = _FORM.fullmatch(text) if len(text) <= _MAX_TEXT else None
    if match is None:
        raise ValueError(MALFORMED)
    number, suffix = Decimal(match[1]), match[2]
    if suffix in _BINARY:
        value = _CONTEXT.multiply(number, Decimal(1024 ** (_BINARY.index(suffix) + 1)))
    elif suffix in _DECIMAL:
        value = number.scaleb(_DECIMAL[suffix], _CONTEXT)
    else:
        value = number.scaleb(int(suffix[1:]), _CONTEXT)
    if abs(value) >= _LARGEST:
        return (_LARGEST if value > 0 else -_LARGEST), suffix
    if value and abs(value) < _NANO:
        return (_NANO if value > 0 else Decimal(0)), suffix
    return value.quantize(_NANO, ROUND_CEILING, _CONTEXT), suffix


def to_int(text: str) -> int:
    """The value rounded up to a whole number: bytes of a memory quantity. ValueError when malformed."""
    return int(parse(text).to_integral_value(ROUND_CEILING))


def to_millis(text: str) -> int:
    """Thousandths, rounded up: millicores of a CPU quantity. ValueError when malformed."""
    return int(_CONTEXT.multiply(parse(text), Decimal(1000)).to_integral_value(ROUND_CEILING))


@lru_cache(maxsize=1024)
def canonical(text: str) -> str:
    """What a kube-apiserver stores: the largest suffix of the same family that leaves a whole number."""
    value, suffix = _parse(text)
    if suffix in _BINARY and abs(value) >= 1024:
        return _binary(int(value.to_integral_value(ROUND_CEILING)))
    return _decimal(value, exponent_form=suffix[:1] in ("e", "E") and len(suffix) > 1)


def _binary(number: int) -> str:
    power = 0
    while power < len(_BINARY) and number % 1024 == 0:
        number //= 1024
        power += 1
    return f"{number}{_BINARY[power - 1]}" if power else str(number)


def _decimal(value: Decimal, *, exponent_form: bool) -> str:
    nanos = int(value.scaleb(9, _CONTEXT))
    exponent = -9
    while nanos and nanos % 1000 == 0 and exponent < 18:
        nanos //= 1000
        exponent += 3
    if not nanos or exponent == 0:
        return str(nanos)
    return f"{nanos}e{exponent}" if exponent_form else f"{nanos}{_DECIMAL_NAMES[exponent]}"


def human_bytes(number: int) -> str:
    """A size for people: "512", "64Ki", "65.2Ki", "1.5Mi"; at most one digit after the point."""
    size, power = float(number), 0
    while size >= 1024 and power < len(_BINARY):
        size /= 1024
        power += 1
    if not power:
        return str(number)
    return f"{size:.1f}".removesuffix(".0") + _BINARY[power - 1]
