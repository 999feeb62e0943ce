"""An object that travels beside its bytes is what they say: generated objects of every kind.

Controllers in the server's process send objects that are taken without decoding their bytes
(`EncodedObject`). With a difference one thing would be checked and another one stored.
"""

import datetime
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchid.access.authorizers.union import Union
from orchid.assembly.kinds import stored_kinds
from orchid.engine.cache.objects import stored_form
from orchid.engine.catalog import Catalog
from orchid.engine.kind import Kind
from orchid.engine.request import Options, Request, Target
from orchid.engine.verbs.request_body import decode_object
from orchid.kinds import subject_access_review
from orchid.kinds.service_account import ServiceAccount
from orchid.wire.codec.documents import EncodedObject, encode
from orchid.wire.errors import ApiError
from orchid.wire.meta import ObjectMeta
from orchid.wire.naming import ORCH
from orchid.wire.struct import replace
from orchid.wire.user import UserInfo
from tests.unit.wire.protobuf_samples import objects

CATALOG = Catalog([*stored_kinds(ORCH), *subject_access_review.declare(ORCH, Union())])
KINDS = {f"{kind.api_version} {kind.name}": kind for kind in CATALOG.kinds}
NOW = datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)


def read(kind: Kind[Any], body: bytes, mode: str) -> tuple[Any, list[str]]:
    """The object, or the refusal, that a request with this body comes to; and its warnings."""
    target = Target(verb="create", is_resource=True, resource=kind.plural)
    options = Options(field_validation=mode)
    request = Request(target=target, user=UserInfo(username="a"), now=NOW, options=options)
    try:
        return decode_object(CATALOG, kind, body, request), request.warnings
    except ApiError as refusal:
        return str(refusal), request.warnings


@pytest.mark.parametrize("name", sorted(KINDS))
@settings(max_examples=25, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_the_object_is_what_its_bytes_say(name: str, data: st.DataObject) -> None:
    """Taken as it is or decoded, and so is what is stored of it; in every mode of validation."""
    kind = KINDS[name]
    made = data.draw(objects(kind.type))
    sent = EncodedObject.of(replace(made, kind=kind.name, api_version=kind.api_version))
    mode = data.draw(st.sampled_from(["Strict", "Warn", "Ignore"]))

    taken, decoded = read(kind, sent, mode), read(kind, bytes(sent), mode)

    assert taken == decoded
    if not isinstance(taken[0], str):
        assert stored_form(taken[0]) == stored_form(decoded[0])


@pytest.mark.parametrize("name", sorted(KINDS))
@settings(max_examples=10, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_an_object_of_another_type_is_not_taken_for_its_bytes(
    name: str, data: st.DataObject
) -> None:
    """The bytes count then: what a subclass or another kind says elsewhere is not looked at."""
    kind = KINDS[name]
    made = data.draw(objects(kind.type))
    sent = EncodedObject(encode(replace(made, kind=kind.name, api_version=kind.api_version)))
    sent.decoded = ObjectMeta(name="another")

    assert read(kind, sent, "Strict") == read(kind, bytes(sent), "Strict")


def test_a_large_object_is_decoded_like_any_other() -> None:
    """It comes to the same, off the event loop."""
    kind = CATALOG.of(ServiceAccount)
    meta = ObjectMeta(name="a", annotations={"a": "b" * 200_000})
    sent = EncodedObject.of(
        ServiceAccount(kind=kind.name, api_version=kind.api_version, metadata=meta)
    )

    found, _ = read(kind, sent, "Strict")

    assert found == read(kind, bytes(sent), "Strict")[0]
    assert found is not sent.decoded
