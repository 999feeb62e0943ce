"""The CAs by which a host knows its server: replaced by the server's bundle if the two overlap."""

import datetime
from collections import Counter
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec

from orchid.features.hosts.agent.calls import Clocks
from orchid.features.hosts.agent.configuration import Join
from orchid.features.hosts.agent.generations import OutputFile, Permissions, write_generation
from orchid.features.hosts.agent.host_identity import (
    AUTHORITY,
    CERTIFICATE,
    KEY,
    SERVER,
    HostIdentity,
)
from orchid.features.hosts.agent.state_directory import opened
from orchid.kernel.credentials import keys
from tests.unit.features.hosts.agent.pretend_server import HOST, Authority, now

OURS, NEXT, OTHER = (Authority(name) for name in ("ours", "next", "other"))


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "state"


def identity(directory: Path, authority: str) -> HostIdentity:
    """An identity of a host that has joined with these CAs."""
    key = ec.generate_private_key(ec.SECP256R1())
    request = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([]))
    chain = OURS.sign(request.sign(key, hashes.SHA256()), 3600, 0.0)
    files = [
        OutputFile(CERTIFICATE, chain),
        OutputFile(KEY, keys.encode_private(key).encode()),
        OutputFile(SERVER, b'{"server": "https://127.0.0.1:1", "host": "%s"}' % HOST.encode()),
        OutputFile(AUTHORITY, authority.encode()),
    ]
    with opened(directory) as state:
        write_generation(state.identity, files, Permissions(), now())
        clocks = Clocks(lambda: datetime.datetime.now(datetime.UTC))
        return HostIdentity(Join(file=str(directory / "join")), state, clocks, Counter())


@pytest.mark.parametrize(
    ("present", "bundle", "is_followed"),
    [
        (OURS.pem, OURS.pem + NEXT.pem, True),
        (OURS.pem + NEXT.pem, NEXT.pem, True),
        (OURS.pem, OTHER.pem, False),
        (OURS.pem, "", False),
    ],
)
def test_the_bundle_of_the_server_is_followed_if_it_overlaps(
    directory: Path, present: str, bundle: str, is_followed: bool
) -> None:
    """A stranger that answers once in the server's place must not become the server for good."""
    host = identity(directory, present)

    host.follow_authority(bundle.encode())

    followed = bundle if is_followed else present
    assert host.access().authority == followed.encode()
    assert (directory / "identity" / AUTHORITY).read_text() == followed


def test_the_same_bundle_writes_nothing(directory: Path) -> None:
    """At every check of an agent."""
    host = identity(directory, OURS.pem)
    before = (directory / "identity" / "..data").readlink()

    host.follow_authority(OURS.pem.encode())

    assert (directory / "identity" / "..data").readlink() == before


def test_a_host_that_trusts_the_system_has_no_bundle_to_follow(directory: Path) -> None:
    """Its join file named no CA, so a bundle has nothing to overlap with."""
    host = identity(directory, "")

    host.follow_authority(OURS.pem.encode())

    assert not host.access().authority
