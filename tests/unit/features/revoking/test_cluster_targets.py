"""`orchid revoke … --cluster`: credentials of another issuer or authority are refused."""

import base64
import io
import json
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import Encoding

from orchid.features.revoking.commands import cluster_targets
from orchid.kernel.terminal.output import Complaint
from tests.unit.kernel.credentials import chains
from tests.unit.kernel.terminal.api_server import END, PAST, ApiServer, record

OTHER = chains.authority("other", key=chains.OTHER_P256)


def pem(*certificates: Any) -> str:
    return "".join(one.public_bytes(Encoding.PEM).decode() for one in certificates)


def cluster(*authorities: Any) -> dict[str, Any]:
    spec = {"issuer": "https://prod", "clientAuthorities": pem(*authorities)}
    return {"metadata": {"name": "prod"}, "spec": spec}


def encoded(claims: dict[str, Any]) -> str:
    words = (json.dumps(one).encode() for one in ({}, claims))
    return ".".join(base64.urlsafe_b64encode(one).decode().rstrip("=") for one in words) + ".c2ln"


CLAIMS = {"jti": "7", "iss": "https://prod", "sub": "system:serviceaccount:ci:robot", "exp": 5}


@pytest.mark.parametrize("what", ["key/k", "authority/a", "token/x", "certificate/x", "user", "x"])
def test_what_a_cluster_does_not_have_is_refused(what: str) -> None:
    server: Any = ApiServer()
    server.objects["prod"] = cluster()
    word, _, rest = what.partition("/")

    with pytest.raises(Complaint, match="is none of"):
        cluster_targets.wanted(server, "prod", word, rest)


def test_a_token_is_named_by_its_id_and_the_issuer_of_the_cluster() -> None:
    _, spec = cluster_targets._of_token(encoded(CLAIMS) + "\n", cluster())

    expires = "1970-01-01T00:00:05Z"
    assert spec == {"token": {"jti": "7", "issuer": "https://prod", "expires": expires}}


@pytest.mark.parametrize(
    ("claims", "text"),
    [
        ({"iss": "https://test"}, "not the issuer of prod"),
        ({"jti": 7}, "no token with an id"),
        ({"jti": None}, "no token with an id"),
        ({"sub": None}, "no token with an id"),
        ({"exp": "soon"}, "no token with an id"),
        ({"exp": 1e300}, "no token with an id"),
    ],
)
def test_any_other_token_is_refused(claims: dict[str, Any], text: str) -> None:
    with pytest.raises(Complaint, match=text):
        cluster_targets._of_token(encoded({**CLAIMS, **claims}), cluster())
    with pytest.raises(Complaint, match="no token with an id"):
        cluster_targets._of_token(encoded(CLAIMS) + " " * cluster_targets.LARGEST, cluster())


@pytest.mark.parametrize("rest", ["robot", "ci/", "/robot", "ci/robot/x"])
def test_an_account_has_a_namespace_and_a_name(rest: str) -> None:
    with pytest.raises(Complaint, match="is not NAMESPACE/NAME"):
        cluster_targets._of_account(rest)


def test_the_user_name_of_an_account_is_no_user() -> None:
    """Its tokens would be accepted: they have no time of issue there."""
    with pytest.raises(Complaint, match="revoke account/NAMESPACE/NAME"):
        cluster_targets._of_user("system:serviceaccount:ci:robot")


def test_a_certificate_is_of_one_of_the_authorities() -> None:
    leaf = pem(chains.make()).encode()

    _, spec = cluster_targets._of_file(leaf, cluster(OTHER, chains.ROOT))
    assert len(spec["certificate"]["sha256"]) == 64
    assert len(spec["certificate"]["otherSha256"]) == 1
    for authorities in ((), (OTHER,)):
        with pytest.raises(Complaint, match="no client authority of prod has issued"):
            cluster_targets._of_file(leaf, cluster(*authorities))
    with pytest.raises(Complaint, match="has no certificate"):
        cluster_targets._of_file(b"nonsense", cluster(chains.ROOT))


# -- the inventory ----------------------------------------------------------------------------


FIRST, SECOND, ENDED = "a" * 64, "b" * 64, "c" * 64


def inventory(*records: tuple[str, str, str, str]) -> Any:
    server: Any = ApiServer()
    server.objects["prod"] = cluster()
    server.lists["issuedcertificates?spec.cluster=prod"] = [
        record(serial, sha256=sha256, request={"name": request}, notAfter=end)
        for serial, sha256, request, end in records
    ]
    return server


def found(server: Any, what: str) -> list[str]:
    word, _, rest = what.partition("/")
    named = cluster_targets.wanted(server, "prod", word, rest)
    return [spec["certificate"]["sha256"] for _, spec in named]


def test_every_valid_certificate_of_a_request_is_named() -> None:
    server = inventory(
        ("a1", FIRST, "web", END), ("b2", SECOND, "web", END), ("c3", ENDED, "web", PAST)
    )

    assert found(server, "csr/web") == [FIRST, SECOND]
    for what, text in (("csr/Web", "is in the inventory"), ("cert/c3", "is still valid")):
        with pytest.raises(Complaint, match=f"no such certificate {text}"):
            found(server, what)


@pytest.mark.parametrize("what", ["cert/a1", "cert/00:A1", f"cert/{FIRST.upper()}"])
def test_a_certificate_is_found_as_programs_print_its_names(what: str) -> None:
    server = inventory(("a1", FIRST, "web", END), ("b2", SECOND, "web", END))

    assert found(server, what) == [FIRST]


def test_a_number_that_several_certificates_have_names_none() -> None:
    """Signers of the cluster choose it; one that has ended does not count."""
    server = inventory(("a1", FIRST, "web", END), ("a1", ENDED, "web", PAST))
    assert found(server, "cert/a1") == [FIRST]

    both = inventory(("a1", FIRST, "web", END), ("a1", SECOND, "web", END))
    with pytest.raises(Complaint, match=f"several certificates.*{FIRST}, {SECOND}"):
        found(both, "cert/a1")


def test_standard_input_is_read_for_a_token_and_a_certificate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = inventory()
    server.objects["prod"] = cluster(chains.ROOT)

    for word, text in (("token", encoded(CLAIMS)), ("certificate", pem(chains.make()))):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        ((_, spec),) = cluster_targets.wanted(server, "prod", word, "")
        assert list(spec) == [word]
