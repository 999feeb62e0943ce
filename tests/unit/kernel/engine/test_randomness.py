"""Uids: each is a version 4 UUID in its usual text form, and none comes twice."""

import uuid

from orchid.kernel.engine.randomness import UIDS_AT_ONCE, SystemRandomness


def test_a_uid_is_a_version_4_uuid_and_never_comes_again() -> None:
    """Also after a batch is used up, and for another server."""
    one, other = SystemRandomness(), SystemRandomness()

    uids = [source.uid() for source in (one, other) for _ in range(2 * UIDS_AT_ONCE + 1)]

    read = [uuid.UUID(uid) for uid in uids]
    assert len(set(uids)) == len(uids)
    assert [str(each) for each in read] == uids
    assert {(each.version, each.variant) for each in read} == {(4, uuid.RFC_4122)}
