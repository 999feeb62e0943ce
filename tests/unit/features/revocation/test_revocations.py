"""Revoked credentials are refused: by the widest revocation, and up to the last second."""

from datetime import datetime, timedelta

import pytest

from orchid.features.certificates.kinds.issued_certificate import (
    CertificateKey,
    IssuedCertificate,
    IssuedCertificateSpec,
)
from orchid.features.revocation.kinds.credential_revocation import (
    CredentialRevocation,
    CredentialRevocationSpec,
)
from orchid.features.revocation.revocations import Revocations
from orchid.kernel.credentials.token_claims import ExchangeClaims
from orchid.kernel.credentials.x509.trust.verified_chain import VerifiedChain
from orchid.kernel.engine.interfaces import Rejected
from orchid.kernel.wire.meta import ObjectMeta
from orchid.kernel.wire.revoked_credentials import (
    RevokedAccount,
    RevokedAuthority,
    RevokedCertificate,
    RevokedKey,
    RevokedToken,
    RevokedUser,
)
from orchid.kernel.wire.struct import replace
from orchid.kernel.wire.user import UserInfo
from tests.unit.kernel.access.presenting import START
from tests.unit.kernel.access.world import REVOCABLE, World, world_of
from tests.unit.kernel.credentials import chains
from tests.unit.kernel.credentials.samples import NOW

SIGNER = "example.com/web"
ROBOT = ("ci", "robot")
ROBOT_USER = "system:serviceaccount:ci:robot"
HOUR = timedelta(hours=1)


async def put(here: World, name: str, spec: CredentialRevocationSpec) -> None:
    meta = ObjectMeta(name=name, uid=f"uid-{name}")
    await here.put(CredentialRevocation(metadata=meta, spec=spec))


@pytest.mark.parametrize("hours", [(1, 2), (2, 1)])
async def test_of_several_revocations_of_one_thing_the_latest_counts(
    hours: tuple[int, int],
) -> None:
    """In whichever order they came: an earlier one takes nothing back of a later one."""
    async with world_of(*REVOCABLE) as here:
        revocations = Revocations(here.feed)
        for number, each in enumerate(hours):
            until = START + each * HOUR
            account = RevokedAccount(namespace="ci", name="robot", issued_before=until)
            await put(here, f"account-{number}", CredentialRevocationSpec(account=account))
            signer = RevokedAuthority(signer_name=SIGNER, issued_before=until)
            await put(here, f"signer-{number}", CredentialRevocationSpec(authority=signer))
        latest = START + 2 * HOUR

        assert revocations.account_until(ROBOT) == int(latest.timestamp())
        assert revocations.authority_until(SIGNER) == latest
        with pytest.raises(Rejected):
            revocations.refuse_token(ROBOT, "jti", int(latest.timestamp()))
        revocations.refuse_token(ROBOT, "jti", int(latest.timestamp()) + 1)


@pytest.mark.parametrize(("begins", "refused"), [(NOW, True), (NOW + timedelta(seconds=1), False)])
async def test_a_certificate_without_a_record_is_refused_if_it_begins_by_then(
    begins: datetime, refused: bool
) -> None:
    """One that begins in the last second of the revocation may have been issued before it."""
    chain = VerifiedChain([chains.make(start=begins, end=begins + HOUR), chains.ROOT])
    async with world_of(*REVOCABLE) as here:
        revocations = Revocations(here.feed)
        signer = RevokedAuthority(signer_name=SIGNER, issued_before=NOW, keys=(chain.issuer_key,))
        await put(here, "signer", CredentialRevocationSpec(authority=signer))

        if refused:
            with pytest.raises(Rejected):
                revocations.refuse_certificate(chain, "jane")
        else:
            revocations.refuse_certificate(chain, "jane")


def ended(revocations: Revocations, key: str) -> bool:
    return revocations.key_problem(key) != ""


async def test_a_compromised_key_is_of_this_server_and_ends_with_its_revocation() -> None:
    """A certificate of a cluster has a key there. The revocation may be deleted when it is over."""
    named = RevokedCertificate(sha256="a" * 64, key_sha256="b" * 64)
    async with world_of(*REVOCABLE) as here:
        revocations = Revocations(here.feed)
        spec = CredentialRevocationSpec(certificate=named, reason="keyCompromise")
        await put(here, "cluster", replace(spec, cluster="prod"))
        of_cluster = ended(revocations, "b" * 64)
        await put(here, "stolen", spec)
        before = ended(revocations, "b" * 64), ended(revocations, "a" * 64)
        await here.delete(CredentialRevocation(metadata=ObjectMeta(name="stolen")))

        assert not of_cluster
        assert before == (True, False)
        assert not ended(revocations, "b" * 64)


