"""CertificateAuthority: what may be asked for, what is filled in, and what stays as it is."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from orchid.features.approval.issuing_terms import KEYS, NAMES, USAGES
from orchid.features.authorities.kinds.certificate_authority import (
    CertificateAuthority,
    certificate_changes,
    declare,
    parent_problem,
    parent_reference,
    profile,
)
from orchid.kernel.credentials.authorities.authority import Authority
from orchid.kernel.credentials.authorities.authority_keys import ALGORITHMS
from orchid.kernel.credentials.refusals import NotPermitted
from orchid.kernel.credentials.x509 import signing_request
from orchid.kernel.wire.authority_status import AuthorityParentReference
from orchid.kernel.wire.codec.documents import convert
from orchid.kernel.wire.naming import KUBERNETES, ORCH
from orchid.kernel.wire.struct import replace
from tests.unit.features.asking import a_request
from tests.unit.features.rights.policy_world import ask
from tests.unit.kernel.credentials import samples

KIND = declare(ORCH)
REQUEST = a_request(ask("create", "certificateauthorities"))
NOW = datetime(2026, 5, 1, tzinfo=UTC)
SUBJECT = {"commonName": "Example Web CA"}
MADE = {"signerName": "example.com/web", "key": {"algorithm": "ECDSA-P256"}, "subject": SUBJECT}
BROUGHT = {"signerName": "example.com/web", "secretRef": {"namespace": "pki", "name": "ca"}}


def authority(given: dict[str, Any] = MADE, **more: Any) -> CertificateAuthority:
    """An authority as the server sees it: what was sent, and the defaults."""
    plain = {"metadata": {"name": "web"}, "spec": {**given, **more}}
    assert KIND.defaults is not None
    return KIND.defaults(convert(plain, CertificateAuthority))


def problems(new: CertificateAuthority) -> list[str]:
    return [str(error) for error in KIND.rules.validate(new)]


def test_both_namings_have_the_same_group() -> None:
    """It is ours in either."""
    assert KIND.api_version == declare(KUBERNETES).api_version == "identity.orch.io/v1alpha1"


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_algorithm_may_be_asked_for(algorithm: str) -> None:
    """Six of them; nothing else is needed but a signer and a name."""
    assert problems(authority(key={"algorithm": algorithm})) == []


def test_a_secret_says_the_rest() -> None:
    """An authority that exists has a subject and an end already."""
    assert problems(authority(BROUGHT)) == []
    assert authority(BROUGHT).spec.duration == ""


def test_what_is_left_out_makes_certificates_of_servers() -> None:
    """A month by default, three at most, from an authority for ten years."""
    spec = authority(key={}).spec

    assert (spec.key and spec.key.algorithm, spec.duration) == ("ECDSA-P256", "87600h")
    assert (spec.issues.usages, spec.issues.names, spec.issues.keys) == (USAGES, NAMES, KEYS)
    assert (spec.issues.max_duration, spec.issues.default_duration) == ("2160h", "720h")


def test_the_defaults_are_not_above_what_is_said() -> None:
    """A shorter maximum also shortens the default lifetimes below it."""
    terms = authority(issues={"maxDuration": "24h"})
    whole = authority(duration="48h")

    assert terms.spec.issues.default_duration == "24h"
    assert whole.spec.issues.max_duration == whole.spec.issues.default_duration == "48h"
    assert problems(terms) == problems(whole) == []


@pytest.mark.parametrize(
    ("given", "place", "says"),
    [
        ({"signerName": ""}, "spec.signerName", "Required value"),
        ({"signerName": "web"}, "spec.signerName", "fully qualified"),
        ({"signerName": "orch.io/web"}, "spec.signerName", "belongs to the platform"),
        ({"signerName": "a.orch.io/web"}, "spec.signerName", "belongs to the platform"),
        ({"signerName": "kubernetes.io/web"}, "spec.signerName", "belongs to the platform"),
        ({"signerName": "x.k8s.io/web"}, "spec.signerName", "belongs to the platform"),
        ({"key": None}, "spec", "exactly one of key and secretRef"),
        (
            {"secretRef": {"namespace": "a", "name": "b"}},
            "spec",
            "exactly one of key and secretRef",
        ),
        ({"key": {"algorithm": "RSA-1024"}}, "spec.key.algorithm", '"RSA-3072"'),
        ({"subject": None}, "spec.subject.commonName", "Required value"),
        ({"subject": {"commonName": "a\nb"}}, "spec.subject.commonName", "printable"),
        ({"subject": {"commonName": "a" * 65}}, "spec.subject.commonName", "Too long"),
        (
            {"subject": {"commonName": "a", "organizations": [""]}},
            "spec.subject.organizations[0]",
            "Required value",
        ),
        ({"duration": "ten years"}, "spec.duration", "like 720h"),
        ({"duration": "59m"}, "spec.duration", "must be between 60m and 100y"),
        ({"duration": "999999h"}, "spec.duration", "must be between 60m and 100y"),
        ({"issues": {"usages": ["fly"]}}, "spec.issues.usages[0]", "Unsupported value"),
        ({"issues": {"usages": ["cert sign"]}}, "spec.issues.usages[0]", "Unsupported value"),
        ({"issues": {"names": ["dns", "dns"]}}, "spec.issues.names[1]", "Duplicate value"),
        ({"issues": {"keys": ["RSA-1024"]}}, "spec.issues.keys[0]", "Unsupported value"),
        ({"issues": {"subject": ["dn"]}}, "spec.issues.subject[0]", '"commonName"'),
        ({"issues": {"maxDuration": "9m"}}, "spec.issues.maxDuration", "between 10m and 10y"),
        (
            {"issues": {"maxDuration": "2h", "defaultDuration": "3h"}},
            "spec.issues.defaultDuration",
            "between 10m and 120m",
        ),
        ({"issues": {"maxDuration": "90000h"}}, "spec.issues.maxDuration", "between"),
    ],
)
def test_errors_have_their_field(given: dict[str, Any], place: str, says: str) -> None:
    """A platform signer, two keys or none, lives that are none: each by itself."""
    found = problems(authority(**given))

    assert [one.partition(": ")[0] for one in found] == [place]
    assert says in found[0]


@pytest.mark.parametrize(
    ("given", "place"),
    [
        ({"subject": SUBJECT}, "spec.subject"),
        ({"duration": "9000h"}, "spec.duration"),
        ({"secretRef": {"namespace": "pki"}}, "spec.secretRef.name"),
        ({"secretRef": {"namespace": "a/b", "name": "ca"}}, "spec.secretRef.namespace"),
    ],
)
def test_what_does_not_go_with_a_secret_is_refused(given: dict[str, Any], place: str) -> None:
    """The certificate in it is made already."""
    found = problems(authority(BROUGHT, **given))

    assert [one.partition(": ")[0] for one in found] == [place]


@pytest.mark.parametrize(
    "change",
    [
        {"signerName": "example.com/other"},
        {"key": {"algorithm": "Ed25519"}},
        {"subject": {"commonName": "Other"}},
        {"duration": "9000h"},
    ],
)
def test_what_made_the_certificate_never_changes(change: dict[str, Any]) -> None:
    """Another signer, key, name or end is another authority."""
    (error,) = KIND.rules.validate_update(authority(**change), authority())

    assert error.path.text == f"spec.{next(iter(change))}"
    assert "field is immutable" in error.problem


def test_terms_may_change_and_are_judged() -> None:
    """Terms for future certificates may change to other valid terms."""
    old = authority()
    new = authority(issues={"usages": ["client auth"]})
    bad = authority(issues={"usages": ["fly"]})

    assert list(KIND.rules.validate_update(new, old)) == []
    assert len(list(KIND.rules.validate_update(bad, old))) == 1


def test_the_profile_is_what_the_terms_say() -> None:
    """Usages, keys and lives of the object are those that the signer applies."""
    terms = {"usages": ["client auth"], "keys": ["ECDSA-P256"], "maxDuration": "48h"}
    grouped = signing_request.parse(samples.request("jane", ("dev",)))

    made = profile(authority(issues=terms))
    bare = profile(authority(issues={**terms, "subject": ["commonName"]}))
    made.check(grouped, ())
    with pytest.raises(NotPermitted, match="the subject may not have organizations"):
        bare.check(grouped, ())

    assert made.signer_name == "example.com/web"
    assert made.usages(()) == ("client auth",)
    assert made.keys == ("ECDSA-P256",)
    assert made.lifetime(None) == timedelta(hours=48)
    assert made.lifetime(10**6) == timedelta(hours=48)


def test_the_ledger_records_added_and_removed_certificates() -> None:
    """By their fingerprints, and once each."""
    pem = Authority.create("a", now=NOW).certificate_pem.decode()
    without = authority()
    having = replace(without, status=replace(without.status, certificate=pem))

    made = list(certificate_changes(having, without, REQUEST))
    same = list(certificate_changes(having, having, REQUEST))
    gone = list(certificate_changes(None, having, REQUEST))

    assert [fact.type for fact in made] == ["authority.made"]
    assert made[0].clear["signers"] == ["example.com/web"]
    assert same == gone == []


def test_a_table_shows_the_key_and_the_end() -> None:
    """Also before there is a certificate."""
    columns = {column.name: column.cell for column in KIND.columns}
    ended = replace(authority(BROUGHT).status, not_after=NOW)

    assert columns["Key"](authority(), NOW) == "ECDSA-P256"
    assert columns["Key"](authority(BROUGHT), NOW) == "secret pki/ca"
    assert columns["Expires"](authority(), NOW) == "<unknown>"
    assert columns["Expires"](replace(authority(), status=ended), NOW) == "expired"
    assert columns["Ready"](authority(), NOW) == "False"


def test_a_trust_domain_fixes_most_terms() -> None:
    """X.509-SVIDs for an hour, if no more is configured; the authority has the ID."""
    mesh = authority(trustDomain="example.org")

    terms = mesh.spec.issues
    assert problems(mesh) == []
    assert mesh.uris == ("spiffe://example.org",)
    assert terms.usages == ("digital signature", "server auth", "client auth")
    assert (terms.names, terms.max_duration, terms.default_duration) == (("uri",), "1h", "1h")


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({"trustDomain": "Example.org"}, "spec.trustDomain"),
        ({"trustDomain": "example.org/a"}, "spec.trustDomain"),
        ({"trustDomain": "x" * 256}, "spec.trustDomain"),
        ({"issues": {"usages": ["client auth"]}}, "spec.issues.usages"),
        ({"issues": {"names": ["uri", "dns"]}}, "spec.issues.names"),
        ({"issues": {"subject": ["commonName"]}}, "spec.issues.subject"),
        ({"issues": {"wildcards": True}}, "spec.issues.wildcards"),
        ({"issues": {"pods": True}}, "spec.issues.pods"),
        ({"issues": {"maxDuration": "25h"}}, "spec.issues.maxDuration"),
        ({"issues": {"defaultDuration": "10m"}}, "spec.issues.defaultDuration"),
        ({"acme": {}}, "spec.acme"),
    ],
)
def test_other_terms_do_not_fit_a_trust_domain(more: dict[str, Any], field: str) -> None:
    """Each is refused at its field."""
    found = problems(authority(**({"trustDomain": "example.org"} | more)))

    assert len(found) == 1
    assert found[0].startswith(f"{field}:")


def test_a_trust_domain_stays() -> None:
    """The certificate of the authority has it."""
    old, new = authority(trustDomain="a.example"), authority(trustDomain="b.example")

    found = [str(error) for error in KIND.rules.validate_update(new, old)]
    assert any("spec.trustDomain" in one and "immutable" in one for one in found)


# -- the parent --------------------------------------------------------------------------------

CORP = authority(signerName="example.com/corp").with_meta(
    name="corp", uid="c", creation_timestamp=NOW
)
BELOW = authority(parent={"authority": "corp"}).with_meta(creation_timestamp=NOW)


def remembering(parent: AuthorityParentReference | None) -> CertificateAuthority:
    return replace(BELOW, status=replace(BELOW.status, parent=parent))


@pytest.mark.parametrize(
    ("uid", "signer", "is_parent"),
    [
        ("c", "example.com/corp", True),
        ("another", "example.com/corp", False),
        ("c", "example.com/another", False),
    ],
)
def test_a_parent_is_known_by_its_uid_and_its_signer(
    uid: str, signer: str, *, is_parent: bool
) -> None:
    below = remembering(AuthorityParentReference(uid=uid, signer_name=signer))

    assert (parent_problem(below, CORP) == "") is is_parent


@pytest.mark.parametrize(("seconds", "is_parent"), [(-1, True), (0, True), (1, False)])
def test_without_a_recorded_parent_it_is_one_that_was_there_before(
    seconds: int, *, is_parent: bool
) -> None:
    """As an earlier version of the server left it."""
    named = CORP.with_meta(creation_timestamp=NOW + timedelta(seconds=seconds))

    assert (parent_problem(remembering(None), named) == "") is is_parent


def test_a_recorded_parent_never_changes() -> None:
    """A user who may write the status does not give an authority another parent."""
    (status,) = KIND.endpoints
    before, other = remembering(parent_reference(CORP)), AuthorityParentReference(uid="x")

    for new in (remembering(other), remembering(None)):
        (problem,) = status.rules.validate_update(new, before)
        assert "status.parent" in str(problem)
    assert list(status.rules.validate_update(before, remembering(None))) == []
