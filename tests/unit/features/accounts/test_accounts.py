"""Default accounts, token Secrets, the root CA and bootstrap tokens, against a real server."""

from datetime import timedelta

import pytest

from orchid.features.accounts.controllers.clean_token_secrets import CleanTokenSecrets
from orchid.features.accounts.kinds.service_account import ServiceAccount
from orchid.features.accounts.secret_token_uses import SecretTokenUses
from orchid.features.objects.kinds.config_map import ConfigMap
from orchid.features.objects.kinds.namespace import Namespace
from orchid.features.objects.kinds.pod.pod import Pod
from orchid.features.objects.kinds.secret import Secret
from orchid.features.sign_in.controllers.clean_bootstrap_tokens import (
    CleanBootstrapTokens,
    seconds_left,
)
from orchid.kernel.client.client import ListSelection
from orchid.kernel.wire.errors import Forbidden
from orchid.kernel.wire.meta import ObjectMeta
from orchid.kernel.wire.naming import ORCH
from orchid.kernel.wire.references import ObjectReference
from orchid.kernel.wire.struct import replace
from orchid.kernel.wire.user import UserInfo
from tests.api.world import Api
from tests.unit.features.beside import Beside

TOKEN_TYPE = ORCH.token_secret_type


async def token_secret(world: Beside, name: str, account: str, place: str = "default") -> Secret:
    marks = {ORCH.account_name_annotation: account}
    meta = ObjectMeta(name=name, namespace=place, annotations=marks)
    return await world.admin.create(Secret(metadata=meta, type=TOKEN_TYPE))


# --- default accounts -------------------------------------------------------------------------


async def test_every_namespace_gets_a_default_account_and_gets_it_again(world: Beside) -> None:
    """In old and new namespaces, and again after a deletion, with another uid."""
    await world.namespace("before")
    async with world.running("serviceaccount"):
        await world.until_like(ServiceAccount, "default", "before")
        await world.namespace("after")
        first = await world.until_like(ServiceAccount, "default", "after")

        await world.admin.delete(ServiceAccount, "default", "after")
        second = await world.until_like(ServiceAccount, "default", "after")

    assert second.metadata.uid != first.metadata.uid


async def test_namespace_on_its_way_out_gets_no_account(world: Beside) -> None:
    """Nothing new comes into a namespace that is being deleted."""
    await world.namespace("leaving")
    await world.admin.delete(Namespace, "leaving")
    async with world.running("serviceaccount"):
        await world.namespace("staying")
        await world.until_like(ServiceAccount, "default", "staying")

    assert await world.admin.find(ServiceAccount, "default", "leaving") is None


# --- token secrets ----------------------------------------------------------------------------


async def test_token_secret_is_filled_and_its_token_is_the_accounts(world: Beside) -> None:
    """Token, namespace and CA are written, the uid is noted, and the token authenticates."""
    account = await world.account("app")
    async with world.running("serviceaccount-token"):
        await token_secret(world, "t", "app")
        filled = await world.until_like(
            Secret, "t", "default", condition=lambda secret: "token" in secret.data
        )

    review = await Api(world.server).make(
        f"/apis/{ORCH.authentication}/v1/tokenreviews",
        {"spec": {"token": filled.data["token"].decode()}},
    )
    assert review["status"]["user"]["username"] == "system:serviceaccount:default:app"
    assert review["status"]["user"]["uid"] == account.metadata.uid
    assert filled.data["namespace"] == b"default"
    assert filled.data["ca.crt"] == world.server.files.ca_certificate.read_bytes()
    assert filled.metadata.annotations[ORCH.account_uid_annotation] == account.metadata.uid
    (entry,) = [one for one in filled.metadata.managed_fields if "f:data" in (one.fields_v1 or {})]
    assert entry.manager == ORCH.controller_lease


async def test_token_secret_goes_with_its_account(world: Beside) -> None:
    """Deleting the account deletes its token Secrets, and no others."""
    await world.account("app")
    await world.account("other")
    async with world.running("serviceaccount-token"):
        for name, account in (("t", "app"), ("u", "other")):
            await token_secret(world, name, account)
            await world.until_like(
                Secret, name, "default", condition=lambda secret: "token" in secret.data
            )

        await world.admin.delete(ServiceAccount, "app", "default")
        await world.until_gone(Secret, "t", "default")

    assert await world.admin.find(Secret, "u", "default")


