"""Bodies that are small to send and large to read: refused in time, and nobody else waits for them.

Every attack runs beside a health probe that is sent again and again; it must be answered while the
attack is worked on. The longest time between two turns of the event loop is printed (`-rA`), not
judged: how busy the machine is decides too much.
"""

import asyncio
import json
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from typing import Any

import pytest

from orchid.features.objects.kinds.pod.parts import MOST_SOURCES
from orchid.features.objects.kinds.pod.pod import MOST_PARTS
from orchid.features.rights.kinds.role import MOST_CONDITIONS as MOST_AGGREGATING
from orchid.kernel.base.scheduling.offload import LARGE_BYTES, THREADS, Offload, body_weight
from orchid.kernel.base.scheduling.seat import SEAT
from orchid.kernel.engine.kind import LARGEST_REVIEW, Kind
from orchid.kernel.wire.codec import bounds, yaml_text
from orchid.kernel.wire.codec.protobuf import sealed
from orchid.kernel.wire.codec.protobuf_scalars import varint
from orchid.kernel.wire.meta import (
    MOST_ANNOTATIONS,
    MOST_FINALIZERS,
    MOST_LABELS,
    MOST_MANAGERS,
    MOST_OWNERS,
)
from orchid.kernel.wire.selectors.requirements import MOST_VALUES
from orchid.kernel.wire.selectors.selection import LONGEST_SELECTOR, MOST_CONDITIONS
from tests.api.world import Answer, Api
from tests.unit.kernel.base.scheduling.test_offload import Caller

DEFAULT = "/api/v1/namespaces/default"
ACCOUNTS, CONFIG_MAPS = f"{DEFAULT}/serviceaccounts", f"{DEFAULT}/configmaps"
CLUSTER_ROLES = "/apis/rbac.authorization.orch.io/v1/clusterroles"
REVIEWS = "/apis/authorization.orch.io/v1/selfsubjectaccessreviews"
JSON, YAML = "application/json", "application/yaml"
PROTOBUF = "application/vnd.kubernetes.protobuf"
APPLY = "application/apply-patch+yaml"
JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"


def field(number: int, content: bytes) -> bytes:
    """One field of a protobuf message."""
    return varint(number << 3 | 2) + varint(len(content)) + content


def message(kind: str, api_version: str, *parts: bytes) -> bytes:
    return sealed(api_version, kind, b"".join(parts))


def owners(count: int) -> bytes:
    """Metadata with so many owner references, in two bytes each."""
    return field(1, field(1, b"a") + field(13, b"") * count)


def selecting(values: int = 1, requirements: int = 1, raw: str = "") -> bytes:
    selector = {"rawSelector": raw} if raw else {"requirements": [one_of(values)] * requirements}
    asked = {"verb": "get", "resource": "pods", "labelSelector": selector}
    return json.dumps({"spec": {"resourceAttributes": asked}}).encode()


def aggregating(selectors: list[dict[str, Any]]) -> bytes:
    rule = {"clusterRoleSelectors": selectors}
    return json.dumps({"metadata": {"name": "a"}, "aggregationRule": rule}).encode()


def one_of(values: int) -> dict[str, Any]:
    return {"key": "a", "operator": "In", "values": [f"v{i}" for i in range(values)]}


def account(**meta: Any) -> bytes:
    return json.dumps({"metadata": {"name": "a", **meta}}).encode()


def config_map(text: str) -> bytes:
    return json.dumps({"metadata": {"name": "a"}, "data": {"a": text}}).encode()


def manager(number: int) -> dict[str, Any]:
    return {
        "manager": f"m{number}", "operation": "Update", "apiVersion": "v1",
        "fieldsType": "FieldsV1", "fieldsV1": {f"f:{number}": {}},
    }  # fmt: skip


