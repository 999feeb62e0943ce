"""Everything that is stored, and what a restore does with it."""

import json
import re
from pathlib import Path

import pytest

import orchid
from orchid.assembly.kinds import stored_kinds
from orchid.commands.records.stored_data import (
    DROPPED,
    KEPT_PREFIXES,
    NEWER,
    REVIVED,
    STORED,
    is_other_decision,
)
from orchid.kernel.wire.naming import KUBERNETES, ORCH, Naming

SOURCE = Path(orchid.__file__).parent
# A store key in the source that begins with "~": it is no object, and sorts behind all of them.
RECORDS = re.compile(r'"(~[a-z]+/)[^"]*"')


@pytest.mark.parametrize("naming", [ORCH, KUBERNETES], ids=lambda naming: naming.system_namespace)
def test_every_kind_and_record_has_its_row(naming: Naming) -> None:
    """A new one is restored by nobody's oversight: say in STORED what a restore does with it."""
    kinds = {kind.key_prefix for kind in stored_kinds(naming)}
    texts = [path.read_text() for path in SOURCE.rglob("*.py") if path.name != "stored_data.py"]
    records = {prefix for text in texts for prefix in RECORDS.findall(text)}

    assert kinds
    assert "~ledger/" in records
    assert kinds | records == STORED.keys()


def test_each_row_has_one_treatment() -> None:
    """What is dropped or kept is not reported as valid again."""
    listed = [*REVIVED, *DROPPED, *KEPT_PREFIXES, *NEWER]

    assert len(listed) == len(set(listed))


def stored(**fields: object) -> bytes:
    return json.dumps({"kind": "AcmeAccount", "metadata": {"uid": "1"}, **fields}).encode()


@pytest.mark.parametrize(
    ("before", "after", "counts"),
    [
        (stored(spec={"state": "valid"}), stored(spec={"state": "deactivated"}), True),
        (stored(rules=[1]), stored(rules=[]), True),
        (stored(status={"a": 1}), stored(status={"a": 2}), False),
        (stored(note={"a": "1"}), stored(), False),
        (stored(), stored(metadata={"uid": "1", "labels": {}}), False),
        (b"sealed one", b"sealed two", True),
        (stored(), b"sealed now", True),
    ],
)
def test_a_change_counts_if_it_decides(before: bytes, after: bytes, counts: bool) -> None:
    """What controllers observe changes all the time; encrypted values cannot be compared."""
    assert is_other_decision(before, after) is counts


@pytest.mark.parametrize(("now", "counts"), [("Denied", True), ("Approved", False)])
def test_the_decision_about_a_request_counts(now: str, counts: bool) -> None:
    """It is a condition; when it was written does not matter."""
    kind = "CertificateSigningRequest"
    then = {"conditions": [{"type": "Approved", "status": "True", "lastUpdateTime": "1"}]}
    later = {"conditions": [{"type": now, "status": "True", "lastUpdateTime": "2"}]}

    before, after = (stored(kind=kind, status=status) for status in (then, later))

    assert is_other_decision(before, after) is counts
