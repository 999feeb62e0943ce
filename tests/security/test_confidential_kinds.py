"""Confidential values stay out of every error and every audit line.

The mark stands beside a field (`confidential()`), so a new kind is covered by declaring it. Stored
contents are looked for in the refusals of wrong requests, which the audit log repeats, and in the
audit log, whose policy here asks for everything.
"""

import base64
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated, Any

import pytest

from orchid.kernel.engine.catalog import Catalog
from orchid.kernel.engine.kind import Endpoint, Kind, Scope
from orchid.kernel.engine.request import Target
from orchid.kernel.wire.meta import Object
from orchid.kernel.wire.schema import confidential_paths, schema_of
from orchid.kernel.wire.struct import Wire, confidential
from tests.api.world import Api, api

KEPT = "canary kept 5f0c1d9e"
SENT = "canary-sent-77b1aa"
POLICY = """
apiVersion: audit.orch.io/v1
kind: Policy
rules: [{level: RequestResponse}]
"""
DEFAULT = "/api/v1/namespaces/default"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"
APPLY = "application/apply-patch+yaml"
YAML = "application/yaml"
PROTOBUF = "application/vnd.kubernetes.protobuf"

STORED = {
    "secrets": {"metadata": {"name": "kept"}, "stringData": {"k": KEPT}},
    "configmaps": {"metadata": {"name": "kept"}, "data": {"k": KEPT}},
}
WRONG_MERGES: list[Any] = [
    {"type": 5, "immutable": "x"},
    {"data": 5},
    {"data": {"k": 5}},
    {"data": {"other": {"a": 1}}},
    {"metadata": {"name": 5}},
    {"metadata": {"labels": [1]}},
    {"metadata": {"creationTimestamp": "x"}},
    {"kind": "Pod"},
    {"apiVersion": "v2"},
    {"apiVersion": None},
    {"invented": 1},
    [1],
]
CARRIED_TO = [
    "/kind",
    "/apiVersion",
    "/immutable",
    "/metadata/name",
    "/metadata/namespace",
    "/metadata/uid",
    "/metadata/resourceVersion",
    "/metadata/creationTimestamp",
    "/metadata/labels",
    "/metadata/labels/a",
    "/metadata/finalizers/0",
    "/metadata/ownerReferences/0",
    "",
]
HOLDERS = [
    {"op": "add", "path": "/metadata/labels", "value": {"b": "c"}},
    {"op": "add", "path": "/metadata/finalizers", "value": ["a.example/b"]},
    {"op": "add", "path": "/metadata/ownerReferences", "value": [{}]},
]
CARRYING = [
    [*HOLDERS, {"op": op, "from": "/data/k", "path": path}]
    for path in CARRIED_TO
    for op in ("copy", "move")
]
WRONG_TEXTS = [
    f"data: {{k: !{SENT} x}}",
    f"data: {{k: *{SENT}}}",
    f"data:\n  k: |\n    {SENT}\n :\t:",
    f"{SENT}: [",
    f'{{"data":"{SENT}',
    f'{{"apiVersion":"a/b/{SENT}"',
]


@pytest.fixture
async def audited(server_files: Path, tmp_path: Path) -> AsyncIterator[tuple[Api, Path]]:
    """A server that records all it may, with one stored object of each confidential kind."""
    policy, record = tmp_path / "policy.yaml", tmp_path / "audit.log"
    policy.write_text(POLICY)
    async with api(
        server_files, audit_policy_file=str(policy), audit_log_path=str(record)
    ) as server:
        for plural, body in STORED.items():
            await server.make(f"{DEFAULT}/{plural}", body)
        yield server, record


def forms_of(text: str) -> list[str]:
    """A text as in a body, and its beginning and middle, which truncation would leave."""
    encoded = base64.b64encode(text.encode()).decode()
    return [text[:12], text[-12:], encoded[:12], encoded[4:16]]


def assert_not_revealed(text: str) -> None:
    for canary in (*forms_of(KEPT), *forms_of(SENT)):
        assert canary not in text