def owner(number: int) -> dict[str, str]:
    return {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": str(number)}


def nested(levels: int) -> bytes:
    return b'{"a":' * levels + b"1" + b"}" * levels


def doubled(times: int) -> bytes:
    """A JSON patch that copies a list into itself, again and again."""
    begin = {"op": "add", "path": "/x", "value": [0]}
    again = [{"op": "copy", "from": "/x", "path": "/x/-"}] * times
    return json.dumps([begin, *again]).encode()


def tags(count: int, end: str = "\n") -> bytes:
    lines = (f"%TAG !a{i}! x{end}" for i in range(count))
    return ("".join(lines) + f"---{end}metadata: {{name: a}}{end}").encode()


REFUSED: dict[str, tuple[str, str, Callable[[], bytes], int, str]] = {
    "protobuf, a million owners": (
        REVIEWS, PROTOBUF,
        lambda: message("SelfSubjectAccessReview", "authorization.orch.io/v1", owners(1_000_000)),
        413, f"limit is {LARGEST_REVIEW}",
    ),
    "protobuf, owners in a small review": (
        REVIEWS, PROTOBUF,
        lambda: message("SelfSubjectAccessReview", "authorization.orch.io/v1", owners(60_000)),
        400, f"at most {MOST_OWNERS} items",
    ),
    "protobuf, owners": (
        ACCOUNTS, PROTOBUF, lambda: message("ServiceAccount", "v1", owners(1_000_000)),
        400, f"at most {MOST_OWNERS} items",
    ),
    "protobuf, secrets": (
        ACCOUNTS, PROTOBUF,
        lambda: message("ServiceAccount", "v1", owners(0), field(2, b"") * 1_000_000),
        400, f"at most {bounds.MOST_VALUES} items",
    ),
    "protobuf, labels": (
        ACCOUNTS, PROTOBUF,
        lambda: message("ServiceAccount", "v1", field(1, field(11, b"") * 1_000_000)),
        400, f"more than {bounds.MOST_VALUES} elements",
    ),
    "protobuf, unknown fields": (
        ACCOUNTS, PROTOBUF,
        lambda: message("ServiceAccount", "v1", field(1, b""), b"\xb8\x3e\x01" * 900_000),
        400, f"more than {bounds.MOST_VALUES} elements",
    ),
    "protobuf, a name many times": (
        ACCOUNTS, PROTOBUF,
        lambda: message("ServiceAccount", "v1", field(1, field(1, b"") * 1_400_000)),
        400, f"more than {bounds.MOST_FIELDS} fields",
    ),
    "protobuf, a number many times": (
        ACCOUNTS, PROTOBUF,
        lambda: message("ServiceAccount", "v1", field(1, b""), b"\x20\x01" * 1_400_000),
        400, f"more than {bounds.MOST_FIELDS} fields",
    ),
    "protobuf, a type many times": (
        ACCOUNTS, PROTOBUF, lambda: b"k8s\0" + b"\x1a\x00" * 1_400_000,
        400, f"more than {bounds.MOST_FIELDS} fields",
    ),
    "protobuf, labels, one too many": (
        ACCOUNTS, PROTOBUF,
        lambda: message(
            "ServiceAccount", "v1",
            field(1, b"".join(field(11, field(1, b"%d" % i)) for i in range(MOST_LABELS + 1))),
        ),
        400, f"at most {MOST_LABELS} items",
    ),
    "labels, one too many": (
        ACCOUNTS, JSON, lambda: account(labels={f"l{i}": "" for i in range(MOST_LABELS + 1)}),
        400, f".metadata.labels: there may be at most {MOST_LABELS} items",
    ),
    "yaml, annotations, one too many": (
        ACCOUNTS, YAML,
        lambda: b"metadata:\n  annotations:\n"
        + b"".join(b"    a%d: b\n" % i for i in range(MOST_ANNOTATIONS + 1)),
        400, f".metadata.annotations: there may be at most {MOST_ANNOTATIONS} items",
    ),
    "containers, one too many": (
        f"{DEFAULT}/pods", JSON,
        lambda: json.dumps({"spec": {"containers": [{}] * (MOST_PARTS + 1)}}).encode(),
        400, f".spec.containers: there may be at most {MOST_PARTS} items",
    ),
    "sources of a volume, one too many": (
        f"{DEFAULT}/pods", JSON,
        lambda: json.dumps(
            {"spec": {"volumes": [{"projected": {"sources": [{}] * (MOST_SOURCES + 1)}}]}}
        ).encode(),
        400, f"projected.sources: there may be at most {MOST_SOURCES} items",
    ),
    "patch, what is there with what comes": (
        f"{CONFIG_MAPS}/kept", MERGE_PATCH,
        lambda: json.dumps({"data": {f"n{i}": "" for i in range(22_000)}}).encode(),
        413, f"more than {bounds.MOST_STORED} values",
    ),
    "merge patch, nested": (
        f"{CONFIG_MAPS}/kept", MERGE_PATCH, lambda: nested(500), 400, "nested too deeply",
    ),
    "strategic merge patch, nested": (
        f"{CONFIG_MAPS}/kept", STRATEGIC_MERGE_PATCH, lambda: nested(500),
        400, "nested too deeply",
    ),
    "json patch, nested": (
        f"{CONFIG_MAPS}/kept", JSON_PATCH,
        lambda: b'[{"op":"add","path":"/x","value":' + nested(500) + b"}]",
        400, "nested too deeply",
    ),
    "json patch, a list copied into itself": (
        f"{CONFIG_MAPS}/kept", JSON_PATCH, lambda: doubled(17),
        422, "is refused as the patch leaves it",
    ),
    "selector, values": (
        REVIEWS, JSON, lambda: selecting(values=MOST_VALUES + 1),
        400, f"at most {MOST_VALUES} items",
    ),
    "selector, 300,000 values": (
        REVIEWS, JSON, lambda: selecting(values=300_000), 413, f"limit is {LARGEST_REVIEW}",
    ),
    "selector, requirements": (
        REVIEWS, JSON, lambda: selecting(requirements=MOST_CONDITIONS + 1),
        400, f"at most {MOST_CONDITIONS} items",
    ),
    "aggregation, selectors": (
        CLUSTER_ROLES, JSON, lambda: aggregating([{"matchLabels": {"a": "b"}}] * 3000),
        422, f"Too many: 6000: must have at most {MOST_AGGREGATING} items",
    ),
    "aggregation, values of a condition": (
        CLUSTER_ROLES, JSON,
        lambda: aggregating([{"matchExpressions": [one_of(MOST_AGGREGATING - 1)]}]),
        422, f"Too many: {MOST_AGGREGATING + 1}: must have at most {MOST_AGGREGATING} items",
    ),
    "selector, text": (
        REVIEWS, JSON, lambda: selecting(raw="a" * (LONGEST_SELECTOR + 1)),
        422, f"may not be more than {LONGEST_SELECTOR} characters",
    ),
    "managed fields of a review": (
        REVIEWS, JSON, lambda: account(managedFields=[manager(i) for i in range(20_000)]),
        413, f"limit is {LARGEST_REVIEW}",
    ),
    "managed fields": (
        ACCOUNTS, JSON, lambda: account(managedFields=[manager(i) for i in range(20_000)]),
        400, "more than",
    ),
    "managed fields, one too many": (
        ACCOUNTS, JSON,
        lambda: account(managedFields=[manager(i) for i in range(MOST_MANAGERS + 1)]),
        400, f".metadata.managedFields: there may be at most {MOST_MANAGERS} items",
    ),
    "owners, one too many": (
        ACCOUNTS, JSON, lambda: account(ownerReferences=[owner(i) for i in range(MOST_OWNERS + 1)]),
        400, f".metadata.ownerReferences: there may be at most {MOST_OWNERS} items",
    ),
    "finalizers, one too many": (
        ACCOUNTS, JSON, lambda: account(finalizers=["a.b/c"] * (MOST_FINALIZERS + 1)),
        400, f".metadata.finalizers: there may be at most {MOST_FINALIZERS} items",
    ),
    "json, a million objects": (
        ACCOUNTS, JSON, lambda: b'{"secrets":[' + b"{}," * 900_000 + b"{}]}",
        400, f"more than {bounds.MOST_VALUES} values",
    ),
    "json, numbers": (
        ACCOUNTS, JSON, lambda: b'{"invented":[' + b"1," * 1_400_000 + b"1]}",
        400, f"more than {bounds.MOST_VALUES} values",
    ),
    "yaml, directives": (ACCOUNTS, YAML, lambda: tags(45_000), 400, "yaml: more than"),
    "yaml, one directive too many": (
        ACCOUNTS, YAML, lambda: tags(yaml_text.MOST_DIRECTIVES + 1),
        400, f"more than {yaml_text.MOST_DIRECTIVES} directives",
    ),
    "yaml, directives after old line ends": (
        ACCOUNTS, YAML, lambda: b"\xef\xbb\xbf" + tags(yaml_text.MOST_DIRECTIVES + 1, "\r"),
        400, f"more than {yaml_text.MOST_DIRECTIVES} directives",
    ),
    "yaml, directives after new line ends": (
        ACCOUNTS, YAML, lambda: tags(yaml_text.MOST_DIRECTIVES + 1, "\u2028"),
        400, f"more than {yaml_text.MOST_DIRECTIVES} directives",
    ),
    "yaml, directives in UTF-16": (
        ACCOUNTS, YAML, lambda: tags(20_000).decode().encode("utf-16"), 400, "not UTF-8",
    ),
    "yaml, comments": (
        ACCOUNTS, YAML, lambda: b"#\n" * 1_000_000 + tags(1),
        400, f"more than {yaml_text.LONGEST_HEAD} bytes before the document",
    ),
    "yaml, a long text many times": (
        ACCOUNTS, YAML,
        lambda: b"z: &a " + b"x" * 60_000 + b"\nsecrets:\n" + b"- name: *a\n" * 12_000,
        400, "excessive aliasing",
    ),
    "yaml, a long key many times": (
        ACCOUNTS, YAML, lambda: b"z: &a " + b"x" * 100_000 + b"\n" + b"? *a\n: 1\n" * 20_000,
        400, "excessive aliasing",
    ),
    "apply, directives": (
        f"{ACCOUNTS}/a?fieldManager=m", APPLY, lambda: tags(45_000), 400, "yaml: more than",
    ),
    "apply, a million values": (
        f"{ACCOUNTS}/a?fieldManager=m", APPLY,
        lambda: b'{"secrets":[' + b"{}," * 900_000 + b"{}]}",
        400, f"more than {bounds.MOST_VALUES} values",
    ),
    "patch, owners": (
        f"{ACCOUNTS}/robot", "application/merge-patch+json",
        lambda: account(ownerReferences=[owner(i) for i in range(MOST_OWNERS + 1)]),
        422, f"at most {MOST_OWNERS} items",
    ),
    "deletion": (
        f"{ACCOUNTS}/robot", JSON, lambda: b'{"kind":"' + b"D" * 70_000 + b'"}', 413, "limit is",
    ),
}  # fmt: skip

WORKED_ON: dict[str, tuple[str, str, Callable[[], bytes]]] = {
    "annotations": (
        ACCOUNTS, JSON,
        lambda: account(annotations={f"l{i}": "v" * 200 for i in range(MOST_ANNOTATIONS)}),
    ),
    "secrets": (
        ACCOUNTS, JSON,
        lambda: json.dumps(
            {"metadata": {"name": "a"}, "secrets": [{"name": f"n{i}"} for i in range(10_000)]}
        ).encode(),
    ),
    "keys": (
        CONFIG_MAPS, JSON,
        lambda: json.dumps(
            {"metadata": {"name": "a"}, "data": {f"k{i}": "v" for i in range(20_000)}}
        ).encode(),
    ),
    "unknown fields": (
        ACCOUNTS, JSON,
        lambda: json.dumps({"metadata": {"name": "a"}, "x": [{"a": 1}] * 10_000}).encode(),
    ),
    "yaml": (
        ACCOUNTS, YAML, lambda: b"metadata: {name: a}\nx: [" + b"1," * 45_000 + b"1]",
    ),
    "small yaml": (
        ACCOUNTS, YAML,
        lambda: b"metadata: {name: a}\na: &a [x,x,x,x,x,x,x,x,x,x]\n"
        b"b: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b,*b]\n"
        b"d: [*c,*c,*c,*c,*c,*c,*c,*c,*c,*c,*c,*c,*c,*c,*c,*c,*c,*c,*c,*c,*c,*c,*c,*c,*c]",
    ),
    "operations": (
        f"{CONFIG_MAPS}/kept", JSON_PATCH,
        lambda: json.dumps(
            [{"op": "add", "path": f"/data/a{i}", "value": "1"} for i in range(10_000)]
        ).encode(),
    ),
    "copies": (
        f"{CONFIG_MAPS}/kept", JSON_PATCH,
        lambda: json.dumps(
            [{"op": "copy", "from": "/data/k1", "path": f"/data/c{i}"} for i in range(200)]
        ).encode(),
    ),
    "configuration": (
        f"{CONFIG_MAPS}/kept?fieldManager=m&force=true", APPLY,
        lambda: json.dumps(
            {
                "kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "kept"},
                "data": {f"k{i}": "v" for i in range(15_000)},
            }
        ).encode(),
    ),
}  # fmt: skip


class Probe:
    """Asks for the health of the server again and again, and sees how long the loop was held."""

    def __init__(self, server: Api) -> None:
        self.answered = 0
        self.longest = 0.0
        self._server = server
        self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        before = time.perf_counter()
        while True:
            await asyncio.sleep(0)
            now = time.perf_counter()
            self.longest, before = max(self.longest, now - before), now
            self.answered += (await self._server.call("GET", "/livez", token=None)).status == 200

    async def during(self, what: str, call: Any) -> Answer:
        """The answer to a call; the probe is answered at least once meanwhile."""
        await asyncio.sleep(0)  # what the test itself took is over
        await asyncio.sleep(0)
        self.answered, self.longest = 0, 0.0
        answer: Answer = await call
        held = f"{what:40} {answer.status} loop held {self.longest * 1000:7.1f} ms"
        sys.stdout.write(f"{held}\n")
        return answer

    async def end(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])


