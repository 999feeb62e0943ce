"""managedFields through the verbs: who is written down, and how a client resets the record."""

import asyncio
import json
from collections.abc import Hashable
from typing import Any

import pytest

from orchid.features.accounts.kinds.service_account import ServiceAccount
from orchid.features.certificates.kinds.certificate_signing_request import CertificateSigningRequest
from orchid.kernel.engine.ownership import outline_of
from orchid.kernel.engine.verbs.patching import JSON_PATCH, MERGE_PATCH, STRATEGIC_MERGE_PATCH
from orchid.kernel.engine.verbs.request_body import decode_object
from orchid.kernel.wire.schema import schema_of
from tests.unit.kernel.engine.world import Engine


def owners(entry: Any) -> list[tuple[str, str]]:
    return [(one.manager, one.operation) for one in entry.object.metadata.managed_fields]


async def test_a_put_with_an_empty_list_resets_the_record(world: Engine) -> None:
    """`[]` and `[{}]` both say that nobody owns anything; leaving it out says nothing."""
    for sent in ([], [{}]):
        made = await world.make(f"a{len(sent)}", labels={"x": "1"})
        body = json.loads(made.data)
        del body["metadata"]["managedFields"]
        kept = await world.put(made.meta.name, body)
        body["metadata"]["managedFields"] = sent
        reset = await world.put(made.meta.name, body)

        assert owners(kept) == [("tests", "Update")]
        assert owners(reset) == []
        assert b"managedFields" not in reset.data
        assert reset.object.metadata.labels == {"x": "1"}


async def test_a_put_in_yaml_resets_it_too(world: Engine) -> None:
    """The form of the body makes no difference."""
    await world.make("a", labels={"x": "1"})
    request = world.ask("update", world.config_maps, "a")
    body = b"metadata:\n  name: a\n  labels: {x: '1'}\n  managedFields: []\n"
    new = decode_object(world.catalog, world.config_maps, body, request, yaml=True)
    entry = await world.verbs.updating.replace(world.config_maps, None, new, request)

    assert owners(entry) == []


@pytest.mark.parametrize(
    ("media", "patch"),
    [
        (MERGE_PATCH, {"metadata": {"managedFields": []}}),
        (MERGE_PATCH, {"metadata": {"managedFields": [{}]}}),
        (STRATEGIC_MERGE_PATCH, {"metadata": {"managedFields": []}}),
        (JSON_PATCH, [{"op": "replace", "path": "/metadata/managedFields", "value": []}]),
        (JSON_PATCH, [{"op": "replace", "path": "/metadata/managedFields", "value": [{}]}]),
    ],
)
async def test_a_patch_with_an_empty_list_resets_the_record(
    world: Engine, media: str, patch: Any
) -> None:
    """Each sort of patch can do it."""
    await world.make("a", labels={"x": "1"})
    request = world.ask("patch", world.config_maps, "a")
    entry = await world.verbs.patching.patch(
        world.config_maps, None, media, json.dumps(patch).encode(), request
    )

    assert owners(entry) == []


async def test_a_patch_that_takes_the_list_away_keeps_the_record(world: Engine) -> None:
    """null, as an absent list, is how clients that know nothing of it write."""
    await world.make("a", labels={"x": "1"})
    entry = await world.merge("a", {"metadata": {"managedFields": None}, "data": {"k": "v"}})

    assert owners(entry) == [("tests", "Update")]


async def test_an_untracked_object_stays_untracked(world: Engine) -> None:
    """Updates do not begin to track what nobody tracks."""
    await world.make("a")
    entry = await world.merge("a", {"data": {"k": "v"}})

    assert owners(entry) == []


async def test_two_who_apply_a_new_object_at_once_both_succeed(world: Engine) -> None:
    """One creates it, the other updates it: neither gets AlreadyExists."""

    async def apply(manager: str) -> bool:
        request = world.ask("patch", world.config_maps, "a", field_manager=manager)
        request.manager = manager
        body = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "a"},
            "data": {manager: "1"},
        }

        async def allowed() -> None:
            await asyncio.sleep(0)  # both have found nothing by now

        _, created = await world.verbs.patching.apply(
            world.config_maps, None, json.dumps(body).encode(), request, allowed
        )
        return created

    made = await asyncio.gather(*(apply(f"m{i}") for i in range(4)))
    entry = await world.get("a")

    assert sorted(made) == [False, False, False, True]
    assert entry.object.data == {f"m{i}": "1" for i in range(4)}
    assert sorted(owners(entry)) == [(f"m{i}", "Apply") for i in range(4)]


def test_the_outline_distinguishes_objects_by_their_owned_fields() -> None:
    """Two new objects with one outline own the same fields, whatever their values are."""
    outline = outline_of(schema_of(ServiceAccount))

    one = outline({"metadata": {"labels": {"a": "1"}}, "secrets": [{"name": "x"}]})
    same = outline({"metadata": {"labels": {"a": "2"}}, "secrets": [{"name": "x"}]})
    label = outline({"metadata": {"labels": {"b": "1"}}, "secrets": [{"name": "x"}]})
    element = outline({"metadata": {"labels": {"a": "1"}}, "secrets": [{"name": "y"}]})
    empty = outline({"metadata": {"labels": {"a": ""}}, "secrets": [{"name": "x"}]})

    assert one == same
    assert len({one, label, element, empty}) == 4


def test_outline_does_not_see_what_is_left_out() -> None:
    """Fields that nobody owns may have any value; the fields beside them still count."""
    schema = schema_of(CertificateSigningRequest)
    outline = outline_of(schema, ("spec.username", "status"))

    def of(**spec: str) -> Hashable:
        return outline({"spec": spec, "status": {"certificate": spec.get("signerName")}})

    assert of(username="a") == of(username="")
    assert of(signerName="a") != of(signerName="")
    assert of(username="a") != of(signerName="a")
