"""ServiceAccount: what is kept of what a client sends, and what it is warned about."""

import datetime

from orchid.features.accounts.kinds.service_account import ServiceAccount, declare
from orchid.kernel.engine.request import Request, Target
from orchid.kernel.wire.codec.documents import encode
from orchid.kernel.wire.meta import ObjectMeta
from orchid.kernel.wire.naming import KUBERNETES, ORCH
from orchid.kernel.wire.references import LocalObjectReference, ObjectReference
from orchid.kernel.wire.user import UserInfo

KIND = declare(ORCH)
NOW = datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)
REQUEST = Request(Target("create"), UserInfo("jane"), NOW)
ANNOTATION = "orch.io/enforce-mountable-secrets"


def annotated(**annotations: str) -> ServiceAccount:
    return ServiceAccount(metadata=ObjectMeta(annotations=annotations))


def test_secret_references_are_cut_to_their_names() -> None:
    """On create and on update; an entry without a name stays, empty."""
    sent = ServiceAccount(
        secrets=(ObjectReference(name="s1", namespace="other", uid="u"), ObjectReference(kind="X")),
        image_pull_secrets=(LocalObjectReference(name="p"), LocalObjectReference()),
    )

    created = KIND.rules.prepare_for_create(sent, REQUEST)
    updated = KIND.rules.prepare_for_update(sent, ServiceAccount(), REQUEST)

    assert created == updated
    assert encode(created) == (
        b'{"metadata":{},"secrets":[{"name":"s1"},{}],"imagePullSecrets":[{"name":"p"},{}]}'
    )


def test_automount_is_left_out_unless_it_was_sent() -> None:
    """False is not the same as absent."""
    assert b"automount" not in encode(ServiceAccount())
    sent = ServiceAccount(automount_service_account_token=False)
    assert b'"automountServiceAccountToken":false' in encode(sent)


def test_nothing_but_metadata_is_validated() -> None:
    """Duplicate and empty references are accepted, as in the reference."""
    twice = ServiceAccount(secrets=(ObjectReference(name="s"), ObjectReference(name="s")))

    assert list(KIND.rules.validate(twice)) == []


def test_old_annotation_is_warned_about_when_it_is_new() -> None:
    """On create with any value, on update only if it was not there before."""
    text = (
        "metadata.annotations[orch.io/enforce-mountable-secrets]: deprecated in v1.32+; "
        "prefer separate namespaces to isolate access to mounted secrets"
    )
    new = annotated(**{ANNOTATION: "no"})

    assert list(KIND.rules.warnings(new, None)) == [text]
    assert list(KIND.rules.warnings(new, annotated())) == [text]
    assert list(KIND.rules.warnings(new, annotated(**{ANNOTATION: "true"}))) == []
    assert list(KIND.rules.warnings(annotated(), None)) == []


def test_declaration_says_what_discovery_and_tables_show() -> None:
    """Short name, columns, the answer to a delete, and the product's names from the naming."""
    assert KIND.short_names == ("sa",)
    assert [column.name for column in KIND.columns] == ["Name", "Age"]
    assert KIND.answers_deleted_object
    assert KIND.endpoints == ()
    stock = annotated(**{"kubernetes.io/enforce-mountable-secrets": "true"})
    assert len(list(declare(KUBERNETES).rules.warnings(stock, None))) == 1
