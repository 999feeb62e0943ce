"""Renewal information: a window for every issued certificate, moved into the past by revocation."""

import datetime
from typing import Any

import pytest
from cryptography import x509

from orchid.features.certificates.renewal_information import certificate_id
from orchid.kernel.wire.naming import ORCH
from tests.api.world import Answer, Api
from tests.security.test_revocations import ISSUED, on_record, revoked

SIGNER = ORCH.client_signer
Window = tuple[datetime.datetime, datetime.datetime]


async def asked(server: Api, identifier: str, method: str = "GET") -> Answer:
    return await server.call(method, f"/renewal-info/{identifier}", token=None)


async def certificate(server: Api) -> tuple[str, x509.Certificate]:
    """The identifier of a certificate that was issued, and itself."""
    _, peer = await on_record(server, "alice")
    found = x509.load_der_x509_certificate(peer.certificate or b"")
    key = found.extensions.get_extension_for_class(x509.AuthorityKeyIdentifier).value
    number = found.serial_number
    serial = number.to_bytes(number.bit_length() // 8 + 1, "big")
    return certificate_id(key.key_identifier or b"", serial), found


def window(answer: Answer) -> Window:
    found = answer.json["suggestedWindow"]
    start, end = (datetime.datetime.fromisoformat(found[name]) for name in ("start", "end"))
    return start, end


async def test_a_certificate_is_renewed_in_the_last_third_of_its_life(server: Api) -> None:
    """Without credentials; Retry-After is a twentieth of the life, within a minute and an hour."""
    identifier, found = await certificate(server)
    life = found.not_valid_after_utc - found.not_valid_before_utc

    answer = await asked(server, identifier)
    start, end = window(answer)

    second = datetime.timedelta(seconds=1)
    assert (answer.status, answer.header("content-type")) == (200, "application/json")
    assert abs(start - found.not_valid_before_utc - 0.6 * life) <= second
    assert abs(end - found.not_valid_before_utc - 0.7 * life) <= second
    wanted = min(max(life.total_seconds() / 20, 60), 3600)
    assert int(answer.header("retry-after") or 0) == int(wanted)


async def revoke(server: Api, found: x509.Certificate, **spec: Any) -> None:
    serial = f"{found.serial_number:x}"
    await revoked(server, "r", certificate={"signerName": SIGNER, "serialNumber": serial}, **spec)


@pytest.mark.parametrize("target", ["certificate", "authority", "user"])
async def test_a_revoked_certificate_is_renewed_now(server: Api, target: str) -> None:
    """By whatever it was revoked; the window lies in the past and ends after it starts."""
    identifier, found = await certificate(server)
    if target == "certificate":
        await revoke(server, found, reason="keyCompromise")
    elif target == "authority":
        await revoked(server, "r", authority={"signerName": SIGNER})
    else:
        await revoked(server, "r", user={"username": "alice"})
    await server.server.feed.fresh()

    start, end = window(await asked(server, identifier))

    assert start < end < datetime.datetime.now(datetime.UTC)


async def test_a_hold_moves_nothing(server: Api) -> None:
    """It can be lifted, and then the certificate is good again."""
    identifier, found = await certificate(server)
    await revoke(server, found, reason="certificateHold")
    await server.server.feed.fresh()

    start, _ = window(await asked(server, identifier))

    assert start > found.not_valid_before_utc


async def test_unknown_and_malformed_identifiers(server: Api) -> None:
    """404 for a certificate that is not on record, also one with a number of ours; 400 for junk."""
    identifier, _ = await certificate(server)
    key, _, serial = identifier.partition(".")

    for text, status in (
        (f"{key}.AIdlQyE", 404),
        (f"{certificate_id(bytes(20), b'1').partition('.')[0]}.{serial}", 404),
        (f"{identifier}=", 400),
        (key, 400),
        ("", 400),
        (f"{key}/{serial}", 400),
    ):
        assert (await asked(server, text)).status == status, text


async def test_only_reading(server: Api) -> None:
    """HEAD as GET; nothing else."""
    identifier, _ = await certificate(server)

    assert (await asked(server, identifier, "HEAD")).status == 200
    assert (await asked(server, identifier, "POST")).status in (401, 403, 405)
    assert (await server.call("POST", f"/renewal-info/{identifier}")).status == 405
    assert (await server.call("GET", ISSUED, token=None)).status == 401
