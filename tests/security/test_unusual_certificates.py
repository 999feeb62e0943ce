"""The attack: certificates with parts for which the X.509 library raises exceptions of its own.

Anybody can make one: an x400Address, TLS feature 7, the year 0. Each got 500 instead of 401, also
with a good token, and left a traceback in the log.
"""

import base64

import pytest
from cryptography.hazmat.primitives import serialization

from orchid.kernel.credentials.x509 import der, pem
from orchid.kernel.http.messages import Peer
from tests.api.test_approval_policies import POLICIES, body
from tests.api.test_approval_reviews import REVIEWS, terms
from tests.api.world import Api
from tests.security.certified import Certified, cluster_authority, issued
from tests.security.listening import ACCOUNTS
from tests.security.test_revocations import known
from tests.unit.kernel.credentials import samples, unusual
from tests.unit.kernel.http.listening import Running

BUNDLES = "/apis/certificates.orch.io/v1beta1/clustertrustbundles"
REQUESTS = "/apis/certificates.orch.io/v1/certificatesigningrequests"
ALL = pytest.mark.parametrize("data", unusual.UNREADABLE.values(), ids=unusual.UNREADABLE)
ORDINARY = unusual.certificate(unusual.CLIENT)  # self-made, too


@ALL
async def test_a_certificate_that_cannot_be_read_is_refused_as_any_other(
    server: Api, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """On every path, with and without a token, and without a traceback."""
    unreadable, ordinary = Peer("127.0.0.1:1", data), Peer("127.0.0.1:1", ORDINARY)

    assert await known(server, peer=unreadable) == 401
    for path in (ACCOUNTS, "/livez", "/metrics"):
        for credential in ({}, {"token": None}):
            answer = await server.call("GET", path, peer=unreadable, **credential)
            other = await server.call("GET", path, peer=ordinary, **credential)
            assert answer.status == other.status < 500
    assert "request.failed" not in caplog.text


@ALL
async def test_an_intermediate_that_cannot_be_read_is_refused(server: Api, data: bytes) -> None:
    """A client sends its chain, and the library compares each with the next."""
    jane = issued(cluster_authority(server.server.files.path), "jane")

    assert await known(server, peer=Peer("127.0.0.1:1", jane.der, chain=(data,))) == 401


async def test_over_tls_it_gets_401(
    open_server: Running, server: Api, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """OpenSSL does not look at the names of a client's certificate."""
    names = unusual.extension(unusual.ALTERNATIVE_NAMES, unusual.sequence(unusual.X400_ADDRESS))
    data = unusual.certificate(unusual.CLIENT, names, signer=samples.P256)
    key = samples.P256.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    shown = Certified(pem.encode(pem.CERTIFICATE, data), key)
    directory = tmp_path_factory.mktemp("unusual")
    context = shown.context(directory, server.server.files.ca_certificate)

    client = await open_server.connect(context)
    client.get(ACCOUNTS)

    assert (await client.answer()).status == 401


@ALL
async def test_it_is_no_trust_anchor_and_no_issued_certificate(server: Api, data: bytes) -> None:
    """422, with the words for everything else that does not parse."""
    text = pem.encode(pem.CERTIFICATE, data)
    bundle = {"metadata": {"name": "b"}, "spec": {"trustBundle": text.decode()}}
    spec = {
        "request": base64.b64encode(samples.request("jane")).decode(),
        "signerName": "example.com/elsewhere",
        "usages": ["client auth"],
    }
    request = await server.make(REQUESTS, {"metadata": {"name": "asked"}, "spec": spec})
    request["status"] = {"conditions": [{"type": "Approved", "status": "True", "reason": "Test"}]}
    request = (await server.call("PUT", f"{REQUESTS}/asked/approval", request)).json
    request["status"]["certificate"] = base64.b64encode(text).decode()

    anchor = await server.call("POST", BUNDLES, bundle)
    written = await server.call("PUT", f"{REQUESTS}/asked/status", request)

    assert (anchor.status, written.status) == (422, 422)


@pytest.mark.parametrize(
    "extension",
    [
        unusual.extension(unusual.TLS_FEATURE, unusual.sequence(der.encode_integer(7))),
        unusual.extension(unusual.ALTERNATIVE_NAMES, unusual.sequence(unusual.X400_ADDRESS)),
    ],
    ids=["TLS feature 7", "x400Address"],
)
async def test_a_request_with_such_an_extension_can_be_reviewed(
    server: Api, extension: bytes
) -> None:
    """Policies compare what they read with what the library reads."""
    assert (await server.call("POST", POLICIES, body())).status == 201
    request = samples.raw_request(unusual.name(unusual.text("jane")), extension)
    text = base64.b64encode(samples.as_pem(request)).decode()

    answer = await server.call("POST", REVIEWS, {"spec": terms(request=text)})

    assert answer.status == 201, answer.text
    assert "another parser finds other names in it" in answer.text