@pytest.mark.parametrize("serial", ["1f", ""])
async def test_a_revocation_of_an_earlier_version_has_the_key_of_the_record(serial: str) -> None:
    """It names no key. A certificate without a record has none."""
    record = IssuedCertificate(
        metadata=ObjectMeta(name="1f", uid="uid-1f"),
        spec=IssuedCertificateSpec(serial_number="1f", key=CertificateKey(sha256="b" * 64)),
    )
    named = RevokedCertificate(sha256="a" * 64, serial_number=serial)
    async with world_of(*REVOCABLE) as here:
        await here.put(record)
        revocations = Revocations(here.feed)
        spec = CredentialRevocationSpec(certificate=named, reason="keyCompromise")
        await put(here, "stolen", spec)

        assert ended(revocations, "b" * 64) is bool(serial)
        assert not ended(revocations, "")


async def test_the_id_of_a_token_counts_for_its_issuer_only() -> None:
    """Other issuers may use the same id, and so may this server for a token of an account."""
    outside, other = "https://outside.example", "https://other.example"
    async with world_of(*REVOCABLE) as here:
        revocations = Revocations(here.feed)
        token = RevokedToken(jti="1", issuer=outside)
        await put(here, "token", CredentialRevocationSpec(token=token))

        revocations.refuse_origin(other, ExchangeClaims("1"), 0)
        revocations.refuse_outside_token(other, {"jti": "1", "iat": 0}, "jane")
        revocations.refuse_token(ROBOT, "1", 0, "https://orchid.test")
        for refuse in (
            lambda: revocations.refuse_origin(outside, ExchangeClaims("1"), 0),
            lambda: revocations.refuse_outside_token(outside, {"jti": "1", "iat": 0}, "jane"),
        ):
            with pytest.raises(Rejected):
                refuse()


@pytest.mark.parametrize(
    ("token", "username", "ids", "is_refused"),
    [
        (RevokedToken(jti="1", issuer="https://outside.example"), "jane", ("JTI=1",), True),
        (RevokedToken(jti="1"), "jane", ("X=0", "JTI=1"), True),
        (RevokedToken(jti="1"), "jane", ("JTI=2",), False),
        (RevokedToken(jti="1"), "jane", (), False),
        # Of an account: another user may have a token with this id.
        (RevokedToken(jti="1", namespace="ci", name="robot"), "jane", ("JTI=1",), False),
        (RevokedToken(jti="1", namespace="ci", name="robot"), ROBOT_USER, ("JTI=1",), True),
        (RevokedToken(jti="1", namespace="ci", name="robot"), ROBOT_USER, ("JTI=2",), False),
        # Of an issuer whose tokens are no tokens of accounts.
        (RevokedToken(jti="1", issuer="https://outside.example"), ROBOT_USER, ("JTI=1",), False),
        (RevokedToken(jti="1"), ROBOT_USER, ("JTI=1",), True),
    ],
)
async def test_an_action_with_a_revoked_token_counts_no_more(
    token: RevokedToken, username: str, ids: tuple[str, ...], is_refused: bool
) -> None:
    """Of a person too, whose issuer is not known any more; another token of theirs does."""
    async with world_of(*REVOCABLE) as here:
        revocations = Revocations(here.feed)
        await put(here, "token", CredentialRevocationSpec(token=token))
        user = UserInfo(username=username)

        if is_refused:
            with pytest.raises(Rejected, match="the token has been revoked"):
                revocations.refuse_action(user, ids, NOW)
        else:
            revocations.refuse_action(user, ids, NOW)


