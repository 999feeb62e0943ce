"""Notes of the creation of a request: with which credential it was sent.

Written by the kinds of requests, read when somebody approves or signs
(features/revoking/policies/revoked_requesters.py). No client sees or writes them.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from orchid.kernel.engine.request import Request

CREATED_BY: Final = "createdBy"  # the impersonator of the requester, if any
CREATED_WITH: Final = "createdWith"  # the ids of the credential, the impersonator's if any; JSON


def creation_notes(request: Request, attribute: str) -> dict[str, str]:
    """The notes; `attribute`: the extra attribute of users with the ids of their credential."""
    behind = request.real_user
    if behind is None and not request.key_id and not request.user.extra:
        return {}  # a credential without an id
    ids = request.credential_ids(attribute)
    notes = {CREATED_BY: behind.username} if behind else {}
    return {**notes, CREATED_WITH: msgspec.json.encode(ids).decode()} if ids else notes


def credential_ids_in(notes: Mapping[str, str]) -> tuple[str, ...]:
    """The ids of the credential with which a request was sent."""
    return msgspec.json.decode(notes.get(CREATED_WITH, "[]"), type=tuple[str, ...])
