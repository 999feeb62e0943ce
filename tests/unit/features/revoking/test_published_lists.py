"""Revocation lists: signed by the controller, stored in parts, served to everybody."""

import asyncio
import contextlib
import ssl
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization

from orchid.features.authorities.file_authorities import FileAuthorityObjects
from orchid.features.authorities.kinds.certificate_authority import (
    SIGNS_LISTS,
    CertificateAuthority,
)
from orchid.features.certificates.kinds.certificate_signing_request import (
    CertificateSigningRequest as Request,
)
from orchid.features.objects.kinds.config_map import ConfigMap
from orchid.features.objects.kinds.event import Event
from orchid.features.objects.kinds.secret import Secret
from orchid.features.revocation.kinds.credential_revocation import (
    CredentialRevocation,
    CredentialRevocationSpec,
)
from orchid.features.revoking.controllers import publish_revocation_lists
from orchid.features.revoking.controllers.publish_revocation_lists import (
    PublishRevocationLists,
    platform_lists,
)
from orchid.features.token_keys.kinds.signing_key import SigningKey
from orchid.kernel.client.client import ListSelection
from orchid.kernel.credentials.authorities.authority import Authority
from orchid.kernel.credentials.x509 import stored_list
from orchid.kernel.wire.errors import Forbidden, Invalid
from orchid.kernel.wire.meta import ObjectMeta
from orchid.kernel.wire.naming import ORCH
from orchid.kernel.wire.revoked_credentials import RevokedAuthority, RevokedCertificate
from orchid.kernel.wire.struct import replace
from tests.api.test_file_authorities import flags, pair
from tests.api.world import Api
from tests.security.certified import other_authority
from tests.system_packages import require_program
from tests.unit.features.authorities.test_keep_authorities import (
    HOST,
    KEEPER,
    SIGNER,
    bring,
    bring_authority,
    from_secret,
    secret_of,
    until_ready,
)
from tests.unit.features.authorities.test_keep_authorities import REQUEST as HOST_REQUEST
from tests.unit.features.authorities.test_keep_authorities import create as create_authority
from tests.unit.features.beside import Beside, beside
from tests.unit.features.certificates.test_issued_certificates import issued
from tests.unit.kernel.credentials import samples

CONTROLLERS = ("csrsigning", "revocation-marker", "revocation-list-publisher")
HEAD = stored_list.head_name("cluster")
HOST_KEY = samples.P256.private_bytes(
    serialization.Encoding.PEM,
    serialization.PrivateFormat.PKCS8,
    serialization.NoEncryption(),
)


async def revoke(world: Beside, name: str, reason: str) -> None:
    spec = CredentialRevocationSpec(
        certificate=RevokedCertificate(request_name=name), reason=reason
    )
    meta = ObjectMeta(name=f"of-{name}")
    await world.admin.create(CredentialRevocation(metadata=meta, spec=spec))


async def fetched(world: Beside, path: str = "/crl/cluster.crl") -> bytes:
    """A list as anybody gets it, without a credential."""
    answer = await Api(world.server).call("GET", path, token=None)
    assert answer.status == 200, answer.text
    return answer.body


async def list_of(
    world: Beside, count: int, authority: str = "cluster"
) -> x509.CertificateRevocationList:
    """Wait until the published list has so many entries."""
    place = stored_list.head_name(authority)

    async def look() -> ConfigMap | None:
        found = await world.admin.find(ConfigMap, place, ORCH.system_namespace)
        if found is None:
            return None
        read = x509.load_der_x509_crl(found.binary_data[stored_list.DATA])
        return found if len(read) == count else None

    await world.until(look)
    return x509.load_der_x509_crl(await fetched(world, f"/crl/{authority}.crl"))