@pytest.fixture
async def probed(server: Api) -> AsyncIterator[tuple[Api, Probe]]:
    await server.account("robot")
    data = {f"k{i}": "v" * 20 for i in range(5000)}
    await server.make(CONFIG_MAPS, {"metadata": {"name": "kept"}, "data": data})
    probe = Probe(server)
    yield server, probe
    await probe.end()


def method_of(target: str, media: str, what: str) -> str:
    if what == "deletion":
        return "DELETE"
    return "PATCH" if "patch" in media else "POST"


@pytest.mark.parametrize("what", REFUSED)
async def test_a_body_that_unfolds_is_refused_with_a_sentence(
    probed: tuple[Api, Probe], what: str
) -> None:
    """By its size where it has no reason to be large, else by the number of what it holds."""
    server, probe = probed
    target, media, body, status, message = REFUSED[what]
    method, headers = method_of(target, media, what), {"content-type": media}

    answer = await probe.during(what, server.call(method, target, body(), headers=headers))

    assert answer.status == status
    assert message in answer.json["message"]
    assert len(answer.body) < 10_000


@pytest.mark.parametrize("what", WORKED_ON)
async def test_the_others_are_served_while_a_large_body_is_worked_on(
    probed: tuple[Api, Probe], what: str
) -> None:
    """A body within all limits is accepted and decoded beside the event loop."""
    server, probe = probed
    target, media, body = WORKED_ON[what]
    method, headers = method_of(target, media, what), {"content-type": media}
    dry = f"{target}{'&' if '?' in target else '?'}dryRun=All"

    answer = await probe.during(what, server.call(method, dry, body(), headers=headers))

    assert answer.status in (200, 201)
    assert probe.answered > 0


