"""Create, update and delete: what the server decides, what conflicts, what nothing changes."""

import asyncio
import json
from datetime import timedelta
from typing import Any

import pytest

from orchid.kernel.engine.cache.objects import LARGEST_OBJECT
from orchid.kernel.engine.verbs.create import NAME_ATTEMPTS
from orchid.kernel.engine.verbs.delete import DeleteOptions, Preconditions, adjusted_finalizers
from orchid.kernel.wire.errors import (
    AlreadyExists,
    BadRequest,
    Conflict,
    Invalid,
    NotFound,
    NoUniqueName,
    StillTerminating,
    TooLarge,
)
from tests.unit.kernel.engine.world import Engine, names


def meta_of(entry: Any) -> Any:
    return entry.object.metadata


class TestCreate:
    """From what a client sent to what is stored."""

    async def test_the_server_decides_identity_and_birth(self, world: Engine) -> None:
        """uid, times and selfLink of the body count for nothing."""
        entry = await world.make(
            "a",
            uid="mine",
            selfLink="/x",
            creationTimestamp="2001-01-01T00:00:00Z",
            deletionTimestamp="2001-01-01T00:00:00Z",
            deletionGracePeriodSeconds=5,
        )
        meta = meta_of(entry)

        assert meta.uid.startswith("00000000-0000-4000-8000-")
        assert meta.creation_timestamp == world.clock.now()
        assert (meta.self_link, meta.deletion_timestamp) == ("", None)
        assert meta.deletion_grace_period_seconds is None
        assert meta.resource_version == str(entry.revision)

    async def test_generated_names_are_tried_again(self, world: Engine) -> None:
        """A taken suffix is replaced by another, up to eight times."""
        await world.make("job-taken")
        world.random.suffixes = ["taken"] * (NAME_ATTEMPTS - 1) + ["free5"]
        entry = await world.create({"metadata": {"generateName": "job-"}})
        world.random.suffixes = ["taken"] * NAME_ATTEMPTS
        with pytest.raises(NoUniqueName) as refused:
            await world.create({"metadata": {"generateName": "job-"}})

        assert meta_of(entry).name == "job-free5"
        assert meta_of(entry).generate_name == "job-"
        status = refused.value.status()
        assert (status.code, status.reason) == (409, "AlreadyExists")
        assert status.details.retry_after_seconds == 1

    async def test_a_long_base_is_cut(self, world: Engine) -> None:
        """58 characters of generateName and five more make at most 63."""
        entry = await world.create({"metadata": {"generateName": "x" * 80}})

        assert len(meta_of(entry).name) == 63

    async def test_a_name_is_taken_once(self, world: Engine) -> None:
        """Of many concurrent creates of one name, one succeeds; the others get AlreadyExists."""
        results = await asyncio.gather(
            *(world.make("a") for _ in range(10)), return_exceptions=True
        )

        assert sum(not isinstance(result, Exception) for result in results) == 1
        assert sum(isinstance(result, AlreadyExists) for result in results) == 9

    async def test_a_name_in_deletion_is_still_taken(self, world: Engine) -> None:
        """While finalizers hold the old object, creating a new one is refused with that reason."""
        await world.make("a", finalizers=["x/y"])
        await world.delete("a")

        with pytest.raises(StillTerminating, match="object is being deleted"):
            await world.make("a")

    async def test_the_namespace_is_that_of_the_url(self, world: Engine) -> None:
        """A body may leave it out, but not contradict; on a cluster kind it is ignored."""
        with pytest.raises(BadRequest, match="does not match the namespace sent on the request"):
            await world.make("a", namespace="other")

        assert meta_of(await world.make("a")).namespace == "ns"

    async def test_all_that_is_wrong_is_said_at_once(self, world: Engine) -> None:
        """Errors of name, labels and finalizers are reported together, each with its path."""
        with pytest.raises(Invalid) as refused:
            await world.make("A", labels={"-": "x"}, finalizers=["abc"])
        fields = [cause.field for cause in refused.value.status().details.causes]

        assert fields == [
            "metadata.name",
            "metadata.labels",
            "metadata.finalizers[0]",
        ]

    async def test_a_dry_run_does_everything_but_store(self, world: Engine) -> None:
        """It answers an object with a uid and without a version, and refuses what is taken."""
        entry = await world.create({"metadata": {"name": "a"}}, dry_run=True)
        assert (meta_of(entry).uid != "", meta_of(entry).resource_version) == (True, "")
        assert names(await world.list()) == []
        await world.make("a")
        with pytest.raises(AlreadyExists):
            await world.create({"metadata": {"name": "a"}}, dry_run=True)

    async def test_an_object_has_a_largest_size(self, world: Engine) -> None:
        """An object that the store could not hold is refused as too large."""
        with pytest.raises(TooLarge):
            await world.create(
                {"metadata": {"name": "a", "annotations": {}}, "x": 1,
                 "secrets": [{"name": "s" * LARGEST_OBJECT}]},
                world.accounts,
            )  # fmt: skip


