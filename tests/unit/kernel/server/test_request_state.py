"""The state of each request is its own."""

import itertools
import uuid

from orchid.kernel.server.request_state import audit_ids


def test_audit_ids_are_uuids_and_all_different() -> None:
    """Within one process by a count, between processes by a random beginning."""
    ours = list(itertools.islice(audit_ids(), 1000))
    theirs = list(itertools.islice(audit_ids(), 1000))

    assert all(str(uuid.UUID(one)) == one for one in ours)
    assert len({*ours, *theirs}) == 2000
    assert ours == sorted(ours)
