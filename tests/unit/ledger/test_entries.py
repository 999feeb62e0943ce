"""An entry holds what is to be found in clear, and only hashes of what may tell of a person."""

import json
from pathlib import Path
from typing import Any

import pytest

from orchid.ledger.entries import EntryTooLarge, Fact, entry, seal
from tests.unit.ledger.logs import NOW

UID = "7f2c1d5e-0f6e-4c5e-9d0a-5b8f9c1f3a77"


def test_an_entry_is_compact_json_in_one_order() -> None:
    """The same fact is always the same bytes, whatever the order in which it was told."""
    one = entry(Fact("a.b", {"signer": "s", "count": 1}), "", NOW)
    other = entry(Fact("a.b", {"count": 1, "signer": "s"}), "", NOW)

    assert one == other
    assert one == b'{"count":1,"signer":"s","time":"2026-11-15T10:00:00Z","type":"a.b"}'


def test_what_is_sealed_can_be_checked_with_the_uid_alone() -> None:
    """Neither the name nor the uid stands in the entry; who has the object can open it."""
    logged = entry(Fact("request.approved", sealed={"requester": "alice"}), UID, NOW)

    content = json.loads(logged)

    assert b"alice" not in logged
    assert UID.encode() not in logged
    assert content["sealed"]["requester"] == seal(UID, "requester", "alice")
    assert content["object"] == seal(UID, "uid", UID)


def test_an_entry_has_the_form_that_it_always_had() -> None:
    """Others have proofs of entries, so not a byte may change: order, whole seconds, seals."""
    fact = Fact("a.b", {"signer": "s", "at": NOW}, {"requester": "alice", "names": ("b", "a")})

    logged = entry(fact, UID, NOW.replace(microsecond=987654))

    assert logged == (
        b'{"at":"2026-11-15T10:00:00Z",'
        b'"object":"0be18fe8681534e9eabf04fb6b172f3a2a2e0c4c9ce997595057eb9779a52ca2",'
        b'"sealed":{'
        b'"names":"caa1b24e4351204b134d341606399041074694f62775bf6143107737d1c7c8d1",'
        b'"requester":"3a821315aee52787e252335fcbbd07fbd5fa529e6a49dae9d359a3c4ce97c3cd"},'
        b'"signer":"s","time":"2026-11-15T10:00:00Z","type":"a.b"}'
    )


def test_a_seal_depends_on_the_object_the_field_and_the_value() -> None:
    """Two entries about the same person do not show that they are."""
    seals = {
        seal(UID, "requester", "alice"),
        seal(UID, "requester", "bob"),
        seal(UID, "approver", "alice"),
        seal("another-uid", "requester", "alice"),
    }

    assert len(seals) == 4


def test_a_seal_is_what_the_documentation_says() -> None:
    """The few lines of Python in docs/ledger.md give the same hash, for any value."""
    page = Path("docs/ledger.md").read_text()
    lines = page.partition("```python\n")[2].partition("```")[0]
    told: dict[str, Any] = {}
    exec(lines, told)  # noqa: S102 -- our own page

    for value in ("alice", "Zoë \U0001f98a", ["b", "a"], {"b": 1, "a": None}):
        assert told["seal"](UID, "requester", value) == seal(UID, "requester", value)


def test_a_fact_that_is_too_large_is_refused() -> None:
    """A bundle of 256 entries must fit into one value of the store."""
    with pytest.raises(EntryTooLarge, match="limit is 4096"):
        entry(Fact("a.b", {"text": "x" * 4096}), UID, NOW)
