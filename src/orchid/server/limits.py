"""How many requests may be under way at once. Above that: 429, and come back in a second.

Watches do not count while they last, only while they open. Members of system:masters are never
turned away, so that somebody can still look when the server is swamped.
"""

from types import TracebackType

from orchid.wire.user import MASTERS, UserInfo

READ_VERBS = frozenset({"get", "list", "watch", "head"})


class Overloaded(Exception):
    """No room for this request now."""


class Room:
    """A counted number of places; a request holds one while it is worked on."""

    __slots__ = ("most", "taken")

    def __init__(self, most: int) -> None:
        self.most = most
        self.taken = 0

    def __enter__(self) -> None:
        self.taken += 1

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.taken -= 1


class InFlight:
    """Places for reading and for writing requests, apart, so that neither starves the other."""

    def __init__(self, reading: int, writing: int) -> None:
        self.reading = Room(reading)
        self.writing = Room(writing)

    def room_for(self, verb: str, user: UserInfo) -> Room:
        room = self.reading if verb in READ_VERBS else self.writing
        if room.most and room.taken >= room.most and MASTERS not in user.groups:
            raise Overloaded
        return room