@pytest.mark.parametrize("is_deleted", [True, False], ids=["list deleted", "list there"])
async def test_number_grows_also_when_the_clock_was_ahead(
    world: Beside, *, is_deleted: bool
) -> None:
    """A client keeps the list with the higher number: a lower one would be ignored."""
    world.clock.ahead = timedelta(days=3000)
    async with world.running("revocation-list-publisher"):
        ahead = number_of(await list_of(world, 0))
        await world.until_like(SigningKey, "cluster-1", condition=lambda key: numbered(key, ahead))
    world.clock.ahead = timedelta()
    if is_deleted:
        await world.admin.delete(ConfigMap, HEAD, ORCH.system_namespace)
    async with world.running(*CONTROLLERS):
        await issued(world, "lost")
        await revoke(world, "lost", "keyCompromise")
        found = await list_of(world, 1)

    assert number_of(found) > ahead


def number_of(found: x509.CertificateRevocationList) -> int:
    return found.extensions.get_extension_for_class(x509.CRLNumber).value.crl_number


def numbered(key: SigningKey, number: int) -> bool:
    return key.status.revocation_list_number == number


async def test_a_number_of_an_earlier_version_counts(world: Beside) -> None:
    """It stored the number with the list only, and not in the SigningKey."""
    ahead = 2 * 10**18  # the year 2033
    data = {stored_list.NUMBER: str(ahead), stored_list.PARTS: "1"}
    meta = ObjectMeta(name=HEAD, namespace=ORCH.system_namespace)
    await world.admin.create(ConfigMap(metadata=meta, data=data))

    async with world.running("revocation-list-publisher"):
        key = await world.until_like(
            SigningKey, "cluster-1", condition=lambda key: key.status.revocation_list_number > ahead
        )

    assert key.status.revocation_list_number == number_of(await list_of(world, 0))


async def test_a_replaced_file_of_an_authority_signs_the_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Soon, without a revocation; the number goes on growing."""
    monkeypatch.setattr(publish_revocation_lists, "KEY_AGAIN", 0.02)
    given = flags("", pair(tmp_path, "ca"))
    async with (
        beside(tmp_path / "data", **given) as world,
        world.running("revocation-list-publisher"),
    ):
        await world.server.context.port(FileAuthorityObjects).update()
        first = await world.until_like(
            SigningKey, "cluster-1", condition=lambda key: not numbered(key, 0)
        )
        pair(tmp_path, "ca")
        await world.server.context.port(FileAuthorityObjects).update()
        second = await world.until_like(
            SigningKey, "cluster-2", condition=lambda key: not numbered(key, 0)
        )
        found = x509.load_der_x509_crl(await fetched(world))

    public = x509.load_pem_x509_certificate((tmp_path / "ca.crt").read_bytes()).public_key()
    assert second.status.revocation_list_number > first.status.revocation_list_number
    assert found.is_signature_valid(public)  # type: ignore[arg-type]  # an EC key


async def test_a_part_of_a_list_that_is_deleted_is_published_again(
    world: Beside, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A list in several objects counts whole; no part of an earlier edition is left."""
    monkeypatch.setattr(stored_list, "LARGEST_PART", 100)
    home = ORCH.system_namespace
    async with world.running("revocation-list-publisher"):
        await world.until_like(SigningKey, "cluster-1", condition=lambda key: not numbered(key, 0))
        before = number_of(x509.load_der_x509_crl(await fetched(world)))
        await world.admin.delete(ConfigMap, stored_list.part_name("cluster", before, 1), home)

        async def newer() -> int | None:
            number = number_of(x509.load_der_x509_crl(await fetched(world)))
            return number if number != before else None

        after = await world.until(newer)
        left = stored_list.part_name("cluster", before, 2)
        await world.until_gone(ConfigMap, left, home)

    assert after > before


async def test_a_revocation_is_in_the_list_and_a_lifted_hold_is_not(world: Beside) -> None:
    """With its reason and time; every edition has a greater number."""
    async with world.running(*CONTROLLERS):
        empty = await list_of(world, 0)
        lost, held = await issued(world, "lost"), await issued(world, "held")
        await revoke(world, "lost", "keyCompromise")
        await revoke(world, "held", "certificateHold")
        both = await list_of(world, 2)

        await world.admin.delete(CredentialRevocation, "of-held")
        one = await list_of(world, 1)

    authority = x509.load_pem_x509_certificate(world.server.files.ca_certificate.read_bytes())
    entry = one.get_revoked_certificate_by_serial_number(lost.serial_number)
    assert entry is not None
    assert entry.extensions[0].value.reason is x509.ReasonFlags.key_compromise  # type: ignore[attr-defined]  # a CRLReason
    assert both.get_revoked_certificate_by_serial_number(held.serial_number) is not None
    assert one.get_revoked_certificate_by_serial_number(held.serial_number) is None
    assert one.is_signature_valid(authority.public_key())  # type: ignore[arg-type]  # an EC key
    numbers = [number_of(found) for found in (empty, both, one)]
    assert numbers == sorted(set(numbers))