async def test_token_secret_without_an_account_is_deleted(world: Beside) -> None:
    """A Secret for nobody would only mislead."""
    async with world.running("serviceaccount-token"):
        await token_secret(world, "t", "nobody")
        await world.until_gone(Secret, "t", "default")


async def test_token_secret_of_a_recreated_account_is_deleted(world: Beside) -> None:
    """The name is the same, the account is not."""
    await world.account("app")
    secret = await token_secret(world, "t", "app")
    marks = {**secret.metadata.annotations, ORCH.account_uid_annotation: "another"}
    await world.admin.update(secret.with_meta(annotations=marks))

    async with world.running("serviceaccount-token"):
        await world.until_gone(Secret, "t", "default")


async def test_deleted_token_secret_is_taken_off_the_accounts_list(world: Beside) -> None:
    """The account does not go on listing what is gone."""
    account = await world.account("app")
    listed = (ObjectReference(name="t"), ObjectReference(name="kept"))
    await world.admin.update(replace(account, secrets=listed))
    async with world.running("serviceaccount-token"):
        await token_secret(world, "t", "app")
        await world.until_like(
            Secret, "t", "default", condition=lambda secret: "token" in secret.data
        )
        await world.admin.delete(Secret, "t", "default")

        left = await world.until_like(
            ServiceAccount, "app", "default", condition=lambda found: len(found.secrets) == 1
        )

    assert left.secrets[0].name == "kept"


# --- the root CA ------------------------------------------------------------------------------


async def test_root_ca_is_in_every_namespace_and_is_put_right(world: Beside) -> None:
    """It is created again after a deletion, and changes to it are reverted."""
    name, authority = ORCH.root_ca_config_map, world.server.files.ca_certificate.read_text()
    async with world.running("root-ca-certificate-publisher"):
        made = await world.until_like(ConfigMap, name, "default")
        await world.admin.update(replace(made, data={"ca.crt": "forged", "more": "x"}))
        put_right = await world.until_like(
            ConfigMap, name, "default", condition=lambda found: found.data["ca.crt"] != "forged"
        )
        await world.admin.delete(ConfigMap, name, "default")
        again = await world.until_like(ConfigMap, name, "default")

    assert made.data == put_right.data == again.data == {"ca.crt": authority}
    assert made.metadata.annotations[ORCH.description_annotation].startswith("Contains a CA bundle")


# --- bootstrap tokens -------------------------------------------------------------------------


async def test_bootstrap_token_is_deleted_when_its_time_has_come(world: Beside) -> None:
    """Before that, the controller says how long to wait."""
    expires = (world.clock.now() + timedelta(minutes=5)).isoformat()
    meta = ObjectMeta(name="bootstrap-token-abcdef", namespace=ORCH.system_namespace)
    data = {"token-id": b"abcdef", "expiration": expires.encode()}
    made = await world.admin.create(
        Secret(metadata=meta, type=ORCH.bootstrap_token_type, data=data)
    )
    (controller,) = world.made("tokencleaner")
    assert isinstance(controller, CleanBootstrapTokens)

    left = await controller.reconcile(made)
    world.clock.ahead = timedelta(minutes=6)
    await controller.reconcile(made)

    assert left is not None
    assert 0 < left <= 300
    assert await world.admin.find(Secret, meta.name, meta.namespace) is None


@pytest.mark.parametrize("text", [b"soon", b"2026-01-01", b"2026-01-01T00:00:00", b"\xff"])
def test_unreadable_expiration_counts_as_past(text: bytes) -> None:
    """A token whose end cannot be read has ended."""
    from datetime import UTC, datetime

    assert seconds_left(text, datetime(2025, 1, 1, tzinfo=UTC)) == 0


async def test_bootstrap_cleaner_may_not_touch_secrets_elsewhere(world: Beside) -> None:
    """Its rights end with the system namespace."""
    client = world.server.clients("tokencleaner")

    with pytest.raises(Forbidden):
        await client.page(ListSelection(Secret, "default"))


# --- unused token secrets ---------------------------------------------------------------------


