"""How a revocation list is kept in objects: cut into parts, under names that all servers know.

The list of an authority stands in the ConfigMap `head_name`, in the system namespace. One that is
too long for a single object has its bytes in further objects, `part_name`, written before the head
that counts them. So whoever reads the head finds all parts of that edition, or an older head.
"""

from typing import Final

LARGEST_PART: Final = 900_000  # bytes; an object takes 1 MiB
NUMBER: Final = "number"
NEXT_UPDATE: Final = "nextUpdate"
PARTS: Final = "parts"
DATA: Final = "crl"


def head_name(authority: str) -> str:
    return f"crl.{authority}"


def part_name(authority: str, number: int, index: int) -> str:
    return f"crl.{authority}.{number}.{index}"


def split(data: bytes) -> list[bytes]:
    """The parts of a list; the first stands in the head."""
    return [data[at : at + LARGEST_PART] for at in range(0, len(data), LARGEST_PART)]
