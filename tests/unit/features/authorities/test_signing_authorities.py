"""The authorities behind the signers: intermediates, rotation while running, lifetimes, expiry.

The signing controller runs against a server in memory, with authority files that a test writes.
Times that matter are the controller's clock, which the test moves.
"""

import datetime
import shutil
from pathlib import Path

import pytest
from cryptography import x509

from orchid.features.certificates.controllers.sign_requests import SignRequests
from orchid.features.certificates.kinds.certificate_signing_request import (
    CertificateSigningRequest,
    CertificateSigningRequestSpec,
)
from orchid.features.trust_bundles.kinds.cluster_trust_bundle import ClusterTrustBundle
from orchid.kernel.client.client import ListSelection
from orchid.kernel.credentials.authorities.authority import Authority
from orchid.kernel.credentials.files import CHECK_INTERVAL_SECONDS
from orchid.kernel.credentials.refusals import AuthorityExpired
from orchid.kernel.wire.meta import ObjectMeta
from orchid.kernel.wire.naming import ORCH
from tests.unit.features.authorities.test_keep_authorities import warning_about
from tests.unit.features.beside import CLIENT_USAGES, Beside, beside
from tests.unit.kernel.credentials import samples

HOUR = 3600
NEXT_LOOK = datetime.timedelta(seconds=CHECK_INTERVAL_SECONDS)  # at the files of an authority
DAY = datetime.timedelta(days=1)


class Files:
    """A pair of authority files."""

    def __init__(self, directory: Path) -> None:
        self.certificate, self.key = directory / "own.crt", directory / "own.key"

    @property
    def settings(self) -> dict[str, str]:
        return {
            "cluster_signing_cert_file": str(self.certificate),
            "cluster_signing_key_file": str(self.key),
        }

    def write(self, certificates: bytes, key: bytes) -> None:
        self.write_key(key)
        self.certificate.write_bytes(certificates)

    def write_key(self, key: bytes) -> None:
        self.key.write_bytes(key)
        self.key.chmod(0o600)

    def write_new(self, name: str, lifetime: datetime.timedelta = 10 * DAY) -> None:
        made = Authority.create(name, now=now(), lifetime=lifetime)
        self.write(made.certificate_pem, made.key_pem().reveal().encode())


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


async def issued(
    world: Beside, name: str, seconds: int | None = None, signer: str = ORCH.client_signer
) -> list[x509.Certificate]:
    """Ask, approve, wait: the certificate and its chain."""
    spec = CertificateSigningRequestSpec(
        request=samples.request("alice"),
        signer_name=signer,
        usages=CLIENT_USAGES,
        expiration_seconds=seconds,
    )
    meta = ObjectMeta(name=name)
    await world.approve(
        await world.admin.create(CertificateSigningRequest(metadata=meta, spec=spec))
    )
    done = await world.until_like(
        CertificateSigningRequest, name, condition=lambda csr: csr.is_issued
    )
    return x509.load_pem_x509_certificates(done.status.certificate)


async def test_intermediate_authority_gives_its_chain_and_publishes_its_root(
    server_files: Path, files: Files
) -> None:
    """A verifier who has the published bundle alone can follow the chain from the leaf."""
    chain, key, root = samples.intermediate_authority(now())
    files.write(chain, key)
    async with (
        beside(server_files, **files.settings) as world,
        world.running("csrsigning", "trust-bundle-publisher"),
    ):
        leaf, *above = await issued(world, "i")
        bundle = await world.until(lambda: published(world, ORCH.client_signer))

    assert [one.subject.rfc4514_string() for one in above] == ["CN=between"]
    leaf.verify_directly_issued_by(above[0])
    above[0].verify_directly_issued_by(root)
    assert x509.load_pem_x509_certificates(bundle.spec.trust_bundle.encode()) == [root]


