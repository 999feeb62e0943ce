"""Creating and importing keys of authorities, and their steps: each right and each condition."""

from collections.abc import AsyncIterator, Mapping
from datetime import timedelta
from typing import Any, cast

import pytest

from orchid.features.authorities.authority_spec import AuthorityKeySpec, CertificateAuthoritySpec
from orchid.features.authorities.kinds import certificate_authority
from orchid.features.authorities.kinds.certificate_authority import CertificateAuthority
from orchid.features.certificates.kinds import issued_certificate
from orchid.features.clusters.kinds import cluster
from orchid.features.objects.kinds import config_map, secret
from orchid.features.token_keys.key_source import SigningKeySpec
from orchid.features.token_keys.kinds import signing_key
from orchid.features.token_keys.kinds.signing_key import ACTIVE, PUBLISHED, SigningKey
from orchid.features.token_keys.policies.authority_material import (
    PrivateKeys,
    SignerReference,
    SignerReferences,
    installed,
)
from orchid.features.token_keys.policies.chains import SigningKeyChains
from orchid.features.token_keys.policies.material import SigningKeyMaterial
from orchid.features.token_keys.policies.steps import SigningKeySteps
from orchid.kernel.credentials.authorities.authority import Authority
from orchid.kernel.credentials.authorities.hsm import NO_HSM
from orchid.kernel.credentials.refusals import Refusal
from orchid.kernel.engine.request import Target
from orchid.kernel.wire.errors import ApiError
from orchid.kernel.wire.meta import ObjectMeta
from orchid.kernel.wire.naming import ORCH
from orchid.kernel.wire.references import SecretReference
from orchid.kernel.wire.signing_key_status import SigningKeyStatus
from orchid.kernel.wire.struct import replace
from tests.unit.features.asking import NOW, Rights, a_request
from tests.unit.kernel.access.world import World, world_of

SIGNER = "example.com/web"
KIND: Any = signing_key.declare(ORCH)
PAIR = Authority.create("Web CA", now=NOW, lifetime=timedelta(days=30))
ED25519 = Authority.create("Web CA", now=NOW, lifetime=timedelta(days=30), algorithm="Ed25519")
MINE = SecretReference(namespace="pki", name="mine")
ALL = (
    ("import", "signingkeys", "web-1"),
    ("sign", "signers", SIGNER),
    ("attest", "signers", SIGNER),
    ("get", "secrets", "mine"),
)


@pytest.fixture
async def here() -> AsyncIterator[World]:
    kinds = certificate_authority, cluster, config_map, issued_certificate, secret, signing_key
    async with world_of(*(one.declare(ORCH) for one in kinds)) as made:
        yield made


def private(pair: Authority = PAIR) -> PrivateKeys:
    data = {"tls.crt": pair.chain_pem, "tls.key": pair.key_pem().reveal().encode()}

    def read(location: SecretReference) -> Mapping[str, bytes] | None:
        return data if location == MINE else None

    return PrivateKeys(read, NO_HSM)


async def nothing(sha256: str) -> None:
    return None


async def imported(here: World, rights: Rights, pair: Authority, *signers: str) -> str:
    """Import the key of a Secret for an authority; return the refusal."""
    spec = CertificateAuthoritySpec(
        signer_name="" if signers else SIGNER, signer_names=signers, secret_ref=MINE
    )
    if signers:
        spec = replace(spec, key=AuthorityKeySpec(algorithm="ECDSA-P256"))
    await here.put(CertificateAuthority(metadata=ObjectMeta(name="web", uid="w"), spec=spec))
    policy = SigningKeyMaterial(
        ORCH,
        here.feed,
        rights,
        cast(Any, None),
        publish_time="24h",
        authority_keys=lambda name: [],
        revoked=lambda: (),
        past=nothing,
        key_problem=lambda _sha256: "",
        references=SignerReferences(ORCH.system_namespace, ""),
        private_keys=private(pair),
    )
    new = SigningKey(
        metadata=ObjectMeta(name="web-1", uid="k"),
        spec=SigningKeySpec(authority="web", secret_ref=MINE, state=PUBLISHED),
    )
    target = Target(verb="create", is_resource=True, resource="signingkeys", name="web-1")
    try:
        await policy.admit(a_request(target), KIND, new, None)
    except ApiError as refused:
        return str(refused)
    return ""