async def test_openssl_refuses_what_is_listed(world: Beside, tmp_path: Path) -> None:
    """Also when every certificate of the chain is looked up, as nginx does."""
    openssl = require_program("openssl")
    async with world.running(*CONTROLLERS):
        good, bad = await issued(world, "good"), await issued(world, "bad")
        await revoke(world, "bad", "keyCompromise")
        await list_of(world, 1)
        (tmp_path / "crl.pem").write_bytes(await fetched(world, "/crl/cluster.pem"))
    for name, leaf in (("good", good), ("bad", bad)):
        (tmp_path / name).write_bytes(leaf.public_bytes(serialization.Encoding.PEM))

    def verified(name: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [
                openssl, "verify", "-crl_check_all", "-CRLfile", tmp_path / "crl.pem",
                "-CAfile", world.server.files.ca_certificate, tmp_path / name,
            ],
            capture_output=True, text=True, timeout=30, check=False,
        )  # fmt: skip

    assert verified("good").returncode == 0, verified("good").stderr
    refused = verified("bad")
    assert refused.returncode != 0
    assert "certificate revoked" in refused.stderr


async def ran(program: str, *words: object) -> tuple[int, str]:
    """The exit code and output of a foreign program for a list."""
    process = await asyncio.create_subprocess_exec(
        require_program(program),
        *map(str, words),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    said, _ = await asyncio.wait_for(process.communicate(), 30)
    assert process.returncode is not None
    return process.returncode, said.decode()


@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("openssl", ("crl", "-noout", "-in", "{list}", "-CAfile", "{authority}")),
        (
            "certtool",
            ("--verify-crl", "--infile", "{list}", "--load-ca-certificate", "{authority}"),
        ),
    ],
)
async def test_the_signature_of_a_list_is_right_to_others(
    world: Beside, tmp_path: Path, program: str, words: tuple[str, ...]
) -> None:
    """That of its authority, and of no other."""
    async with world.running("revocation-list-publisher"):
        await list_of(world, 0)
        (tmp_path / "list").write_bytes(await fetched(world, "/crl/cluster.pem"))
    (tmp_path / "other").write_bytes(other_authority().chain_pem)

    def given(authority: Path) -> list[str]:
        return [word.format(list=tmp_path / "list", authority=authority) for word in words]

    right, _ = await ran(program, *given(world.server.files.ca_certificate))
    wrong, said = await ran(program, *given(tmp_path / "other"))

    assert right == 0
    assert wrong != 0 or "verify OK" not in said


async def test_curl_leaves_a_server_whose_certificate_is_listed(
    world: Beside, tmp_path: Path
) -> None:
    """With the list of the authority as it was served, before the revocation and after."""
    async with world.running(*CONTROLLERS, KEEPER):
        await create_authority(world)
        authority = await until_ready(world)
        (tmp_path / "ca.pem").write_text(authority.status.certificate)
        await world.request("host", HOST_REQUEST, signer=SIGNER, usages=(), approved=True)
        made = await world.until_like(Request, "host", condition=lambda csr: csr.is_issued)
        (tmp_path / "both.pem").touch(mode=0o600)
        (tmp_path / "both.pem").write_bytes(made.status.certificate + HOST_KEY)
        async with tls_server(tmp_path / "both.pem") as port:

            async def visited(count: int) -> tuple[int, str]:
                await list_of(world, count, "web")
                (tmp_path / "crl.pem").write_bytes(await fetched(world, "/crl/web.pem"))
                return await ran(
                    "curl", "-sS", "--cacert", tmp_path / "ca.pem",
                    "--crlfile", tmp_path / "crl.pem",
                    "--resolve", f"{HOST}:{port}:127.0.0.1", f"https://{HOST}:{port}/",
                )  # fmt: skip

            before = await visited(0)
            await revoke(world, "host", "keyCompromise")
            after = await visited(1)

    assert before == (0, "hello")
    assert after[0] == 60  # of curl: the certificate cannot be verified
    assert "revoked" in after[1]


