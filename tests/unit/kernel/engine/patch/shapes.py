"""Small kinds and strategies for the patch tests: each relationship that a field can have."""

from typing import Annotated, Any

import msgspec
from hypothesis import strategies as st

from orchid.kernel.engine.patch import managed_fields, server_side_apply
from orchid.kernel.wire.meta import Object
from orchid.kernel.wire.schema import schema_of
from orchid.kernel.wire.struct import Wire, always, merge_key, shaped_like

NOW = "2026-01-02T03:04:05Z"
LATER = "2026-01-02T03:04:06Z"
ANNOTATION = "orchctl.orch.io/last-applied-configuration"


class Reference(Wire):
    atomic = True

    name: str = ""
    field_path: str = ""


class Account(Object):
    secrets: Annotated[tuple[Reference, ...], merge_key("name")] = ()
    image_pull_secrets: tuple[Reference, ...] = ()
    automount_service_account_token: bool | None = None


class Condition(Wire):
    type: str = always(str)
    status: str = always(str)
    reason: str = ""


class RequestStatus(Wire):
    conditions: Annotated[tuple[Condition, ...], merge_key("type")] = ()
    certificate: str = ""


class RequestSpec(Wire):
    signer_name: str = always(str)
    usages: tuple[str, ...] = ()
    extra: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    expiration_seconds: int | None = None


class Request(Object):
    spec: RequestSpec = always(RequestSpec)
    status: RequestStatus = always(RequestStatus)


class MachineSpec(Wire):
    node_name: str = ""


class Machine(Object):
    """Keeps any field in its spec."""

    spec: Annotated[dict[str, Any], shaped_like(MachineSpec)] = msgspec.field(default_factory=dict)


ACCOUNT = schema_of(Account)
REQUEST = schema_of(Request)
MACHINE = schema_of(Machine)


def account(**fields: Any) -> dict[str, Any]:
    """An account as JSON; keywords of metadata go there."""
    metadata = {"name": "app", "namespace": "ns"}
    for name in ("labels", "annotations", "finalizers", "managedFields", "ownerReferences"):
        if name in fields:
            metadata[name] = fields.pop(name)
    return {"apiVersion": "v1", "kind": "Account", "metadata": metadata, **fields}


def request(**fields: Any) -> dict[str, Any]:
    metadata = {"name": "r", "uid": "u"}
    if "labels" in fields:
        metadata["labels"] = fields.pop("labels")
    whole = {"apiVersion": "certs/v1", "kind": "Request", "metadata": metadata}
    return whole | {"spec": {"signerName": "x/y"}, "status": {}} | fields


def updated(
    live: dict[str, Any] | None,
    new: dict[str, Any],
    *,
    manager: str = "curl",
    now: str = NOW,
    subresource: str = "",
    reset: tuple[str, ...] = (),
) -> dict[str, Any]:
    """The object as an update would store it."""
    entries = managed_fields.after_update(
        live,
        new,
        schema=REQUEST if new["kind"] == "Request" else ACCOUNT,
        manager=manager,
        api_version=new["apiVersion"],
        served=frozenset({new["apiVersion"]}),
        subresource=subresource,
        reset=reset,
        now=now,
        main_resource=not subresource,
    )
    metadata = {name: value for name, value in new["metadata"].items() if name != "managedFields"}
    if entries:
        metadata["managedFields"] = entries
    return new | {"metadata": metadata}


def applied(
    live: dict[str, Any] | None,
    config: dict[str, Any],
    *,
    manager: str = "m1",
    force: bool = False,
    now: str = NOW,
    subresource: str = "",
    reset: tuple[str, ...] = (),
) -> dict[str, Any]:
    """The object as apply would store it."""
    kind = config.get("kind")
    return server_side_apply.apply(
        live,
        config,
        schema=REQUEST if kind == "Request" else ACCOUNT,
        manager=manager,
        force=force,
        api_version="certs/v1" if kind == "Request" else "v1",
        served=frozenset({"certs/v1" if kind == "Request" else "v1"}),
        kind="Request" if kind == "Request" else "Account",
        subresource=subresource,
        reset=reset,
        now=now,
        last_applied_annotation=ANNOTATION,
        last_applied_manager="orchctl",
    )


def owned(value: dict[str, Any]) -> dict[tuple[str, str], Any]:
    """fieldsV1 by manager and operation."""
    return {
        (entry["manager"], entry["operation"]): entry["fieldsV1"]
        for entry in value["metadata"].get("managedFields", [])
    }


names = st.sampled_from("abcd")
maps = st.dictionaries(names, st.sampled_from("123"), max_size=3)
keyed = st.lists(
    st.builds(
        lambda name, path: {"name": name, "fieldPath": path} if path else {"name": name},
        names,
        st.sampled_from(["", "x", "y"]),
    ),
    unique_by=lambda item: item["name"],
    max_size=3,
)


@st.composite
def accounts(draw: st.DrawFn) -> dict[str, Any]:
    """Accounts as they are stored: nothing empty is written."""
    fields = {
        "labels": draw(maps),
        "annotations": draw(maps),
        "finalizers": draw(st.lists(names, unique=True, max_size=3)),
        "secrets": draw(keyed),
        "imagePullSecrets": draw(keyed),
        "automountServiceAccountToken": draw(st.sampled_from([None, True, False])),
    }
    return account(**{name: value for name, value in fields.items() if value not in (None, {}, [])})


conditions = st.lists(
    st.fixed_dictionaries(
        {"type": st.sampled_from("ABC"), "status": st.sampled_from(["True", "False"])},
        optional={"reason": st.sampled_from("xy")},
    ),
    unique_by=lambda item: item["type"],
    max_size=3,
)


@st.composite
def requests(draw: st.DrawFn) -> dict[str, Any]:
    """Requests with a list that is owned field by field."""
    extra = draw(st.dictionaries(names, st.lists(names, max_size=2), max_size=2))
    status = {"conditions": draw(conditions), "certificate": draw(st.sampled_from(["", "c"]))}
    return request(
        spec={"signerName": draw(names)} | ({"extra": extra} if extra else {}),
        status={name: value for name, value in status.items() if value},
    )


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.sampled_from(["", "x", "~/"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("ab/~"), inner, max_size=3)
    ),
    max_leaves=8,
)
documents = st.dictionaries(st.sampled_from("ab/~"), json_values, max_size=4)
