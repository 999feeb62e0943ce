"""Storage format of a revocation list: split into parts, under well-known names.

The list of an authority is in the ConfigMap `head_name`, in the system namespace. If it is too long
for a single object, the rest is in further objects, `part_name`, written before the head with their
number. So a reader of the head finds all parts of that edition, or an older head.
"""

from typing import Final

LARGEST_PART: Final = 900_000  # bytes; the limit of an object is 1 MiB
NUMBER: Final = "number"
NEXT_UPDATE: Final = "nextUpdate"
PARTS: Final = "parts"
DATA: Final = "crl"


def head_name(authority: str) -> str:
    return f"crl.{authority}"


def part_name(authority: str, number: int, index: int) -> str:
    return f"crl.{authority}.{number}.{index}"


def names(authority: str, number: int, parts: int) -> list[str]:
    """The names of all ConfigMaps of an edition, the head first."""
    others = [part_name(authority, number, index) for index in range(1, parts)]
    return [head_name(authority), *others]


def split(data: bytes) -> list[bytes]:
    """The parts of a list; the first is in the head."""
    return [data[at : at + LARGEST_PART] for at in range(0, len(data), LARGEST_PART)]


def head_data(number: int, next_update: str, parts: int) -> dict[str, str]:
    """The data of a head besides its part of the list."""
    return {NUMBER: str(number), NEXT_UPDATE: next_update, PARTS: str(parts)}