@pytest.mark.parametrize(
    "accept",
    [
        YAML,
        "application/json;as=Table;v=v1;g=meta.orch.io",
        "application/json;as=PartialObjectMetadataList;v=v1;g=meta.orch.io",
        PROTOBUF,
    ],
)
async def test_the_others_are_served_while_an_answer_is_made(
    probed: tuple[Api, Probe], accept: str
) -> None:
    """A form that has to be made of what is kept is made beside the event loop."""
    server, probe = probed

    answer = await probe.during(
        accept, server.call("GET", CONFIG_MAPS, headers={"accept": f"{accept},{YAML}"})
    )

    assert answer.status == 200
    assert probe.answered > 0


@pytest.mark.parametrize(
    ("target", "media", "body"),
    [
        (ACCOUNTS, JSON, account(ownerReferences=[owner(i) for i in range(MOST_OWNERS)])),
        (ACCOUNTS, JSON, account(finalizers=[f"a.b/c{i}" for i in range(MOST_FINALIZERS)])),
        (ACCOUNTS, JSON, account(managedFields=[manager(i) for i in range(MOST_MANAGERS)])),
        (ACCOUNTS, YAML, tags(yaml_text.MOST_DIRECTIVES)),
        (REVIEWS, JSON, selecting(values=MOST_VALUES)),
        (REVIEWS, JSON, selecting(requirements=MOST_CONDITIONS)),
        (CLUSTER_ROLES, JSON, aggregating([{"matchLabels": {"a": "b"}}] * (MOST_AGGREGATING // 2))),
        (
            CONFIG_MAPS,
            JSON,
            json.dumps({**json.loads(account()), "data": {"a": "[,{" * 300_000}}).encode(),
        ),
        (
            CONFIG_MAPS,
            JSON,
            json.dumps({**json.loads(account()), "data": {"a": '\\",{' * 200_000}}).encode(),
        ),
    ],
)
async def test_what_is_just_within_its_limit_is_taken(
    server: Api, target: str, media: str, body: bytes
) -> None:
    """The limits refuse nothing that keeps to them; brackets in a text are no values."""
    answer = await server.call("POST", f"{target}", body, headers={"content-type": media})

    assert answer.status == 201, answer.text[:200]


def padded(form: str, kind: Kind[Any], size: int) -> bytes:
    """A body of exactly this size, in one of the three forms, that means next to nothing."""
    if form == JSON:
        return b"{}" + b" " * (size - 2)
    if form == YAML:
        return b"metadata: {}\n" + b"#" * (size - 13)
    # Where a length needs a byte more, one field cannot have every size: a second one makes it up.
    for more in range(1, 8):
        filled = size - 200
        for _ in range(3):
            content = field(1000, b"x" * filled) + field(1001, b"x" * more)
            body = sealed(kind.api_version, kind.name, content)
            if len(body) == size:
                return body
            filled += size - len(body)
    raise AssertionError(f"no body of {size} bytes")


def collection(kind: Kind[Any]) -> str:
    root = f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"
    return (
        f"{root}/namespaces/default/{kind.plural}" if kind.namespaced else f"{root}/{kind.plural}"
    )


@pytest.mark.parametrize("form", [JSON, YAML, PROTOBUF])
async def test_every_kind_takes_a_body_up_to_its_limit_and_no_more(
    probed: tuple[Api, Probe], form: str
) -> None:
    """Each kind in each form, at its limit and one byte beyond; the others are served meanwhile."""
    server, probe = probed
    kinds = [kind for kind in server.server.catalog.kinds if "create" in kind.verbs]
    headers = {"content-type": form}

    for kind in kinds:
        target = f"{collection(kind)}?dryRun=All"
        body = padded(form, kind, kind.largest_body)
        within = await probe.during(
            f"{kind.name}, {form}", server.call("POST", target, body, headers=headers)
        )
        answered = probe.answered
        beyond = await server.call("POST", target, body + b" ", headers=headers)

        assert len(body) == kind.largest_body
        assert within.status in (201, 400, 403, 422), (kind.name, within.text[:200])
        assert (beyond.status, answered > 0) == (413, True), kind.name
    assert len(kinds) > 15


async def test_little_work_stays_on_the_loop_and_much_goes_to_few_threads() -> None:
    """A thread costs more than a small body; and what runs at once must be bounded."""
    together, running, most = threading.Barrier(THREADS), 0, 0

    def work() -> str:
        nonlocal running, most
        running += 1
        most = max(most, running)
        together.wait(30)
        running -= 1
        together.wait(30)
        return threading.current_thread().name

    async def worked(caller: Caller) -> str:
        SEAT.set(caller)
        return await offload(LARGE_BYTES + 1, work)

    with closing(Offload()) as offload:
        here = await offload(LARGE_BYTES, lambda: threading.current_thread().name)
        callers = [Caller(f"{number}") for number in range(THREADS)]
        names = await asyncio.gather(*(worked(caller) for caller in callers * 5))

    assert here == "MainThread"
    assert all(name.startswith("offload") for name in names)
    assert most == THREADS
    assert body_weight(b" a: 1", may_be_yaml=True) > LARGE_BYTES
    assert body_weight(b' {"a":1}', may_be_yaml=True) < LARGE_BYTES


async def test_slow_bodies_of_one_user_hold_up_nobody_else(
    server: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One user's YAML takes as long as it likes, and as often; another user's is read meanwhile."""
    begun, goes_on = threading.Event(), threading.Event()
    load = yaml_text.load

    def slow(body: bytes) -> Any:
        if b"slow" in body:
            begun.set()
            assert goes_on.wait(30)
        return load(body)

    monkeypatch.setattr(yaml_text, "load", slow)
    for name in ("greedy", "modest"):
        await server.account(name)
    greedy, modest = [await server.token(name) for name in ("greedy", "modest")]
    review, headers = f"{REVIEWS}?dryRun=All", {"content-type": YAML}
    slow_bodies = [
        asyncio.create_task(
            server.call("POST", review, b"slow: %d" % number, token=greedy, headers=headers)
        )
        for number in range(6)
    ]
    try:
        assert await asyncio.to_thread(begun.wait, 30)

        async with asyncio.timeout(30):
            answer = await server.call("POST", review, b"a: 1", token=modest, headers=headers)

        assert answer.status < 500
        assert not any(each.done() for each in slow_bodies)
    finally:
        goes_on.set()
    assert all(each.status < 500 for each in await asyncio.gather(*slow_bodies))