@asynccontextmanager
async def tls_server(identity: Path) -> AsyncIterator[int]:
    """A TLS server on loopback."""
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(identity)

    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")
            await writer.drain()
        writer.close()

    async with await asyncio.start_server(greet, "127.0.0.1", 0, ssl=tls) as listening:
        yield listening.sockets[0].getsockname()[1]


async def test_a_list_is_served_while_its_key_is_gone_and_others_are_made(world: Beside) -> None:
    """The last one stays; what is wrong with one authority is no matter of the others."""
    async with world.running("csrsigning", KEEPER, "revocation-marker"):
        await create_authority(world)
        await until_ready(world)
        async with world.running("revocation-list-publisher"):
            last = await list_of(world, 0, "web")
        secret = await secret_of(world)
        await world.admin.delete(Secret, secret.name, secret.namespace)

        async with world.running("revocation-list-publisher"):
            await issued(world, "alice")
            await revoke(world, "alice", "keyCompromise")
            await list_of(world, 1)

    served = x509.load_der_x509_crl(await fetched(world, "/crl/web.crl"))
    assert served.fingerprint(hashes.SHA256()) == last.fingerprint(hashes.SHA256())


async def test_an_authority_of_ones_own_that_may_not_sign_lists_says_so(
    world: Beside, tmp_path: Path
) -> None:
    """In its status and by an event; it still signs certificates."""
    chain, key = without_list_signing(tmp_path)
    async with world.running(KEEPER):
        await bring(world, crt=chain.read_bytes(), key=key.read_bytes())
        await from_secret(world)
        ready = await until_ready(world)

        async def reported() -> Event | None:
            found = await world.admin.page(ListSelection(Event))
            return next((one for one in found.items if one.reason == "NoCRLSign"), None)

        event = await world.until(reported)
    [condition] = [one for one in ready.status.conditions if one.type == SIGNS_LISTS]
    assert (condition.status, condition.reason) == ("False", "NoCRLSign")
    assert (event.type, event.involved_object.name) == ("Warning", "web")


async def test_the_publisher_writes_at_home_only(world: Beside) -> None:
    """No other namespace's ConfigMaps are its business."""
    client = world.server.clients("revocation-list-publisher")
    elsewhere = ConfigMap(metadata=ObjectMeta(name="x", namespace="default"))

    with pytest.raises(Forbidden):
        await client.create(elsewhere)


@pytest.mark.parametrize("controller", ["revocation-list-publisher", "csrsigning", KEEPER])
async def test_secrets_are_read_while_an_authority_names_them_only(
    world: Beside, controller: str
) -> None:
    """Of all others, those who work with the keys of authorities see nothing."""
    client = world.server.clients(controller)
    await bring_authority(world, "Web CA")
    await world.admin.create(Secret(metadata=ObjectMeta(name="other", namespace="pki")))
    await from_secret(world)

    found = await client.get(Secret, "ca", "pki")
    with pytest.raises(Forbidden):
        await client.get(Secret, "other", "pki")
    await world.admin.delete(CertificateAuthority, "web")
    with pytest.raises(Forbidden):
        await client.get(Secret, "ca", "pki")

    assert found.name == "ca"