@pytest.mark.parametrize("ids", [("KEY=k1",), ("JTI=1", "KEY=k1"), ("KEY=k2",), ("JTI=k1",)])
async def test_an_action_with_a_token_of_a_revoked_key_counts_no_more(ids: tuple[str, ...]) -> None:
    """Whatever its time: a thief of the key writes any time into a token."""
    async with world_of(*REVOCABLE) as here:
        revocations = Revocations(here.feed)
        key = RevokedKey(name="tokens-1", key_id="k1", sha256="0a")
        await put(here, "key", CredentialRevocationSpec(key=key))
        user = UserInfo(username=ROBOT_USER)

        if "KEY=k1" in ids:
            with pytest.raises(Rejected, match="the token has been revoked"):
                revocations.refuse_action(user, ids, NOW)
        else:
            revocations.refuse_action(user, ids, NOW)


@pytest.mark.parametrize(
    ("username", "issued", "is_refused"),
    [
        ("system:serviceaccount:ci:robot", 0, True),
        ("system:serviceaccount:ci:robot", 0.9, True),
        ("system:serviceaccount:ci:robot", 1, False),
        ("system:serviceaccount:ci:robot", None, True),
        ("system:serviceaccount:ci:robot-2", None, False),
        ("system:serviceaccount:ci", None, False),
        ("robot", None, False),
    ],
)
async def test_the_user_name_of_a_revoked_account_is_revoked(
    username: str, issued: float | None, is_refused: bool
) -> None:
    """For every credential that proves it, by its time of issue."""
    async with world_of(*REVOCABLE) as here:
        revocations = Revocations(here.feed)
        account = RevokedAccount(namespace="ci", name="robot", issued_before=NOW)
        await put(here, "account", CredentialRevocationSpec(account=account))
        moment = None if issued is None else NOW.timestamp() + issued

        is_robot = username == "system:serviceaccount:ci:robot"
        assert await revocations.allows_user(username) is not is_robot
        if is_refused:
            with pytest.raises(Rejected):
                revocations.refuse_user(username, moment)
        else:
            revocations.refuse_user(username, moment)


@pytest.mark.parametrize(
    ("claims", "is_revoked"),
    [
        ({"iat": NOW.timestamp()}, True),
        ({"iat": NOW.timestamp() + 0.9}, True),
        ({"iat": int(NOW.timestamp()) + 1}, False),
        ({}, True),
        ({"iat": None}, True),
        ({"iat": "tomorrow"}, True),
        ({"iat": int(NOW.timestamp()) + 1, "jti": "stolen"}, True),
        ({"iat": int(NOW.timestamp()) + 1, "jti": ["stolen"]}, False),
    ],
)
async def test_a_token_of_a_user_without_a_time_of_issue_is_revoked(
    claims: dict[str, object], is_revoked: bool
) -> None:
    """By the user or by the id; a claim of another type is no time."""
    outside = "https://outside.example"
    async with world_of(*REVOCABLE) as here:
        revocations = Revocations(here.feed)
        user = RevokedUser(username="jane", issued_before=NOW)
        await put(here, "user", CredentialRevocationSpec(user=user))
        token = RevokedToken(jti="stolen", issuer=outside)
        await put(here, "token", CredentialRevocationSpec(token=token))

        assert revocations.has_revoked(outside, "jane", claims) is is_revoked
        assert revocations.has_revoked(outside, "joe", {**claims, "jti": "other"}) is False


@pytest.mark.parametrize(
    ("user", "subject", "own", "is_refused"),
    [
        ("jane", 0, 0, True),
        ("jane", 0, 60, True),  # the person's token is older
        ("jane", 60, 0, True),  # the clock of the issuer is ahead of ours
        ("jane", 60, 60, False),
        ("joe", 0, 0, False),
        ("", 0, 0, False),  # of a CI job
    ],
)
async def test_an_exchanged_token_ends_with_the_person(
    user: str, subject: int, own: int, is_refused: bool
) -> None:
    """By the time of issue of either token, in seconds after the revocation."""
    now = int(NOW.timestamp())
    async with world_of(*REVOCABLE) as here:
        revocations = Revocations(here.feed)
        revoked = RevokedUser(username="jane", issued_before=NOW)
        await put(here, "user", CredentialRevocationSpec(user=revoked))
        claims = ExchangeClaims("1", user=user, iat=now + subject)

        if is_refused:
            with pytest.raises(Rejected, match="of this user have been revoked"):
                revocations.refuse_origin("https://outside.example", claims, now + own)
        else:
            revocations.refuse_origin("https://outside.example", claims, now + own)