async def refusals(server: Api, plural: str) -> AsyncIterator[Any]:
    """The answers to every wrong write we know, of all that refuse it."""
    one = f"{DEFAULT}/{plural}/kept"
    tries: list[tuple[str, str, Any]] = [
        *((media, "PATCH", patch) for patch in WRONG_MERGES for media in (MERGE, STRATEGIC, APPLY)),
        *((JSON_PATCH, "PATCH", patch) for patch in CARRYING),
        (JSON_PATCH, "PATCH", [{"op": "replace", "path": "", "value": [SENT]}]),
        (JSON_PATCH, "PATCH", [{"op": "add", "path": "/invented", "value": SENT}]),
        (JSON_PATCH, "PATCH", [{"op": "test", "path": "/data/k", "value": SENT}]),
        *((YAML, "PUT", text.encode()) for text in WRONG_TEXTS),
        *((APPLY, "PATCH", text.encode()) for text in WRONG_TEXTS),
        *((MERGE, "PATCH", text.encode()) for text in WRONG_TEXTS),
        ("application/json", "PUT", f'{{"data":"{SENT}'.encode()),
        (PROTOBUF, "PUT", b"k8s\0" + SENT.encode()),
        (PROTOBUF, "PUT", SENT.encode()),
    ]
    for media, method, body in tries:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        for mode in ("Strict", "Ignore", "Warn"):
            target = f"{one}?fieldValidation={mode}&fieldManager=m&dryRun=All"
            answer = await server.call(method, target, data, headers={"content-type": media})
            if answer.status >= 400:
                yield answer


@pytest.mark.parametrize("plural", STORED)
async def test_no_refusal_quotes_a_confidential_kind(
    audited: tuple[Api, Path], plural: str
) -> None:
    """Errors about patches of all four types and bodies of all three forms quote no content."""
    server, _ = audited

    answers = [answer async for answer in refusals(server, plural)]

    assert len(answers) > 150
    for answer in answers:
        assert 400 <= answer.status < 500
        assert answer.json["message"]
        assert_not_revealed(answer.text)


@pytest.mark.parametrize("plural", STORED)
async def test_no_audit_line_quotes_a_confidential_kind(
    audited: tuple[Api, Path], plural: str
) -> None:
    """The policy asks for requests and responses; of these kinds it gets the metadata."""
    server, record = audited
    one = f"{DEFAULT}/{plural}/kept"
    for target in (one, f"{DEFAULT}/{plural}", f"/api/v1/{plural}", f"/api/v1/watch/{plural}"):
        assert (await server.call("GET", target)).status == 200
    invented = f"{DEFAULT}/{plural}z/kept"
    patch = json.dumps({"data": {"k": SENT}}).encode()
    headers = {"content-type": MERGE}

    assert (await server.call("PATCH", one, patch, headers=headers)).status in (200, 422, 400)
    assert (await server.call("PATCH", invented, patch, headers=headers)).status == 404
    async for _ in refusals(server, plural):
        pass
    server.server.audit._log.close()  # write what waits

    lines = record.read_text()
    assert lines.count(f'"resource":"{plural}"') > 150
    assert_not_revealed(lines)


async def test_tokens_in_requests_and_reviews_are_not_recorded(
    audited: tuple[Api, Path],
) -> None:
    """Tokens stay out of the audit log, in requests and in responses."""
    server, record = audited
    await server.account("robot")
    token = await server.token("robot")
    reviews = "/apis/authentication.orch.io/v1/tokenreviews"

    await server.make(reviews, {"spec": {"token": token}})
    await server.make(reviews, {"spec": {"token": SENT}})
    wrong = await server.call("POST", reviews, f'{{"spec":{{"token":"{SENT}'.encode())
    server.server.audit._log.close()  # write what waits

    lines = record.read_text()
    assert wrong.status == 400
    assert '"resource":"tokenreviews"' in lines
    assert token.rpartition(".")[2] not in lines
    assert_not_revealed(lines + wrong.text)


class Inner(Wire):
    pin: Annotated[str, confidential()] = ""


class Vault(Object):
    doors: tuple[Inner, ...] = ()


class Shed(Object):
    door: str = ""


def test_a_new_kind_is_covered_by_its_mark_alone() -> None:
    """Audit asks the catalog, which asks the fields; the undeclared counts as confidential."""
    opened = Endpoint("open")
    kinds = [
        Kind(Vault, "x", "v1", "vaults", Scope.CLUSTER, endpoints=(opened,)),
        Kind(Shed, "x", "v1", "sheds", Scope.CLUSTER, endpoints=(opened,)),
    ]

    catalog = Catalog(kinds)

    def judged(resource: str, subresource: str = "") -> bool:
        target = Target("get", "/", True, "x", "v1", resource, subresource)
        return catalog.is_confidential(target)

    assert [judged("vaults"), judged("vaults", "open")] == [True, True]
    assert [judged("sheds"), judged("sheds", "open")] == [False, False]
    assert [judged("sheds", "invented"), judged("huts")] == [True, True]
    assert not catalog.is_confidential(Target("get", "/healthz"))
    assert list(confidential_paths(schema_of(Vault))) == ["doors.pin"]
    assert "1234" not in repr(Vault(doors=(Inner(pin="1234"),)))