async def published(world: Beside, signer: str) -> ClusterTrustBundle | None:
    page = await world.admin.page(ListSelection(ClusterTrustBundle))
    return next((one for one in page.items if one.spec.signer_name == signer), None)


async def test_authority_is_rotated_while_the_controller_runs(
    server_files: Path, files: Files
) -> None:
    """Half a rotation changes nothing; the new pair signs once both files fit together."""
    files.write_new("first")
    async with beside(server_files, **files.settings) as world, world.running("csrsigning"):
        issuers = [(await issued(world, "before"))[0].issuer]
        second = Authority.create("second", now=now())
        files.write_key(second.key_pem().reveal().encode())
        world.clock.ahead += NEXT_LOOK
        issuers.append((await issued(world, "between"))[0].issuer)
        files.certificate.write_bytes(second.certificate_pem)
        world.clock.ahead += NEXT_LOOK
        issuers.append((await issued(world, "after"))[0].issuer)

    assert [one.rfc4514_string() for one in issuers] == ["CN=first", "CN=first", "CN=second"]


@pytest.mark.parametrize(
    ("asked", "lasts"),
    [
        (None, 24 * HOUR),
        (48 * HOUR, 24 * HOUR),
        (20 * HOUR, 20 * HOUR),
        (8 * HOUR, 8 * HOUR),
        (8 * HOUR - 1, 8 * HOUR + 299),
        (2 * HOUR, 2 * HOUR + 300),
        (600, 900),
    ],
)
async def test_lifetime_is_as_asked_up_to_the_longest(
    server_files: Path, asked: int | None, lasts: int
) -> None:
    """From five minutes ago; short ones are not shortened by that, long ones are."""
    async with (
        beside(server_files, cluster_signing_duration="24h") as world,
        world.running("csrsigning"),
    ):
        leaf, *_ = await issued(world, "t", asked)

    assert (leaf.not_valid_after_utc - leaf.not_valid_before_utc).total_seconds() == lasts


async def test_certificate_ends_with_its_authority(server_files: Path, files: Files) -> None:
    """Nothing is valid for longer than the one who says so."""
    files.write_new("short", datetime.timedelta(hours=1))
    authority = x509.load_pem_x509_certificate(files.certificate.read_bytes())
    async with beside(server_files, **files.settings) as world, world.running("csrsigning"):
        leaf, *_ = await issued(world, "t", 20 * HOUR)

    assert leaf.not_valid_after_utc == authority.not_valid_after_utc


async def test_expired_authority_leaves_the_request_for_its_successor(
    server_files: Path, files: Files
) -> None:
    """That is nobody's fault who asked: an event says why, and the next pair signs."""
    files.write_new("short", datetime.timedelta(hours=1))
    async with beside(server_files, **files.settings) as world, world.running():
        (controller,) = world.made("csrsigning")
        assert isinstance(controller, SignRequests)
        approved = await world.request("w", samples.request("alice"), approved=True)
        world.clock.ahead = datetime.timedelta(hours=2)

        with pytest.raises(AuthorityExpired):
            await controller.reconcile(approved)
        untouched = await world.admin.get(CertificateSigningRequest, "w")
        event = await warning_about(world, "w")
        files.write_new("successor")
        world.clock.ahead += NEXT_LOOK
        await controller.reconcile(approved)

        assert untouched == approved
        assert "cannot sign now: the signer has expired" in event.message
        assert (await world.admin.get(CertificateSigningRequest, "w")).is_issued


async def test_lost_authority_files_do_not_stop_a_running_signer(
    server_files: Path, files: Files, tmp_path: Path
) -> None:
    """A loaded authority stays in use until its files are valid again."""
    files.write_new("first")
    async with beside(server_files, **files.settings) as world, world.running("csrsigning"):
        shutil.move(files.certificate, tmp_path / "gone.crt")
        leaf, *_ = await issued(world, "still")

    assert leaf.issuer.rfc4514_string() == "CN=first"
