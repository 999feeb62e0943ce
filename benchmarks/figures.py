"""The figures to reach: what the reference does, and how much better we must and want to be.

The reference is its API server with etcd 3.6 on one core of a machine that makes 18,175 P-256
signatures a second; a `scale` carries its figures over to the machine at hand. A ratio above 1
always means better than the reference, be it more per second, sooner, or smaller.
"""

import re
import subprocess
from dataclasses import dataclass
from enum import Enum

REFERENCE_SIGNATURES = 18_175.0  # `openssl speed ecdsap256`, per second, one core
SIGN_RATE = re.compile(r"nistp256\)\s+\S+s\s+\S+s\s+([\d.]+)")


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
    must: float  # as a ratio to the reference
    aim: float

    def reference_here(self, scale: float) -> float:
        match self.kind:
            case Kind.RATE:
                return self.reference * scale
            case Kind.SECONDS | Kind.MILLISECONDS:
                return self.reference / scale
            case Kind.KIBIBYTES | Kind.MEGABYTES:
                return self.reference

    def ratio(self, measured: float, scale: float) -> float:
        here = self.reference_here(scale)
        return measured / here if self.kind is Kind.RATE else here / measured


FIGURES = (
    Figure("livez", Kind.RATE, 3424, must=4, aim=8),
    Figure("get", Kind.RATE, 1486, must=4, aim=10),
    Figure("list500", Kind.RATE, 123, must=5, aim=15),
    Figure("selfsubjectreview", Kind.RATE, 1583, must=3, aim=8),
    Figure("tokenreview-one", Kind.RATE, 1228, must=3, aim=8),
    Figure("tokenreview-many", Kind.RATE, 1171, must=3, aim=8),
    Figure("tokenrequest", Kind.RATE, 751, must=3, aim=6),
    Figure("create", Kind.RATE, 711, must=2, aim=6),
    Figure("csr-create", Kind.RATE, 653, must=1.5, aim=3),
    # The reference holds its controllers to 20 calls a second: what we must reach is the measure.
    Figure("csr-issue", Kind.RATE, 150, must=1, aim=500 / 150),
    # The same without a person, by 20 policies, which the reference does not have.
    Figure("csr-policy", Kind.RATE, 150, must=1, aim=300 / 150),
    Figure("memory", Kind.MEGABYTES, 618, must=8, aim=10),
    Figure("cold-start", Kind.SECONDS, 3.9, must=6.5, aim=9.75),
    Figure("watch-memory", Kind.KIBIBYTES, 74, must=74 / 40, aim=74 / 30),
    Figure("watch-fanout", Kind.MILLISECONDS, 58, must=1, aim=58 / 25),
)

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


def signatures_per_second(core: int) -> float:
    """Measure this machine by the yardstick: P-256 signatures per second on one core."""
    command = ["taskset", "-c", str(core), "openssl", "speed", "-seconds", "2", "ecdsap256"]
    told = subprocess.run(command, capture_output=True, text=True, check=True)
    found = SIGN_RATE.search(told.stdout)
    if found is None:
        raise SystemExit(f"cannot read the answer of openssl speed:\n{told.stdout}")
    return float(found[1])
