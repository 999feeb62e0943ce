"""ACME clients sign as RFC 8555 wants, and the clusters answer what they should."""

import base64
import http.client
import json
import ssl
from collections.abc import Iterator
from typing import Any

import jwt
import pytest

from tests.adversary.acme import AcmeClient, Ordered
from tests.adversary.calls import Answer
from tests.adversary.clusters import FRIEND, HOSTILE, STRANGER, Clusters
from tests.adversary.kinds import KINDS
from tests.adversary.pool import Pool
from tests.adversary.servers import ISSUER

ACCOUNT = f"{ISSUER}/acme/web/account/team/a"


def read(signed: dict[str, str], key: Any, algorithm: str) -> tuple[dict[str, Any], Any]:
    """Header and payload of a signature that is valid."""
    text = ".".join(signed[part] for part in ("protected", "payload", "signature"))
    found = jwt.PyJWS().decode_complete(text, key, [algorithm])
    return found["header"], json.loads(found["payload"])


def test_a_client_binds_its_account_and_signs_with_its_key() -> None:
    """The first request has the key, and the later ones have the URL of the account."""
    sent: list[tuple[str, str, bytes | None]] = []

    def ask(method: str, path: str, body: bytes | None, content: str) -> Answer:
        sent.append((method, path, body))
        return Answer(201, headers={"Replay-Nonce": "n", "Location": ACCOUNT})

    pair, secret = Pool().pair("key"), Pool().secret("builder")
    client = AcmeClient(ask, "web", pair)
    client.register("team.acme-1", secret)
    client.post("new-order", {"identifiers": []})

    assert [path for _, path, _ in sent[1::2]] == ["/acme/web/new-account", "/acme/web/new-order"]
    public = pair.key.public_key()
    first, payload = read(json.loads(sent[1][2] or b""), public, "ES256")
    second, order = read(json.loads(sent[3][2] or b""), public, "ES256")
    assert (first["nonce"], first["jwk"]["crv"], "kid" in first) == ("n", "P-256", False)
    assert (second["kid"], "jwk" in second, order) == (ACCOUNT, False, {"identifiers": []})
    bound, key = read(payload["externalAccountBinding"], secret, "HS256")
    assert (bound["kid"], key) == ("team.acme-1", first["jwk"])


def test_the_request_of_an_order_is_known_before_it_is_made() -> None:
    order = Ordered("acme:1", f"{ISSUER}/acme/web/order/team/x-1", ("a.example",))

    assert order.request == "acme-x-1"


@pytest.fixture
def clusters() -> Iterator[Clusters]:
    made = Clusters()
    made.start()
    yield made
    made.stop()


def listed(clusters: Clusters, cluster: str) -> bytes:
    """What a cluster answers to a list, by the address that Orchid is given."""
    documents = [document for path, document in clusters.documents() if "/secrets" in path]
    named = {one["metadata"]["name"]: one["stringData"]["kubeconfig"] for one in documents}
    server = json.loads(named[f"cluster-{cluster}"])["clusters"][0]["cluster"]
    trusted = base64.b64decode(server["certificate-authority-data"]).decode()
    port = int(server["server"].rpartition(":")[2])
    context = ssl.create_default_context(cadata=trusted)
    connection = http.client.HTTPSConnection("127.0.0.1", port, context=context)
    connection.request("GET", KINDS["certificatesigningrequests"].path() + "?limit=50")
    try:
        return connection.getresponse().read()
    finally:
        connection.close()


def test_the_stranger_answers_anything_and_the_friend_what_it_issued(clusters: Clusters) -> None:
    clusters.issue(FRIEND, "alice", "laptop-1")
    clusters.say("no JSON", "nothing", 0)

    assert listed(clusters, STRANGER) == HOSTILE["no JSON"]
    [request] = json.loads(listed(clusters, FRIEND))["items"]
    assert request["metadata"]["name"] == "laptop-1"
    clusters.issue(STRANGER, "bob", "acme-x")
    [request] = json.loads(listed(clusters, STRANGER))["items"]
    assert request["metadata"]["name"] == "acme-x"
