"""ClusterTrustBundle: names that follow the signer, anchors alone, and what stays as it was."""

import pytest

from orchid.features.trust_bundles.kinds.cluster_trust_bundle import (
    ClusterTrustBundle,
    ClusterTrustBundleSpec,
    declare,
    name_prefix,
)
from orchid.kernel.wire.codec.documents import encode
from orchid.kernel.wire.meta import ObjectMeta
from orchid.kernel.wire.naming import KUBERNETES, ORCH
from orchid.kernel.wire.rules.metadata import creation_errors
from tests.data import hostile

KIND = declare(ORCH)
ANCHOR = hostile.pem.encode("CERTIFICATE", hostile.certificate_der(hostile.AUTHORITY)).decode()
OTHER = hostile.pem.encode(
    "CERTIFICATE", hostile.certificate_der(hostile.AUTHORITY, serial=b"\x02\x01\x02")
).decode()
LEAF = hostile.pem.encode("CERTIFICATE", hostile.certificate_der()).decode()


def bundle(
    name: str = "roots", signer: str = "", text: str = ANCHOR, generate_name: str = ""
) -> ClusterTrustBundle:
    return ClusterTrustBundle(
        metadata=ObjectMeta(name=name, generate_name=generate_name),
        spec=ClusterTrustBundleSpec(signer_name=signer, trust_bundle=text),
    )


def refusals(new: ClusterTrustBundle, old: ClusterTrustBundle | None = None) -> list[str]:
    rules = KIND.rules
    errors = rules.validate(new) if old is None else rules.validate_update(new, old)
    return [str(error) for error in errors]


@pytest.mark.parametrize(
    ("name", "signer"),
    [
        ("roots", ""),
        ("a.b", ""),
        ("example.com:foo:v1", "example.com/foo"),
        ("example.com:foo:a.b", "example.com/foo"),
    ],
)
def test_names_that_fit_the_signer_pass(name: str, signer: str) -> None:
    """A signer's bundles begin with its name, others have no colon."""
    assert refusals(bundle(name, signer)) == []


@pytest.mark.parametrize(
    ("name", "signer", "problem"),
    [
        ("a:b", "", 'ClusterTrustBundle without signer name must not have ":" in its name'),
        (
            "roots",
            "example.com/foo",
            "ClusterTrustBundle for signerName example.com/foo must be named with prefix "
            "example.com:foo:",
        ),
        (
            "example.com:foo",
            "example.com/foo",
            "ClusterTrustBundle for signerName example.com/foo must be named with prefix "
            "example.com:foo:",
        ),
        ("example.com:foo:", "example.com/foo", "a lowercase RFC 1123 subdomain"),
        ("example.com:foo:a:b", "example.com/foo", "a lowercase RFC 1123 subdomain"),
        ("Roots", "", "a lowercase RFC 1123 subdomain"),
    ],
)
def test_names_of_others_are_refused(name: str, signer: str, problem: str) -> None:
    """No bundle can pose as that of a signer it does not belong to."""
    (found,) = refusals(bundle(name, signer))

    assert found.startswith(f'metadata.name: Invalid value: "{name}": {problem}')


def test_a_generated_name_follows_the_same_rule() -> None:
    """The prefix of the signer alone is not enough; a dash at the end is allowed."""
    bare = bundle("example.com:foo:x2x2x", "example.com/foo", generate_name="example.com:foo:")
    good = bundle("example.com:foo:x-2x2x2", "example.com/foo", generate_name="example.com:foo:x-")

    assert [text.partition(":")[0] for text in refusals(bare)] == ["metadata.generateName"]
    assert refusals(good) == []


def test_a_missing_name_is_reported_once() -> None:
    """Only the general rules of metadata ask for a name."""
    nameless = bundle("")

    general = creation_errors(
        nameless.metadata, namespaced=False, name_errors=KIND.rules.name_errors
    )

    assert refusals(nameless) == []
    assert [str(error) for error in general] == [
        "metadata.name: Required value: name or generateName is required"
    ]


