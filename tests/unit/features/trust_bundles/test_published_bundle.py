"""PublishedBundle: what may be published, which trust bundles it selects, what the ledger gets."""

from datetime import UTC, datetime
from typing import Any

import pytest

from orchid.features.trust_bundles.kinds.published_bundle import (
    BundleEdition,
    PublishedBundle,
    PublishedBundleStatus,
    StatusRules,
    declare,
    edition_changes,
    name_problems,
    selects,
)
from orchid.kernel.wire.codec.documents import convert
from orchid.kernel.wire.naming import ORCH
from orchid.kernel.wire.struct import replace
from tests.unit.features.asking import a_request
from tests.unit.features.rights.policy_world import ask

KIND = declare(ORCH)
REQUEST = a_request(ask("update", "publishedbundles/status"))
NOW = datetime(2026, 5, 1, tzinfo=UTC)
LABELS = {"matchLabels": {"trust": "payments"}}
SOURCES = (
    {"signerName": "example.com/web"},
    {"labelSelector": LABELS},
    {"name": "public-roots"},
    {"signerName": "example.com/mail", "labelSelector": LABELS},
)


def bundle(*sources: Any, **more: Any) -> PublishedBundle:
    plain = {"metadata": {"name": "payments"}, "spec": {"sources": sources, **more}}
    assert KIND.defaults is not None
    return KIND.defaults(convert(plain, PublishedBundle))


def problems(new: PublishedBundle) -> list[str]:
    return [str(error) for error in KIND.rules.validate(new)]


def test_every_form_of_source_is_accepted_and_the_hint_has_a_default() -> None:
    """By signer, by labels, by name, and by signer and labels together."""
    made = bundle(*SOURCES, trustDomain="example.com")

    assert problems(made) == []
    assert (made.spec.refresh_hint, made.refresh_seconds) == ("5m", 300)


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (bundle(), "spec.sources: Required value: at least one source"),
        (bundle({}), "spec.sources[0]: Required value: one of signerName"),
        (bundle({"name": "a", "signerName": "example.com/a"}), "sources[0].name: Forbidden"),
        (bundle({"name": "a"}, {"name": "a"}), 'spec.sources[1]: Duplicate value: "a"'),
        (bundle({"name": "a/b"}), "may not contain '/'"),
        (bundle({"signerName": "web"}), "spec.sources[0].signerName: Invalid value"),
        (bundle({"labelSelector": {}}), "spec.sources[0].labelSelector: Required value"),
        (
            bundle({"labelSelector": {"matchLabels": {"a b": "c"}}}),
            "sources[0].labelSelector.matchLabels: Invalid value",
        ),
        (bundle({"name": "a"}, refreshHint="59s"), "spec.refreshHint: Invalid value"),
        (bundle({"name": "a"}, refreshHint="25h"), "must be between 60s and 24h"),
        (bundle({"name": "a"}, refreshHint="soon"), "spec.refreshHint: Invalid value"),
        (bundle({"name": "a"}, trustDomain="Example.com"), "spec.trustDomain: Invalid value"),
        (bundle({"name": "a"}, trustDomain="a" * 256), "spec.trustDomain: Invalid value"),
    ],
)
def test_what_cannot_be_published_is_refused(made: PublishedBundle, said: str) -> None:
    """With the field and the reason."""
    found = problems(made)

    assert len(found) == 1, found
    assert said in found[0]


@pytest.mark.parametrize("hint", ["1m", "24h"])
def test_the_limits_of_the_hint_are_allowed(hint: str) -> None:
    """From a minute to a day."""
    assert problems(bundle({"name": "a"}, refreshHint=hint)) == []


def test_a_name_must_fit_into_paths_and_other_names() -> None:
    """/trust/x.nopassword.p12 is a form of x, and ConfigMaps carry the name with a number."""
    assert not list(name_problems("payments.example.com"))
    assert list(name_problems("a" * 201))
    assert list(name_problems("x.nopassword"))
    assert list(name_problems("Payments"))


@pytest.mark.parametrize(
    ("source", "selected"),
    [
        ({"signerName": "example.com/web"}, {"web", "web-labelled"}),
        ({"signerName": "example.com/web", "labelSelector": LABELS}, {"web-labelled"}),
        ({"labelSelector": LABELS}, {"labelled"}),
        ({"name": "web"}, {"web"}),
        ({"name": "nothing"}, set()),
    ],
)
def test_a_source_selects_by_signer_labels_or_name(
    source: dict[str, Any], selected: set[str]
) -> None:
    """Labels alone never select the bundle of a signer, which not everybody may write."""
    known = {
        "web": ("example.com/web", {}),
        "web-labelled": ("example.com/web", {"trust": "payments"}),
        "labelled": ("", {"trust": "payments"}),
        "plain": ("", {}),
    }
    made = bundle(source).spec.sources[0]

    found = {
        name for name, (signer, labels) in known.items() if selects(made, name, signer, labels)
    }

    assert found == selected


def test_the_ledger_gets_each_edition_once() -> None:
    """With its SHA-256; other changes of the status are not logged."""
    before = bundle(*SOURCES)
    status = PublishedBundleStatus(sequence=7, sha256="ab", certificates=2)
    after = replace(before, status=status)

    facts = list(edition_changes(after, before, REQUEST))

    assert [fact.type for fact in facts] == ["bundle.changed"]
    assert facts[0].clear == {
        "bundle": "payments", "sequence": 7, "sha256": "ab", "certificates": 2,
    }  # fmt: skip
    assert not list(edition_changes(after, after, REQUEST))
    assert not list(edition_changes(None, after, REQUEST))


def test_a_sequence_never_decreases() -> None:
    """A client that has seen a later one would ignore the bundle."""
    before = replace(bundle(*SOURCES), status=PublishedBundleStatus(sequence=7))
    after = replace(before, status=PublishedBundleStatus(sequence=6))
    many = replace(before, status=replace(before.status, editions=(BundleEdition(),) * 9))

    assert [str(one) for one in StatusRules().validate_update(after, before)] == [
        "status.sequence: Invalid value: 6: must not decrease"
    ]
    assert "Too many" in next(str(one) for one in StatusRules().validate_update(many, before))
