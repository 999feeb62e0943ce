"""`orchid doctor` and the stored token keys: what it reports of each."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from orchid.commands.diagnosis.key_checks import stored_keys
from orchid.kernel.credentials.keys import VerificationKey, generate
from orchid.kernel.settings import data_directory
from orchid.kernel.settings.checking import check
from orchid.kernel.terminal.connection import ServerConnection
from orchid.kernel.terminal.findings import Installation
from orchid.kernel.wire.naming import ORCH
from tests.settings import written

NOW = datetime(2026, 11, 18, tzinfo=UTC)


def key(name: str, state: str, days: int = 1, **conditions: tuple[str, str]) -> dict[str, Any]:
    since = (NOW - timedelta(days=days)).strftime("%Y-%m-%dT%H:%M:%SZ")
    listed = [
        {"type": type_, "status": "False", "reason": reason, "message": text}
        for type_, (reason, text) in conditions.items()
    ]
    status = {"times": {state.lower(): since}, "conditions": listed}
    return {"metadata": {"name": name}, "spec": {"state": state}, "status": status}


def lease(name: str, seconds: int, **annotations: str) -> dict[str, Any]:
    renewed = (NOW - timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%S.000000Z")
    marks = {f"identity.orch.io/{word}": text for word, text in annotations.items()}
    return {"metadata": {"name": name, "annotations": marks}, "spec": {"renewTime": renewed}}


LEASES = [
    lease("orch-server-new", 5, serves="01"),
    lease("orch-server-gone", 3600),
    lease("orch-server-old", 5, keys="k"),
    lease("orch-controller-manager", 5),
]


class Server:
    """Answers with some keys."""

    naming = ORCH

    def __init__(self, *keys: dict[str, Any]) -> None:
        self._keys = keys

    def get(self, place: str) -> dict[str, Any]:
        return {"items": self.items(place)}

    def items(self, place: str) -> list[dict[str, Any]]:
        return LEASES if place.endswith("/namespaces/orch-system/leases") else list(self._keys)


def findings(tmp_path: Path, *keys: dict[str, Any], **given: Any) -> list[tuple[str, str]]:
    settings = check(written(data_dir=str(tmp_path), **given))
    server = cast(ServerConnection, Server(*keys))
    here = Installation(settings, data_directory.located(settings), NOW, server)
    return [(one.state, one.text) for one in stored_keys(here)]


def test_a_good_set_of_keys(tmp_path: Path) -> None:
    """A signer, and a successor that waits."""
    found = findings(tmp_path, key("tokens-1", "Active"), key("tokens-2", "Published"))

    assert [state for state, _ in found] == ["good", "good"]
    assert found[0][1] == "tokens-1 is Active since 2026-11-17"


@pytest.mark.parametrize(
    ("keys", "state", "text"),
    [
        ((key("tokens-2", "Published"),), "wrong", "no token key is Active"),
        ((key("tokens-1", "Active"),), "soon", "no successor is Published"),
        ((key("tokens-1", "Active", days=140),), "soon", "longer than 1.5 periods"),
        (
            (key("tokens-1", "Active", Ready=("KeyLost", "gone")),),
            "wrong",
            "but its private key is lost",
        ),
        (
            (key("tokens-1", "Verifying", Retirable=("NotYet", "2 tokens of 1 holder")),),
            "note",
            "2 tokens of 1 holder",
        ),
    ],
)
def test_what_is_reported(
    tmp_path: Path, keys: tuple[dict[str, Any], ...], state: str, text: str
) -> None:
    """Each problem has its own line."""
    assert [one for one in findings(tmp_path, *keys) if one[0] == state and text in one[1]]


def test_a_server_that_does_not_know_keys_of_authorities_is_named(tmp_path: Path) -> None:
    """Only one that is live; and what it has written."""
    tokens = key("tokens-1", "Active"), key("tokens-2", "Published")
    of_authority = key("web-1", "Active")
    of_authority["spec"]["authority"] = "web"
    found = findings(tmp_path, *tokens, of_authority)
    damaged = findings(tmp_path, *tokens, key("web-1", "Active"))

    assert [text for state, text in found if state == "wrong"] == [
        "orch-server-old is a server of an earlier version; it may take keys of authorities for "
        "token keys"
    ]
    assert [text for state, text in damaged if state == "wrong"] == [
        "web-1 lost its authority: a server of an earlier version wrote it"
    ]


def test_keys_of_files_are_checked_elsewhere(tmp_path: Path) -> None:
    """There are no objects then."""
    assert findings(tmp_path, token_keys="files") == []


def public_only(public: VerificationKey, state: str = "Verifying", **spec: Any) -> dict[str, Any]:
    """A key that holds only a public key, as an earlier version stored it."""
    made = key("tokens-3", state)
    made["spec"] |= {"publicKey": public.pem(), **spec}
    made["status"]["keyID"] = public.kid
    return made


@pytest.mark.parametrize(
    ("more", "is_named"),
    [
        ({}, True),
        ({"cluster": "prod"}, False),
        ({"authority": "web"}, False),
        ({"state": "Retired"}, False),
    ],
)
def test_a_public_key_of_no_cluster_is_named(
    tmp_path: Path, more: dict[str, str], *, is_named: bool
) -> None:
    """It verifies tokens of every account; somebody else may have the private key."""
    found = findings(tmp_path, public_only(generate().public, **more))

    text = "tokens-3 is a public key of no cluster: it verifies tokens of every account"
    assert (("wrong", text) in found) is is_named


def test_an_earlier_key_in_a_file_of_the_server_is_good(tmp_path: Path) -> None:
    """So is an object that only shows a key of files."""
    mine, shown = generate().public, public_only(generate().public)
    shown["status"]["source"] = "File"
    file = tmp_path / "earlier.pem"
    file.write_text(mine.pem())

    found = findings(
        tmp_path,
        public_only(mine),
        shown,
        service_account_key_file=(str(tmp_path / "gone.pem"), str(file)),
    )

    assert not [text for _, text in found if "public key of no cluster" in text]