def test_a_bad_signer_is_reported_after_the_name() -> None:
    """Both are wrong, and both are said."""
    found = refusals(bundle("x", "nosigner"))

    assert [text.partition(":")[0] for text in found] == ["metadata.name", "spec.signerName"]


def test_a_giant_signer_is_not_repeated() -> None:
    """An answer never grows to many times what was sent."""
    found = refusals(bundle("x", "x" * 1_000_000))

    assert found == ["spec.signerName: Too long: may not be more than 571 bytes"]


@pytest.mark.parametrize(
    ("text", "problems"),
    [
        ("", ["at least one trust anchor must be provided"]),
        ("no PEM here", ["at least one trust anchor must be provided"]),
        (LEAF, ["entry 0 does not have the CA bit set"]),
        (
            ANCHOR + LEAF + LEAF.replace("-----\n", "-----\nA: b\n\n", 1),
            ["entry 1 does not have the CA bit set", "entry 2 has PEM block headers"],
        ),
        (ANCHOR + OTHER + ANCHOR, ["duplicate trust anchor (indices [0 2])"]),
        (ANCHOR.replace("CERTIFICATE", "X"), ["entry 0 has bad block type: X"]),
    ],
)
def test_only_anchors_are_accepted(text: str, problems: list[str]) -> None:
    """Every bad block is reported by its index; the bundle itself is not quoted."""
    expected = [f'spec.trustBundle: Invalid value: "<value omitted>": {p}' for p in problems]

    assert refusals(bundle(text=text)) == expected


def test_a_bundle_has_a_largest_size() -> None:
    """Beyond it nothing else is looked at."""
    found = refusals(bundle(text=ANCHOR + " " * (1 << 20)))

    assert found == ["spec.trustBundle: Too long: may not be more than 1048576 bytes"]


def test_text_around_the_anchors_is_kept() -> None:
    """Text between certificates is stored as sent."""
    assert refusals(bundle(text=f"the old one\n{ANCHOR}\nthe new one\n{OTHER}")) == []


def test_a_stored_bundle_stays_writable() -> None:
    """A bundle that an older server accepted can be labelled, but not replaced by one as bad."""
    old = bundle(text="accepted long ago")

    assert refusals(old.with_meta(labels={"a": "b"}), old) == []
    assert refusals(bundle(text="another"), old) != []


def test_the_signer_never_changes() -> None:
    """A bundle belongs to its signer for ever, and one without a signer to nobody."""
    old = bundle("example.com:foo:v1", "example.com/foo")

    assert refusals(bundle("example.com:foo:v1", "example.com/zzz"), old) == [
        'metadata.name: Invalid value: "example.com:foo:v1": ClusterTrustBundle for signerName '
        "example.com/zzz must be named with prefix example.com:zzz:",
        'spec.signerName: Invalid value: "example.com/zzz": field is immutable',
    ]


def test_the_text_is_always_written() -> None:
    """An unlinked bundle has no signerName on the wire, but always a trustBundle."""
    assert encode(ClusterTrustBundle()) == b'{"metadata":{},"spec":{"trustBundle":""}}'


def test_the_declaration_says_what_clients_rely_on() -> None:
    """Version, columns and selectors; an update must name the version it replaces."""
    cells = [column.cell(bundle(), None) for column in KIND.columns]

    assert (KIND.api_version, KIND.namespaced) == ("certificates.orch.io/v1beta1", False)
    assert declare(KUBERNETES).api_version == "certificates.k8s.io/v1beta1"
    assert [column.name for column in KIND.columns] == ["Name", "SignerName"]
    assert cells == ["roots", "<none>"]
    assert KIND.selectable["spec.signerName"](bundle("x", "example.com/a")) == "example.com/a"
    assert not KIND.may_update_unconditionally
    assert name_prefix("example.com/foo") == "example.com:foo:"
