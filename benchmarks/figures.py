"""The figures to reach: what the reference does, and how much better we must and want to be.

The reference is its API server with etcd 3.6 on one core of a machine that makes 18,175 P-256
signatures a second; a `scale` carries its figures over to the machine at hand. A ratio above 1
always means better than the reference, be it more per second, sooner, or smaller.
"""

from dataclasses import dataclass
from enum import Enum

REFERENCE_SIGNATURES = 18_175.0  # `openssl speed ecdsap256`, per second, one core


class Kind(Enum):
    RATE = "/s"  # grows with the machine
    SECONDS = "s"  # shrinks with the machine
    MILLISECONDS = "ms"
    KIBIBYTES = "KiB"  # the same everywhere
    MEGABYTES = "MB"


@dataclass(frozen=True)
class Figure:
    """What one measurement is compared with."""

    name: str
    kind: Kind
    reference: float
    must: float  # as a ratio to the reference, or `in_units`
    aim: float
    in_units: bool = False  # what is wanted is a figure by itself, on whatever machine

    def reference_here(self, scale: float) -> float:
        match self.kind:
            case Kind.RATE:
                return self.reference * scale
            case Kind.SECONDS | Kind.MILLISECONDS:
                return self.reference / scale
            case Kind.KIBIBYTES | Kind.MEGABYTES:
                return self.reference

    @property
    def is_guessed(self) -> bool:
        """Whether the scale decides: it says little about a server in another language."""
        return not self.in_units and self.kind in {Kind.RATE, Kind.SECONDS, Kind.MILLISECONDS}

    def ratio(self, measured: float, scale: float) -> float:
        here = self.reference_here(scale)
        return measured / here if self.kind is Kind.RATE else here / measured

    def wanted(self, scale: float) -> tuple[float, float]:
        """What we must and want to reach, as ratios to the reference on this machine."""
        if self.in_units:
            return self.ratio(self.must, scale), self.ratio(self.aim, scale)
        return self.must, self.aim


FIGURES = (
    Figure("livez", Kind.RATE, 3424, must=6, aim=8),
    Figure("get", Kind.RATE, 1486, must=9, aim=15),
    Figure("list500", Kind.RATE, 123, must=14, aim=20),
    Figure("selfsubjectreview", Kind.RATE, 1583, must=6, aim=10),
    Figure("tokenreview-one", Kind.RATE, 1228, must=6, aim=10),
    Figure("tokenreview-many", Kind.RATE, 1171, must=6, aim=10),
    Figure("tokenrequest", Kind.RATE, 751, must=4.5, aim=8),
    Figure("create", Kind.RATE, 711, must=4, aim=8),
    Figure("csr-create", Kind.RATE, 653, must=3, aim=5),
    Figure("csr-create-many", Kind.RATE, 653, must=3, aim=5),
    # The reference holds its controllers to 20 calls a second: there is nothing to compare with.
    Figure("csr-issue", Kind.RATE, 150, must=450, aim=800, in_units=True),
    # The same without a person, by 20 policies, which the reference does not have.
    Figure("csr-policy", Kind.RATE, 150, must=250, aim=500, in_units=True),
    Figure("memory", Kind.MEGABYTES, 618, must=8, aim=10),
    Figure("cold-start", Kind.SECONDS, 3.9, must=0.6, aim=0.4, in_units=True),
    Figure("watch-memory", Kind.KIBIBYTES, 74, must=30, aim=28, in_units=True),
    Figure("watch-fanout", Kind.MILLISECONDS, 58, must=40, aim=20, in_units=True),
)

# Objects that the reference made in eight seconds of each load, before its memory was read.
# The last load is ours.
MADE_BY_REFERENCE = {"create": 711 * 8, "csr-create": 653 * 8, "csr-create-many": 0}

# Calls of functions written in Python for one request: what it must stay under, and the aim.
CALLS = {
    "livez": (40, 25),
    "get": (50, 35),
    "list500": (65, 45),
    "selfsubjectreview": (75, 50),
    "tokenreview-one": (90, 60),
    "tokenrequest": (120, 80),
    "create": (150, 100),
    "csr-create": (150, 100),
}
