"""The bundle of a signer: its forms, and when the files are written again."""

from pathlib import Path

import pytest

from orchid.features.hosts.agent.configuration import Bundle
from orchid.features.hosts.agent.outputs.bundle import PEM, REVOKED, STORE, BundleContent
from orchid.features.hosts.agent.outputs.content import ContentFailed
from tests.unit.features.hosts.agent.outputs.answering import (
    OTHER_SIGNER,
    SIGNER,
    Server,
    a_round,
    pem,
)
from tests.unit.kernel.credentials import chains

ALL = Bundle(signer=SIGNER, formats=("pem", "p12", "crl"), authority="web")


def test_every_form_has_to_be_there() -> None:
    files = {PEM: b"a", STORE: b"b", REVOKED: b"c"}

    assert BundleContent(ALL).life(files) is not None
    for name in files:
        assert BundleContent(ALL).life({**files, name: b""}) is None
    assert BundleContent(Bundle(signer=SIGNER)).life({PEM: b"a"}) is not None


def test_a_trust_store_changes_with_its_anchors_only(tmp_path: Path) -> None:
    """Its encoding is random: programs would read it again in every round."""
    server = Server()
    server.lists["web"] = b"list"
    fresh = BundleContent(ALL).refresh("b", {}, a_round(server, tmp_path))
    files = {file.name: file.data for file in fresh.files}
    assert (files[PEM], files[REVOKED]) == (pem(chains.ROOT), b"list")

    again = BundleContent(ALL).refresh("b", files, a_round(server, tmp_path))
    assert {file.name: file.data for file in again.files} == files

    both = chains.authority("second", key=chains.OTHER_P256)
    server.bundles[SIGNER] += pem(both).decode()
    third = BundleContent(ALL).refresh("b", files, a_round(server, tmp_path))
    changed = {file.name: file.data for file in third.files}
    assert changed[STORE] != files[STORE]
    assert pem(both) in changed[PEM]


def test_without_a_bundle_or_a_list_nothing_is_written(tmp_path: Path) -> None:
    """The list of another authority is none."""
    server = Server()
    server.lists["mail"] = b"list"

    with pytest.raises(ContentFailed, match="the authority web has no revocation list"):
        BundleContent(ALL).refresh("b", {}, a_round(server, tmp_path))
    with pytest.raises(ContentFailed, match="has no trust bundle"):
        BundleContent(Bundle(signer=OTHER_SIGNER)).refresh("b", {}, a_round(server, tmp_path))
