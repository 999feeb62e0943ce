"""An entry has searchable members in clear text, and only hashes of personal data."""

import json
from pathlib import Path
from typing import Any

import pytest

from orchid.kernel.engine.ledger.entries import EntryTooLarge, Fact, entry, object_seal, seal
from tests.unit.features.ledger.logs import NOW

UID = "7f2c1d5e-0f6e-4c5e-9d0a-5b8f9c1f3a77"


def test_an_entry_is_compact_json_in_one_order() -> None:
    """The same fact has the same bytes, in any order of its members."""
    one = entry(Fact("a.b", {"signer": "s", "count": 1}), "", NOW)
    other = entry(Fact("a.b", {"count": 1, "signer": "s"}), "", NOW)

    assert one == other
    assert one == b'{"count":1,"signer":"s","time":"2026-11-15T10:00:00Z","type":"a.b"}'


def test_what_is_sealed_can_be_checked_with_the_uid_alone() -> None:
    """The entry contains neither name nor uid; with the object it can be verified."""
    logged = entry(Fact("request.approved", sealed={"requester": "alice"}), UID, NOW)

    content = json.loads(logged)

    assert b"alice" not in logged
    assert UID.encode() not in logged
    assert content["sealed"] == seal(UID, {"requester": "alice"})
    assert content["object"] == object_seal(UID)


def test_an_entry_has_the_form_that_it_always_had() -> None:
    """Others have proofs of entries, so not a byte may change: order, whole seconds, seals."""
    fact = Fact("a.b", {"signer": "s", "at": NOW}, {"requester": "alice", "names": ("b", "a")})

    logged = entry(fact, UID, NOW.replace(microsecond=987654))

    assert logged == (
        b'{"at":"2026-11-15T10:00:00Z",'
        b'"object":"0be18fe8681534e9eabf04fb6b172f3a2a2e0c4c9ce997595057eb9779a52ca2",'
        b'"sealed":"c9b1002957b127c07c4a7c01e028f026a5101e5ea0c784faf36771566ba107bb",'
        b'"signer":"s","time":"2026-11-15T10:00:00Z","type":"a.b"}'
    )


def test_a_seal_depends_on_the_object_the_names_and_the_values() -> None:
    """Two entries about the same person do not show that they are; the order does not matter."""
    two = {"name": "r", "requester": "alice"}
    seals = [
        seal(UID, two),
        seal(UID, {"name": "r", "requester": "bob"}),
        seal(UID, {"name": "r", "approver": "alice"}),
        seal(UID, {"name": "r"}),
        seal("another-uid", two),
        object_seal(UID),
        object_seal("another-uid"),
    ]

    assert len(set(seals)) == len(seals)
    assert seal(UID, {"requester": "alice", "name": "r"}) == seals[0]


def test_seals_are_what_the_documentation_says() -> None:
    """The few lines of Python in docs/ledger.md give the same hashes, for any value."""
    page = Path("docs/ledger.md").read_text()
    lines = page.partition("```python\n")[2].partition("```")[0]
    page_code: dict[str, Any] = {}
    exec(lines, page_code)  # noqa: S102 -- our own page

    assert page_code["object_seal"](UID) == object_seal(UID)
    for value in ("alice", "Zoë \U0001f98a", ["b", "a"], {"b": 1, "a": None}):
        members = {"requester": value, "name": "r"}
        assert page_code["seal"](UID, members) == seal(UID, members)


def test_a_fact_that_is_too_large_is_refused() -> None:
    """A bundle of 256 entries must fit into one value of the store."""
    with pytest.raises(EntryTooLarge, match="limit is 4096"):
        entry(Fact("a.b", {"text": "x" * 4096}), UID, NOW)