class TestUpdate:
    """From the stored object to the next one."""

    async def test_what_a_client_cannot_change_is_carried_over(self, world: Engine) -> None:
        """Birth and generation stay, whatever the body says; generateName may change."""
        old = meta_of(await world.make("a", generation=5, generateName="x"))
        world.clock.advance(60)
        new = meta_of(
            await world.put(
                "a",
                {
                    "metadata": {
                        "name": "a",
                        "generation": 9,
                        "generateName": "y",
                        "creationTimestamp": "2001-01-01T00:00:00Z",
                    }
                },
            )
        )

        assert (new.uid, new.creation_timestamp) == (old.uid, old.creation_timestamp)
        assert (new.generation, new.generate_name) == (5, "y")

    async def test_a_stale_version_is_a_conflict(self, world: Engine) -> None:
        """Of two updates of the same version, the second gets a conflict."""
        made = await world.make("a")
        body = {"metadata": {"name": "a", "resourceVersion": str(made.revision)}}
        await world.put("a", {**body, "data": {"x": "1"}})
        with pytest.raises(Conflict, match="the object has been modified"):
            await world.put("a", {**body, "data": {"x": "2"}})

        assert (await world.get("a")).object.data == {"x": "1"}

    async def test_another_uid_is_another_object(self, world: Engine) -> None:
        """It is looked at before the version."""
        await world.make("a")
        body = {"metadata": {"name": "a", "uid": "other", "resourceVersion": "1"}}

        with pytest.raises(Conflict, match="UID in precondition: other"):
            await world.put("a", body)

    async def test_unconditional_updates_race_without_loss(self, world: Engine) -> None:
        """Last write wins: all succeed, each takes a revision, and one of them is there."""
        await world.make("a")
        entries = await asyncio.gather(
            *(world.put("a", {"metadata": {"name": "a"}, "data": {"x": str(i)}}) for i in range(8))
        )
        newest = max(entries, key=lambda entry: entry.revision)

        assert len({entry.revision for entry in entries}) == 8
        assert (await world.get("a")).object.data == newest.object.data

    async def test_patches_race_without_loss(self, world: Engine) -> None:
        """Each patch is applied to the newest object: none undoes another."""
        await world.make("a")
        await asyncio.gather(*(world.merge("a", {"data": {f"k{i}": "v"}}) for i in range(10)))

        assert len((await world.get("a")).object.data) == 10

    async def test_the_name_is_that_of_the_url(self, world: Engine) -> None:
        """A body without a name, or with another, is refused."""
        await world.make("a")
        with pytest.raises(BadRequest, match=r"\(a based on URL\) was undeterminable"):
            await world.put("a", {"metadata": {}})
        with pytest.raises(BadRequest, match=r"\(b\) does not match the name on the URL \(a\)"):
            await world.put("a", {"metadata": {"name": "b"}})
        with pytest.raises(NotFound):
            await world.put("b", {"metadata": {"name": "b"}})

    async def test_nothing_new_writes_nothing(self, world: Engine) -> None:
        """The same content, also with a later time for its owner, keeps its version."""
        made = await world.make("a", labels={"x": "1"})
        body = json.loads(made.data)
        world.clock.advance(3600)
        body["metadata"]["managedFields"][0]["time"] = "2026-01-02T04:04:05Z"
        same = await world.put("a", body)

        assert (same.revision, same.data) == (made.revision, made.data)

    async def test_a_dry_run_shows_the_result_at_the_current_version(self, world: Engine) -> None:
        """Nothing is stored, and the version stays."""
        made = await world.make("a")
        shown = await world.merge("a", {"data": {"x": "1"}}, dry_run=True)

        assert shown.object.data == {"x": "1"}
        assert meta_of(shown).resource_version == str(made.revision)
        assert (await world.get("a")).revision == made.revision

    async def test_a_deletion_mark_cannot_be_set_or_taken_away(self, world: Engine) -> None:
        """Only a delete marks; an update that leaves the mark out does not unmark."""
        await world.make("a", finalizers=["x/y"])
        with pytest.raises(Invalid, match="deletionTimestamp"):
            await world.merge("a", {"metadata": {"deletionTimestamp": "2030-01-01T00:00:00Z"}})
        marked = await world.delete("a")
        kept = await world.put("a", {"metadata": {"name": "a", "finalizers": ["x/y"]}})

        assert meta_of(kept).deletion_timestamp == meta_of(marked.entry).deletion_timestamp

    async def test_a_deletion_mark_stays_whatever_is_sent(self, world: Engine) -> None:
        """Another time is not refused, but has no effect."""
        await world.make("a", finalizers=["x/y"])
        marked = await world.delete("a")
        sent = {"metadata": {"deletionTimestamp": "2001-01-01T00:00:00Z"}}

        kept = await world.merge("a", sent)

        assert meta_of(kept).deletion_timestamp == meta_of(marked.entry).deletion_timestamp
        assert "f:deletionTimestamp" in str(meta_of(kept).managed_fields)

    async def test_no_finalizer_joins_an_object_that_goes(self, world: Engine) -> None:
        """While it is being deleted, finalizers only leave."""
        await world.make("a", finalizers=["x/y"])
        await world.delete("a")

        with pytest.raises(Invalid, match="no new finalizers can be added"):
            await world.merge("a", {"metadata": {"finalizers": ["x/y", "z/z"]}})

    async def test_duplicate_owners_are_merged_with_a_warning(self, world: Engine) -> None:
        """Two equal references become one, with a warning."""
        owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u1"}
        request = world.ask("create", world.config_maps)
        from orchid.kernel.engine.verbs.request_body import decode_object

        body = json.dumps({"metadata": {"name": "a", "ownerReferences": [owner, owner]}}).encode()
        new = decode_object(world.catalog, world.config_maps, body, request)
        entry = await world.verbs.creating.create(world.config_maps, new, request)

        assert len(meta_of(entry).owner_references) == 1
        assert "duplicate UID(s) observed: u1" in request.warnings[0]