async def unused(world: Beside) -> CleanTokenSecrets:
    """An account that lists a token Secret, uses being tracked from now on, and the cleaner."""
    account = await world.account("app")
    await token_secret(world, "t", "app")
    await world.admin.update(replace(account, secrets=(ObjectReference(name="t"),)))
    labelling = SecretTokenUses(world.admin, world.clock, ORCH)
    await labelling.ensure_tracking()
    (controller,) = world.made("legacy-serviceaccount-token-cleaner")
    assert isinstance(controller, CleanTokenSecrets)
    return controller


async def test_unused_token_secret_is_marked_after_a_year_and_deleted_after_another(
    world: Beside,
) -> None:
    """First invalid, so that its owner may object; deleted only a period later."""
    controller = await unused(world)
    world.clock.ahead = timedelta(days=360)
    await controller.sweep()
    untouched = await world.admin.get(Secret, "t", "default")

    world.clock.ahead = timedelta(days=370)
    await controller.sweep()
    marked = await world.admin.get(Secret, "t", "default")
    await controller.sweep()
    still_there = await world.admin.find(Secret, "t", "default")
    world.clock.ahead = timedelta(days=740)
    await controller.sweep()

    assert ORCH.invalid_since_label not in untouched.metadata.labels
    assert marked.metadata.labels[ORCH.invalid_since_label]
    assert still_there
    assert await world.admin.find(Secret, "t", "default") is None


async def test_token_secret_in_use_is_never_marked(world: Beside) -> None:
    """Used lately, or mounted by a Pod: either is reason enough to leave it."""
    controller = await unused(world)
    volume = {"name": "v", "secret": {"secretName": "t"}}
    meta = ObjectMeta(name="p", namespace="default")
    spec = {"serviceAccountName": "app", "volumes": [volume]}
    await world.admin.create(Pod(metadata=meta, spec=spec))
    world.clock.ahead = timedelta(days=400)
    await controller.sweep()
    mounted = await world.admin.get(Secret, "t", "default")
    await world.admin.delete(Pod, "p", "default")
    labelling = SecretTokenUses(world.admin, world.clock, ORCH)
    labelling.used("default", "t", world.clock.now().date())
    await labelling.write_all()
    await controller.sweep()
    used = await world.admin.get(Secret, "t", "default")

    assert ORCH.invalid_since_label not in mounted.metadata.labels
    assert used.metadata.labels == {ORCH.last_used_label: world.clock.now().date().isoformat()}


async def test_token_secret_that_nobody_lists_is_never_marked(world: Beside) -> None:
    """Somebody made it by hand, and on purpose."""
    controller = await unused(world)
    account = await world.admin.get(ServiceAccount, "app", "default")
    await world.admin.update(replace(account, secrets=()))
    world.clock.ahead = timedelta(days=800)

    await controller.sweep()

    assert (await world.admin.get(Secret, "t", "default")).metadata.labels == {}


async def test_use_of_a_secrets_token_is_written_down(world: Beside) -> None:
    """The authenticator reports the use, and the controller sets the label."""
    await world.account("app")
    async with world.running("serviceaccount-token"):
        await token_secret(world, "t", "app")
        filled = await world.until_like(
            Secret, "t", "default", condition=lambda secret: "token" in secret.data
        )
    answer = await Api(world.server).call(
        "POST",
        f"/apis/{ORCH.authentication}/v1/selfsubjectreviews",
        {},
        token=filled.data["token"].decode(),
    )
    assert answer.status == 201

    await world.server.context.port(SecretTokenUses).write_all()

    labels = (await world.admin.get(Secret, "t", "default")).metadata.labels
    assert labels == {ORCH.last_used_label: world.clock.now().date().isoformat()}


async def test_controller_is_an_ordinary_service_account(world: Beside) -> None:
    """It has its own name and no more rights than its role."""
    from orchid.features.sign_in.kinds.self_subject_review import SelfSubjectReview

    client = world.server.clients("csrsigning")
    review = await client.create(SelfSubjectReview())
    user: UserInfo = review.status.user_info

    assert user.username == f"system:serviceaccount:{ORCH.system_namespace}:csrsigning"
    with pytest.raises(Forbidden):
        await client.page(ListSelection(Secret))