@pytest.mark.parametrize(
    ("missing", "refused"),
    [
        (None, ""),
        ("import", "not permitted to import"),
        ("sign", "not permitted to sign"),
        ("attest", "not permitted to attest"),
        ("get", "not permitted to get the Secret"),
    ],
)
async def test_an_import_takes_every_right(here: World, missing: str | None, refused: str) -> None:
    """That of the key, those of the signer, and to read the Secret that is named."""
    rights = Rights(*(one for one in ALL if one[0] != missing))

    said = await imported(here, rights, PAIR)

    assert refused in said
    assert bool(said) == bool(refused)


@pytest.mark.parametrize(("pair", "refused"), [(PAIR, ""), (ED25519, "Unsupported value")])
async def test_a_key_of_the_platform_has_an_algorithm_of_client_certificates(
    here: World, pair: Authority, refused: str
) -> None:
    """The server verifies client certificates by few algorithms."""
    said = await imported(here, Rights(*ALL), pair, SIGNER)

    assert refused in said
    assert bool(said) == bool(refused)


def waiting(key_id: str = "", certificate: str = "") -> SigningKey:
    """A key whose request another authority signs."""
    return SigningKey(
        metadata=ObjectMeta(name="web-1", uid="k"),
        spec=SigningKeySpec(authority="web", algorithm="ECDSA-P256", state=PUBLISHED),
        status=SigningKeyStatus(key_id=key_id, certificate=certificate, request="a request"),
    )


async def test_a_chain_takes_the_right_to_activate(here: World) -> None:
    """It decides which certificates verifiers accept."""
    policy = SigningKeyChains(
        ORCH,
        here.feed,
        Rights(),
        authority_keys=lambda name: [],
        references=SignerReferences(ORCH.system_namespace, ""),
        private_keys=private(),
    )
    old = waiting()
    new = replace(old, spec=replace(old.spec, chain=PAIR.chain_pem.decode()))
    target = Target(verb="update", is_resource=True, resource="signingkeys", name="web-1")

    with pytest.raises(ApiError, match="not permitted to activate this key"):
        await policy.admit(a_request(target), KIND, new, old)


@pytest.mark.parametrize(
    ("key_id", "certificate", "refused"),
    [
        ("00", "", False),  # the first chain: its issuer chooses the identifier
        (PAIR.key_id.hex(), "a chain", False),
        ("00", "a chain", True),
    ],
    ids=["first chain", "same identifier", "other identifier"],
)
def test_a_renewed_chain_has_the_same_identifier(
    key_id: str, certificate: str, *, refused: bool
) -> None:
    """Certificates and lists name the key by it."""
    signer = SignerReference(PAIR.chain_pem.decode(), MINE, "", "")
    key = waiting(key_id, certificate)

    if refused:
        with pytest.raises(Refusal, match="another subject key identifier"):
            installed(key, signer, private(), NOW)
    else:
        assert installed(key, signer, private(), NOW).key_id == PAIR.key_id.hex()


@pytest.mark.parametrize(
    ("before", "after"), [("", "24h"), ("1h", "24h"), ("24h", "24h"), ("48h", "48h")]
)
async def test_the_longest_publish_time_of_a_key_counts(
    here: World, before: str, after: str
) -> None:
    """Tokens that it signed before were recorded by the publish time of then."""
    steps = SigningKeySteps(
        ORCH,
        here.feed,
        Rights(),
        servers=dict,
        revoked=lambda: (),
        conditions=cast(Any, None),
        keys_of=lambda name: [],
        publish_time=("24h", 86_400.0),
    )
    old = SigningKey(
        metadata=ObjectMeta(name="tokens-2", uid="k"),
        spec=SigningKeySpec(algorithm="ES256", state=PUBLISHED),
        status=SigningKeyStatus(key_id="kid", publish_time=before),
    )
    new = replace(old, spec=replace(old.spec, state=ACTIVE))

    assert steps._stepped(new, old, NOW).publish_time == after
