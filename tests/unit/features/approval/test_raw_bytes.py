"""The bypass of July 2026: parts of a request that the policy does not evaluate.

The parsed fields of each request here are allowed. None may be approved, since a
signer that copies the request's own bytes would issue something else.
"""

import pytest

from orchid.kernel.credentials.refusals import MalformedRequest
from orchid.kernel.credentials.x509 import der, names
from tests.unit.features.approval.cases import case, judged
from tests.unit.kernel.credentials.samples import (
    STRING_TYPES,
    as_pem,
    attribute,
    extension,
    name,
    raw_request,
    utf8,
)

GOOD = "a.web.example.com"
EMAIL = "1.2.840.113549.1.9.1"
USER_ID = "0.9.2342.19200300.100.1.1"
CN = utf8(names.COMMON_NAME, GOOD)


def alternative(*parts: tuple[int, bytes]) -> bytes:
    found = (der.encode(tag, content) for tag, content in parts)
    return extension("2.5.29.17", der.encode(der.SEQUENCE, *found))


SAN = alternative((0x82, GOOD.encode()))
AUTHORITY = der.encode(der.SEQUENCE, der.encode(der.BOOLEAN, b"\xff"))
CLIENT_AUTH = der.encode(der.SEQUENCE, der.encode_oid("1.3.6.1.5.5.7.3.2"))
OTHER_NAME = (0xA0, der.encode_oid("1.3.6.1.4.1.311.20.2.3") + der.encode(0xA0, b"\x0c\x01x"))

HIDDEN = {
    "two-common-names": (name((utf8(names.COMMON_NAME, "evil.com"),), (CN,)), SAN),
    "two-common-names-in-one": (name((utf8(names.COMMON_NAME, "evil.com"), CN)), SAN),
    "mail-in-subject": (name((attribute(EMAIL, 0x16, b"a@evil.com"),), (CN,)), SAN),
    "user-id-in-subject": (name((utf8(USER_ID, "root"),), (CN,)), SAN),
    "user-id-beside-common-name": (name((utf8(USER_ID, "root"), CN)), SAN),
    "no-string": (name((attribute(names.ORGANIZATION, 0x04, b"ops"),), (CN,)), SAN),
    "empty-value": (name((utf8(names.ORGANIZATION, ""),), (CN,)), SAN),
    **{
        kind: (name((attribute(names.COMMON_NAME, tag, GOOD.encode(codec)),)), SAN)
        for kind, (tag, codec) in STRING_TYPES.items()
        if kind not in ("utf8", "printable", "ia5")
    },
    "authority": (name((CN,)), SAN, extension("2.5.29.19", AUTHORITY)),
    "key-usage": (name((CN,)), SAN, extension("2.5.29.15", b"\x03\x02\x01\x06")),
    "client-auth": (name((CN,)), SAN, extension("2.5.29.37", CLIENT_AUTH)),
    "name-constraints": (name((CN,)), SAN, extension("2.5.29.30", b"\x30\x00")),
    "other-name": (name((CN,)), alternative((0x82, GOOD.encode()), OTHER_NAME)),
    "directory-name": (name((CN,)), alternative((0x82, GOOD.encode()), (0xA4, name((CN,))))),
}


@pytest.mark.parametrize("odd", HIDDEN)
async def test_what_stands_beside_the_template_refuses_the_request(odd: str) -> None:
    """The values that a policy sees are allowed; the other bytes are not among them."""
    subject, *extensions = HIDDEN[odd]
    asked = case(request=as_pem(raw_request(subject, *extensions)))

    verdict = await judged(asked)

    assert asked.certificate.dns_names == (GOOD,)
    refused = [check for check in verdict.checks if not check.allowed]
    assert refused
    assert {check.field for check in refused} == {"request"}


@pytest.mark.parametrize("kind", ["utf8", "printable", "ia5"])
async def test_a_plain_request_is_approved(kind: str) -> None:
    """The same bytes without the oddity are no reason to refuse."""
    tag, codec = STRING_TYPES[kind]
    subject = name((attribute(names.COMMON_NAME, tag, GOOD.encode(codec)),))
    usual = (
        extension("2.5.29.19", der.encode(der.SEQUENCE)),
        extension("2.5.29.15", b"\x03\x02\x07\x80"),
        extension("2.5.29.37", der.encode(der.SEQUENCE, der.encode_oid("1.3.6.1.5.5.7.3.1"))),
    )

    verdict = await judged(case(request=as_pem(raw_request(subject, SAN, *usual))))

    assert verdict.message == ""
    assert verdict.allowed


async def test_groups_in_one_relative_name_are_plain() -> None:
    """That is how the usual tools write several organizations."""
    groups = (utf8(names.ORGANIZATION, "dev"), utf8(names.ORGANIZATION, "ops"))
    request = as_pem(raw_request(name(groups, (CN,)), SAN))
    allows = {
        "commonName": GOOD,
        "organizations": ["dev", "ops"],
        "dnsNames": [GOOD],
        "usages": ["digital signature", "server auth"],
        "keys": ["*"],
        "maxDuration": "24h",
    }

    both = await judged(case(request=request), allows=allows)
    first = await judged(case(request=request), allows={**allows, "organizations": ["dev"]})
    last = await judged(case(request=request), allows={**allows, "organizations": ["ops"]})

    assert both.allowed
    assert [check.value for check in both.checks if check.field == "organizations"] == [
        "dev",
        "ops",
    ]
    assert first.message == 'organizations does not allow "ops"'
    assert last.message == 'organizations does not allow "dev"'


@pytest.mark.parametrize("twice", [SAN, extension("2.5.29.19", AUTHORITY)])
def test_extensions_that_stand_twice_are_not_even_read(twice: bytes) -> None:
    """A reader could take either of them."""
    evil = alternative((0x82, b"evil.com"))
    request = as_pem(raw_request(name((CN,)), twice, evil if twice is SAN else twice))

    with pytest.raises(MalformedRequest, match="duplicate requested extensions"):
        case(request=request)