async def test_a_long_list_is_kept_in_several_objects(
    world: Beside, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is served whole, and the parts of the edition before go."""
    monkeypatch.setattr(stored_list, "LARGEST_PART", 100)
    async with world.running(*CONTROLLERS):
        await issued(world, "lost")
        before = await world.until_like(ConfigMap, HEAD, ORCH.system_namespace)

        await revoke(world, "lost", "keyCompromise")

        after = await world.until_like(
            ConfigMap,
            HEAD,
            ORCH.system_namespace,
            lambda found: found.data[stored_list.NUMBER] != before.data[stored_list.NUMBER],
        )
        old = stored_list.part_name("cluster", int(before.data[stored_list.NUMBER]), 1)
        await world.until_gone(ConfigMap, old, ORCH.system_namespace)
    assert int(after.data[stored_list.PARTS]) > 2
    assert len(x509.load_der_x509_crl(await fetched(world))) == 1


async def test_an_authority_that_may_not_sign_lists_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """No list is published that verifiers would refuse; it still signs certificates."""
    chain, key = without_list_signing(tmp_path)
    files = {"cluster_signing_cert_file": str(chain), "cluster_signing_key_file": str(key)}
    async with beside(tmp_path / "data", **files) as world, world.running(*CONTROLLERS):
        await issued(world, "alice")

        async def reported() -> ConfigMap | None:
            return ConfigMap() if "crl.not_published" in caplog.text else None

        await world.until(reported)
        answer = await Api(world.server).call("GET", "/crl/cluster.crl", token=None)
    assert answer.status == 404


def without_list_signing(directory: Path) -> tuple[Path, Path]:
    """The files of an authority whose key usage has no cRLSign."""
    import datetime

    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "no lists")])
    now = datetime.datetime.now(datetime.UTC)
    usage = x509.KeyUsage(
        digital_signature=False, content_commitment=False, key_encipherment=False,
        data_encipherment=False, key_agreement=False, key_cert_sign=True, crl_sign=False,
        encipher_only=False, decipher_only=False,
    )  # fmt: skip
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=3650))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    chain, private = directory / "own.crt", directory / "own.key"
    chain.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    private.touch(mode=0o600)
    private.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    Authority.load_files(chain, private)
    return chain, private


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/crl/never.crl", 404),
        ("/crl/cluster.der", 404),
        ("/crl/", 404),
        ("/crl/a/b.crl", 404),
        ("/crl/../metrics", 401),
        ("/crl/%2e%2e/metrics", 401),
    ],
)
async def test_nothing_else_is_open_to_everybody(world: Beside, path: str, status: int) -> None:
    """Other paths are not found, and paths that lead elsewhere need a credential."""
    answer = await Api(world.server).call("GET", path, token=None)

    assert answer.status == status


async def test_certificates_contain_the_url_of_their_list_if_configured(tmp_path: Path) -> None:
    """Under the name of their authority."""
    async with (
        beside(tmp_path / "data", crl_url="http://pki.example.com/") as world,
        world.running("csrsigning"),
    ):
        leaf = await issued(world, "alice")

    points = leaf.extensions.get_extension_for_class(x509.CRLDistributionPoints).value
    assert points[0].full_name == [
        x509.UniformResourceIdentifier("http://pki.example.com/crl/cluster.crl")
    ]


async def test_an_authority_that_may_not_sign_lists_names_no_url(tmp_path: Path) -> None:
    """Verifiers that need a list would refuse every certificate: the URL would answer 404."""
    chain, key = without_list_signing(tmp_path)
    settings = {
        "cluster_signing_cert_file": str(chain),
        "cluster_signing_key_file": str(key),
        "crl_url": "http://pki.example.com/",
    }
    async with beside(tmp_path / "data", **settings) as world, world.running("csrsigning"):
        leaf = await issued(world, "alice")

    with pytest.raises(x509.ExtensionNotFound):
        leaf.extensions.get_extension_for_class(x509.CRLDistributionPoints)


@pytest.mark.parametrize("name", ["cluster", "orch-apiserver-client", "legacy-unknown"])
async def test_the_list_names_of_the_platform_are_reserved(world: Beside, name: str) -> None:
    """An authority of that name would have no list: the platform's is published there."""
    with pytest.raises(Invalid, match="reserved"):
        await create_authority(world, name)


async def test_a_certificate_of_a_deleted_authority_is_revoked_for_this_server_only(
    world: Beside,
) -> None:
    """No list can name it, so it has to be named by its fingerprint, and a warning says so."""
    async with world.running(*CONTROLLERS, KEEPER):
        await create_authority(world)
        await until_ready(world)
        await world.request("host", HOST_REQUEST, signer=SIGNER, usages=(), approved=True)
        made = await world.until_like(Request, "host", condition=lambda csr: csr.is_issued)
        await world.admin.delete(CertificateAuthority, "web")
    leaf = x509.load_pem_x509_certificate(made.status.certificate)

    with pytest.raises(Invalid, match=r"was deleted: no revocation list can name it.*sha256"):
        await revoke(world, "host", "keyCompromise")
    answer = await Api(world.server).call(
        "POST",
        f"/apis/{ORCH.identity}/v1alpha1/credentialrevocations",
        {
            "metadata": {"name": "by-fingerprint"},
            "spec": {"certificate": {"sha256": leaf.fingerprint(hashes.SHA256()).hex()}},
        },
    )

    assert answer.status == 201
    assert "no revocation list can name it" in answer.header("warning")


async def test_a_certificate_of_a_replaced_authority_is_revoked_with_a_warning(
    world: Beside,
) -> None:
    """Another authority has the signer, with another key: its list cannot name the certificate."""
    async with world.running(*CONTROLLERS, KEEPER):
        for name, request in (("web", "old"), ("next", "new")):
            await create_authority(world, name)
            await until_ready(world, name)
            await world.request(request, HOST_REQUEST, signer=SIGNER, usages=(), approved=True)
            await world.until_like(Request, request, condition=lambda csr: csr.is_issued)
            if name == "web":
                await world.admin.delete(CertificateAuthority, name)
    warned = {}
    for request in ("old", "new"):
        answer = await Api(world.server).call(
            "POST",
            f"/apis/{ORCH.identity}/v1alpha1/credentialrevocations",
            {"metadata": {"name": request}, "spec": {"certificate": {"requestName": request}}},
        )
        assert answer.status == 201
        warned[request] = "no revocation list can name it" in " ".join(answer.warnings)

    assert warned == {"old": True, "new": False}


@pytest.mark.parametrize("spoilt", ["immutable", "no number", "huge number"])
async def test_a_list_is_published_whatever_somebody_made_of_its_config_map(
    world: Beside, spoilt: str
) -> None:
    """Nobody keeps revocations off a list by writing to the ConfigMap of the last one."""
    async with world.running(*CONTROLLERS):
        await issued(world, "alice")
        await list_of(world, 0)
        place = stored_list.head_name("cluster")
        head = await world.admin.find(ConfigMap, place, ORCH.system_namespace)
        assert head is not None
        number = {"no number": "x", "huge number": "9" * 99}.get(spoilt, "1")
        changed = {**head.data, stored_list.NUMBER: number}
        await world.admin.update(replace(head, data=changed, immutable=spoilt == "immutable"))

        await revoke(world, "alice", "keyCompromise")

        await list_of(world, 1)


async def test_a_list_is_not_sent_to_clients_that_have_it(world: Beside) -> None:
    """304 for its entity tag, in both forms; HEAD says how long it is."""
    async with world.running("revocation-list-publisher"):
        await list_of(world, 0)
        for path in ("/crl/cluster.crl", "/crl/cluster.pem"):
            api = Api(world.server)
            whole = await api.call("GET", path, token=None)
            tag = whole.header("etag")
            again = await api.call("GET", path, token=None, headers={"if-none-match": tag})
            other = await api.call("GET", path, token=None, headers={"if-none-match": '"x"'})
            head = await api.call("HEAD", path, token=None)

            assert (whole.status, again.status, again.body) == (200, 304, b"")
            assert (other.status, other.body) == (200, whole.body)
            assert (head.status, head.header("etag")) == (200, tag)


async def test_an_authority_of_ones_own_has_a_list_of_its_own(world: Beside) -> None:
    """Under its name, from when it is ready, with its own certificates only."""
    async with world.running(*CONTROLLERS, KEEPER):
        await create_authority(world)
        await until_ready(world)
        await world.request("host", HOST_REQUEST, signer=SIGNER, usages=(), approved=True)
        await world.until_like(Request, "host", condition=lambda csr: csr.is_issued)
        await revoke(world, "host", "superseded")

        assert len(await list_of(world, 1, "web")) == 1

    assert len(x509.load_der_x509_crl(await fetched(world))) == 0


async def test_two_authorities_with_one_key_publish_the_same_entries(world: Beside) -> None:
    """Each list is complete for its issuer and key, whichever signer issued a certificate."""
    async with world.running(*CONTROLLERS, KEEPER):
        await bring_authority(world, "Shared CA")
        for name, signer in (("web", SIGNER), ("mail", "example.com/mail")):
            await create_authority(
                world, name, key=None, subject=None, signerName=signer,
                secretRef={"namespace": "pki", "name": "ca"},
            )  # fmt: skip
            await until_ready(world, name)
            await world.request(name, HOST_REQUEST, signer=signer, usages=(), approved=True)
            await world.until_like(Request, name, condition=lambda csr: csr.is_issued)
            await revoke(world, name, "superseded")

        web, mail = await list_of(world, 2, "web"), await list_of(world, 2, "mail")

    assert {one.serial_number for one in web} == {one.serial_number for one in mail}


async def test_a_list_has_no_entry_of_another_key(world: Beside) -> None:
    """If the Secret of an authority gets another key, that one has a list of its own."""
    async with world.running(*CONTROLLERS, KEEPER):
        await bring_authority(world, "First CA")
        await from_secret(world)
        await until_ready(world)
        await world.request("host", HOST_REQUEST, signer=SIGNER, usages=(), approved=True)
        await world.until_like(Request, "host", condition=lambda csr: csr.is_issued)
        await revoke(world, "host", "superseded")
        await list_of(world, 1, "web")

        second = await bring_authority(world, "Second CA")
        again = {"metadata": {"labels": {"look": "again"}}}
        await world.admin.patch(CertificateAuthority, "web", "", again)
        await world.until_like(
            CertificateAuthority,
            "web",
            condition=lambda one: one.status.certificate.encode() == second.chain_pem,
        )

        assert len(await list_of(world, 0, "web-2")) == 0
        assert len(await list_of(world, 1, "web")) == 1


async def test_the_revocation_of_a_signer_lists_all_that_it_had_issued(world: Beside) -> None:
    """Certificates that it issues later are not listed; a lifted hold empties the list."""
    async with world.running(*CONTROLLERS, KEEPER):
        before = {(await issued(world, name)).serial_number for name in ("a", "b")}
        await list_of(world, 0)
        spec = CredentialRevocationSpec(
            authority=RevokedAuthority(signer_name=ORCH.client_signer), reason="certificateHold"
        )
        await world.admin.create(CredentialRevocation(metadata=ObjectMeta(name="all"), spec=spec))
        await list_of(world, 2)
        await issued(world, "later")
        await revoke(world, "a", "keyCompromise")
        both = await list_of(world, 2)

        await world.admin.delete(CredentialRevocation, "all")
        [left] = await list_of(world, 1)

    assert {one.serial_number for one in both} == before
    assert left.extensions[0].value == x509.CRLReason(x509.ReasonFlags.key_compromise)


async def test_a_list_is_not_older_than_its_entries(world: Beside) -> None:
    """thisUpdate is dated back for slow clocks, but never before a revocation in the list."""
    async with world.running(*CONTROLLERS):
        empty = await list_of(world, 0)
        await issued(world, "lost")
        await revoke(world, "lost", "keyCompromise")
        found = await list_of(world, 1)

    [entry] = found
    assert found.last_update_utc >= entry.revocation_date_utc
    assert empty.last_update_utc < entry.revocation_date_utc


async def test_no_list_is_signed_before_all_revocations_are_known(world: Beside) -> None:
    """One that is due meanwhile would leave out what was not read yet."""
    client, signers = world.server.clients("revocation-list-publisher"), world.context.signers
    publisher = PublishRevocationLists(client, signers, ORCH, world.clock)
    publisher._lists = platform_lists(signers)  # as it is while revocations are being read

    await publisher.attend("cluster", None)

    assert await world.admin.find(ConfigMap, HEAD, ORCH.system_namespace) is None
