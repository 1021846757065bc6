"""A reader over one section's bytes. Each fault is a ModuleRefused that names the section and the byte."""

from kube32.formats.wasm_module.records import VALUE_TYPES, ModuleRefused, refused

MEMORY64 = "64-bit memories"
THREADS = "shared memory (threads)"
PAGE_SIZES = "custom page sizes"
MULTI_MEMORY = "several memories"
EXTERNREF = "externref"
SIMD = "SIMD (v128)"
GC = "garbage-collected types"
FUNCTION_REFERENCES = "typed function references"
EXCEPTIONS = "exceptions"
EXTENDED_CONST = "extended constant expressions"

_REFUSED_TYPES = {
    0x7B: SIMD,
    0x6F: EXTERNREF,
    0x69: EXCEPTIONS,
    0x74: EXCEPTIONS,
    0x63: FUNCTION_REFERENCES,
    0x64: FUNCTION_REFERENCES,
    **dict.fromkeys((0x78, 0x77, 0x73, 0x72, 0x71, 0x6E, 0x6D, 0x6C, 0x6B, 0x6A), GC),
}
_VALUE_CODES = bytes(VALUE_TYPES)
_EXTENDED_OPS = (0x6A, 0x6B, 0x6C, 0x7C, 0x7D, 0x7E)


class Cursor:
    """Walks `data` from `position` to `end`. `section` goes into refusals, `name_limit` is in bytes."""

    __slots__ = ("data", "end", "name_limit", "position", "section")

    def __init__(self, data: bytes, position: int, end: int, section: str, name_limit: int) -> None:
        self.data = data
        self.position = position
        self.end = end
        self.section = section
        self.name_limit = name_limit

    def malformed(self, what: str) -> ModuleRefused:
        """The refusal for a fault at the current byte."""
        return refused("malformed", section=self.section, offset=self.position, what=what)

    def byte(self) -> int:
        """The next byte."""
        if self.position >= self.end:
            raise self.malformed("ends too early")
        value = self.data[self.position]
        self.position += 1
        return value

    def u32(self) -> int:
        """An unsigned LEB128 of at most 5 bytes; padding with zero groups is valid."""
        value = self.byte()
        if value < 0x80:
            return value
        value &= 0x7F
        for shift in (7, 14, 21, 28):
            group = self.byte()
            value |= (group & 0x7F) << shift
            if group < 0x80:
                if shift == 28 and group > 0x0F:
                    break
                return value
        raise self.malformed("a number is larger than 32 bits")

    def signed(self, bits: int) -> int:
        """A signed LEB128 of `bits` (32 or 64) bits."""
        value = 0
        for shift in range(0, bits, 7):
            group = self.byte()
            value |= (group & 0x7F) << shift
            if group < 0x80:
                width = shift + 7
                if group & 0x40:
                    value -= 1 << width
                if not -(1 << (bits - 1)) <= value < 1 << (bits - 1):
                    break
                return value
        raise self.malformed(f"a number is larger than {bits} bits")

    def count(self, limit: int, what: str) -> int:
        """The length of a vector. An entry has a byte at least, so more entries than bytes left is a lie."""
        found = self.u32()
        left = self.end - self.position
        if found > left:
            raise self.malformed(f"announces {found} {what}, {left} bytes are left")
        if found > limit:
            raise self.malformed(f"has {found} {what}, at most {limit} are taken")
        return found

    def take(self, length: int) -> bytes:
        """The next `length` bytes."""
        if length > self.end - self.position:
            raise self.malformed(f"{length} bytes announced, {self.end - self.position} are left")
        start = self.position
        self.position += length
        return self.data[start : self.position]

    def skip(self, length: int) -> None:
        """Goes past `length` bytes without copying them."""
        if length > self.end - self.position:
            raise self.malformed(f"{length} bytes announced, {self.end - self.position} are left")
        self.position += length

    def name(self) -> str:
        """A length-prefixed UTF-8 name."""
        length = self.u32()
        if length > self.name_limit:
            raise self.malformed(f"a name of {length} bytes, at most {self.name_limit} are taken")
        raw = self.take(length)
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError:
            raise self.malformed("a name is not UTF-8") from None

    def value_type(self) -> str:
        """The name of a value type of the feature set."""
        return self.checked_type(self.byte())

    def checked_type(self, code: int) -> str:
        """The name of the type `code`; refuses those of other proposals by their names."""
        if code in VALUE_TYPES:
            return VALUE_TYPES[code]
        if code in _REFUSED_TYPES:
            raise refused("feature", feature=_REFUSED_TYPES[code])
        raise self.malformed(f"0x{code:02x} is no value type")

    def type_codes(self) -> bytes:
        """A vector of value types, as their codes."""
        codes = self.take(self.u32())
        unknown = codes.translate(None, _VALUE_CODES)
        if unknown:
            self.checked_type(unknown[0])
        return codes

    def reference_type(self) -> None:
        """A reference type, which must be funcref."""
        code = self.byte()
        if self.checked_type(code) != "funcref":
            raise self.malformed(f"0x{code:02x} is no reference type")

    def limits(self, maximum: int, what: str) -> tuple[int, int | None]:
        """Limits of a table or a memory: minimum and maximum, both at most `maximum`."""
        flags = self.byte()
        for bit, feature in ((2, THREADS), (4, MEMORY64), (8, PAGE_SIZES)):
            if flags & bit:
                raise refused("feature", feature=feature)
        if flags > 1:
            raise self.malformed(f"limits have flags 0x{flags:02x}")
        least = self.u32()
        most = self.u32() if flags & 1 else None
        if least > maximum or (most is not None and most > maximum):
            raise self.malformed(f"{what} of more than {maximum}")
        if most is not None and most < least:
            raise self.malformed(f"{what}: the minimum {least} is above the maximum {most}")
        return least, most

    def constant(self, expected: str) -> int | None:
        """A constant expression of type `expected`: its integer or function index, else None."""
        start = self.position
        op = self.byte()
        value: int | None = None
        if op == 0x41:
            found, value = "i32", self.signed(32)
        elif op == 0x42:
            found, value = "i64", self.signed(64)
        elif op == 0x43:
            found = "f32"
            self.skip(4)
        elif op == 0x44:
            found = "f64"
            self.skip(8)
        elif op == 0xD0:
            found = "funcref"
            self.reference_type()
        elif op == 0xD2:
            found, value = "funcref", self.u32()
        else:
            raise self._no_constant(op)
        self._end_of_constant()
        if found != expected:
            self.position = start
            raise self.malformed(f"a constant of type {found} where {expected} belongs")
        return value

    def _end_of_constant(self) -> None:
        op = self.byte()
        if op == 0x0B:
            return
        # A second operand can only feed an operator of extended-const, or is left over.
        if op in (0x41, 0x42, 0x23) or op in _EXTENDED_OPS:
            raise refused("feature", feature=EXTENDED_CONST)
        raise self.malformed("a constant expression has more than one value")

    def _no_constant(self, op: int) -> ModuleRefused:
        if op == 0x23:
            return self.malformed("a constant expression reads a global, but none can be imported")
        if op == 0xFD:
            return refused("feature", feature=SIMD)
        if op == 0xFB:
            return refused("feature", feature=GC)
        return self.malformed(f"0x{op:02x} is no constant instruction")