class TestDelete:
    """Gone, or marked until the last finalizer leaves."""

    async def test_without_finalizers_it_goes(self, world: Engine) -> None:
        """The answer is the object, at the revision of its deletion."""
        made = await world.make("a")
        deleted = await world.delete("a")

        assert deleted.gone
        assert deleted.entry.revision > made.revision
        assert meta_of(deleted.entry).resource_version == str(deleted.entry.revision)
        with pytest.raises(NotFound):
            await world.get("a")
        with pytest.raises(NotFound):
            await world.delete("a")

    async def test_finalizers_hold_it(self, world: Engine) -> None:
        """It is marked once; the last finalizer to leave takes it along."""
        await world.make("a", finalizers=["x/y", "z/z"], generation=3)
        marked = await world.delete("a")
        world.clock.advance(60)
        again = await world.delete("a")
        await world.merge("a", {"metadata": {"finalizers": ["x/y"]}})
        before = await world.get("a")
        last = await world.merge("a", {"metadata": {"finalizers": []}})

        assert not marked.gone
        assert meta_of(marked.entry).deletion_grace_period_seconds == 0
        assert meta_of(marked.entry).generation == 4
        assert again.entry.revision == marked.entry.revision
        assert meta_of(last).resource_version == str(before.revision)
        assert meta_of(last).finalizers == ()
        with pytest.raises(NotFound):
            await world.get("a")

    @pytest.mark.parametrize(
        ("before", "options", "left"),
        [
            ((), {"propagation_policy": "Orphan"}, ("orphan",)),
            ((), {"orphan_dependents": True}, ("orphan",)),
            ((), {"propagation_policy": "Foreground"}, ("foregroundDeletion",)),
            (("orphan",), {}, ("orphan",)),
            (("orphan",), {"propagation_policy": "Foreground"}, ("foregroundDeletion",)),
            (("x/y", "orphan"), {"propagation_policy": "Background"}, ("x/y",)),
            (("x/y", "foregroundDeletion"), {"orphan_dependents": False}, ("x/y",)),
        ],
    )
    async def test_policies_are_finalizers(
        self, world: Engine, before: tuple[str, ...], options: dict[str, Any], left: Any
    ) -> None:
        """The propagation policy sets one of two finalizers, or takes both away."""
        await world.make("a", finalizers=list(before))
        deleted = await world.delete("a", **options)

        assert not deleted.gone
        assert meta_of(deleted.entry).finalizers == left

    async def test_a_later_policy_can_finish(self, world: Engine) -> None:
        """Background drops the collector's finalizer, and with it the object."""
        await world.make("a")
        await world.delete("a", propagation_policy="Foreground")
        deleted = await world.delete("a", propagation_policy="Background")

        assert deleted.gone
        assert meta_of(deleted.entry).finalizers == ("foregroundDeletion",)

    @pytest.mark.parametrize(
        ("wanted", "message"),
        [
            (Preconditions(uid="other"), "the UID in the precondition (other) does not match"),
            (Preconditions(resource_version="1"), "the ResourceVersion in the precondition (1)"),
        ],
    )
    async def test_preconditions(self, world: Engine, wanted: Preconditions, message: str) -> None:
        """A delete with a precondition does not delete another version or uid."""
        await world.make("a")
        with pytest.raises(Conflict) as refused:
            await world.delete("a", preconditions=wanted)

        assert message in str(refused.value)
        assert refused.value.status().details.kind == "ConfigMap"
        assert names(await world.list()) == ["a"]

    async def test_preconditions_that_hold(self, world: Engine) -> None:
        """The right version and uid delete."""
        made = await world.make("a")
        wanted = Preconditions(uid=meta_of(made).uid, resource_version=str(made.revision))

        assert (await world.delete("a", preconditions=wanted)).gone

    async def test_a_dry_run_deletes_nothing(self, world: Engine) -> None:
        """Neither an object without nor one with finalizers is changed."""
        await world.make("a")
        await world.make("b", finalizers=["x/y"])

        assert (await world.delete("a", dry_run=True)).gone
        assert not (await world.delete("b", dry_run=True)).gone
        assert meta_of(await world.get("b")).deletion_timestamp is None
        assert names(await world.list()) == ["a", "b"]

    async def test_many_delete_one(self, world: Engine) -> None:
        """One of them deletes it, the others find nothing."""
        await world.make("a")
        results = await asyncio.gather(
            *(world.delete("a") for _ in range(5)), return_exceptions=True
        )

        assert sum(isinstance(result, NotFound) for result in results) == 4

    async def test_a_mark_in_the_future_is_brought_forward(self, world: Engine) -> None:
        """A deletion time that has not come is set to now."""
        await world.make("a", finalizers=["x/y"])
        world.clock.advance(3600)
        await world.delete("a")
        world.clock.advance(-1800)
        again = await world.delete("a")

        assert meta_of(again.entry).deletion_timestamp == world.clock.now()
        assert world.clock.now() + timedelta(0) == world.clock.now()


@pytest.mark.parametrize(
    ("there", "policy", "left"),
    [
        (("foregroundDeletion", "a/b"), "Foreground", ("foregroundDeletion", "a/b")),
        (("orphan", "a/b"), "Foreground", ("a/b", "foregroundDeletion")),
        (("orphan", "a/b"), "Background", ("a/b",)),
        (("a/b",), "Orphan", ("a/b", "orphan")),
    ],
)
def test_a_policy_that_is_set_already_moves_nothing(
    there: tuple[str, ...], policy: str, left: tuple[str, ...]
) -> None:
    """Finalizers keep their places; only what the policy adds goes to the end."""
    assert adjusted_finalizers(there, DeleteOptions(propagation_policy=policy)) == left
