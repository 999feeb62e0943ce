"""Whatever a client sends, the answer is the client's mistake or its success, never ours.

Every endpoint is asked with hostile paths, queries, headers and bodies. The chain turns an
exception that nobody foresaw into a 500, so a 500 here is a bug, and so is anything that comes out
of the chain as an exception, a header that is none, or a body that is not what its type says.
"""

import asyncio
import json
import os
import string
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchid.kernel.engine.verbs import read
from orchid.kernel.http.messages import Response
from tests.api.world import ADMIN, Api, EventStream, api, parsed

EXAMPLES = settings(
    max_examples=int(os.environ.get("ORCHID_EXAMPLES", "120")),  # for each test below
    suppress_health_check=list(HealthCheck),
    database=None,
    print_blob=True,
)

NAMESPACED = ("serviceaccounts", "secrets", "configmaps", "pods", "events")
CLUSTER = ("namespaces", "nodes")
GROUPED = (
    "authentication.orch.io/v1/tokenreviews",
    "authentication.orch.io/v1/selfsubjectreviews",
    "authorization.orch.io/v1/subjectaccessreviews",
    "authorization.orch.io/v1/selfsubjectaccessreviews",
    "authorization.orch.io/v1/selfsubjectrulesreviews",
    "authorization.orch.io/v1/namespaces/default/localsubjectaccessreviews",
    "certificates.orch.io/v1/certificatesigningrequests",
    "certificates.orch.io/v1beta1/clustertrustbundles",
    "rbac.authorization.orch.io/v1/clusterroles",
    "rbac.authorization.orch.io/v1/clusterrolebindings",
    "rbac.authorization.orch.io/v1/namespaces/default/roles",
    "rbac.authorization.orch.io/v1/namespaces/default/rolebindings",
    "coordination.orch.io/v1/namespaces/default/leases",
)
COLLECTIONS = (
    *(f"/api/v1/namespaces/default/{plural}" for plural in NAMESPACED),
    *(f"/api/v1/{plural}" for plural in CLUSTER),
    *(f"/apis/{path}" for path in GROUPED),
)
PAGES = (
    "/", "/api", "/api/v1", "/apis", "/apis/certificates.orch.io", "/version", "/metrics",
    "/healthz", "/livez", "/livez/ping", "/openapi/v2", "/openapi/v3", "/openapi/v3/api/v1",
    "/.well-known/openid-configuration", "/openid/v1/jwks", "/apis/certificates.orch.io/v1",
)  # fmt: skip
SUBRESOURCES = ("", "/token", "/status", "/approval", "/finalize", "/scale", "/x/y")
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "TRACE", "BREW")
MEDIA = (
    "application/json", "application/yaml", "application/json-patch+json",
    "application/merge-patch+json", "application/strategic-merge-patch+json",
    "application/apply-patch+yaml", "application/vnd.kubernetes.protobuf", "text/plain", "", ";",
    "application/json;charset=utf-8", "application/cbor",
)  # fmt: skip
ACCEPTS = (
    "application/json", "application/yaml", "*/*", "*", "application/*", "text/html", "",
    "application/json;as=Table;g=meta.orch.io;v=v1, application/json",
    "application/json;as=PartialObjectMetadata;g=meta.orch.io;v=v1",
    "application/yaml;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
    "application/json;g=apidiscovery.orch.io;v=v2;as=APIGroupDiscoveryList",
    "application/vnd.kubernetes.protobuf", "application/vnd.kubernetes.protobuf;stream=watch",
    "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
    "application/com.github.proto-openapi.spec.v2.v1.0+protobuf",
)  # fmt: skip
PARAMETERS = (
    "labelSelector", "fieldSelector", "limit", "continue", "resourceVersion", "watch", "pretty",
    "resourceVersionMatch", "allowWatchBookmarks", "sendInitialEvents", "timeoutSeconds", "timeout",
    "dryRun", "fieldManager", "fieldValidation", "force", "gracePeriodSeconds", "propagationPolicy",
    "orphanDependents", "uid", "includeObject", "export", "verbose", "exclude", "hash",
)  # fmt: skip
NUMBERS = st.sampled_from(
    ("0", "1", "-1", "007", "9" * 19, "9" * 40, "9" * 5000, "1e3", "0x1", "", " 1", "\u0661", "NaN")
)
NASTY = st.one_of(
    st.text(max_size=30),
    NUMBERS,
    st.sampled_from(
        (
            "a=b",
            "a in (b,c)",
            "!a",
            "a>1",
            "metadata.name=a",
            "spec.signerName=x",
            "All",
            "Strict",
            "Orphan",
            "1s",
            "-5m",
            "Exact",
            "NotOlderThan",
            "true",
            "Object",
            "\udcff",
            "%",
            "..",
            "\x00",
            "\r\nX: y",
            "\ud800",
            "eyJ2IjoibWV0YS5vcmNoLmlvL3YxIiwicnYiOjEsInN0YXJ0IjoiL2EifQ",
        )
    ),
)
NAMES = st.one_of(
    st.sampled_from(("a", "default", "worker-1", ".", "..", "", "%2e", "a%2Fb", "%ff", "%00", "%")),
    st.text(alphabet=string.ascii_lowercase + "-._:%\u00e4", max_size=12),
    st.text(max_size=8).map(lambda text: quote(text, errors="surrogatepass")),
)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=20),
    st.sampled_from(
        ("a", "default", "2026-01-01T00:00:00Z", "AAAA", "ServiceAccount", "User", "*")
    ),
)
FIELDS = """
    metadata spec status kind apiVersion name generateName namespace labels annotations
    ownerReferences finalizers managedFields resourceVersion uid creationTimestamp
    deletionTimestamp generation data binaryData stringData secrets imagePullSecrets rules
    subjects roleRef verbs resources apiGroups token audiences expirationSeconds
    boundObjectRef request signerName usages conditions certificate trustBundle user groups
    resourceAttributes type immutable aggregationRule fieldsV1 fieldsType operation manager
    time $patch $retainKeys $setElementOrder/secrets $deleteFromPrimitiveList/finalizers op
    path value from preconditions dryRun containers serviceAccountName nodeName
""".split()  # noqa: SIM905 -- easier to read than sixty quotes
DOCUMENTS = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.one_of(st.sampled_from(FIELDS), st.text(max_size=6)), inner, max_size=5),
    ),
    max_leaves=25,
)
METADATA = st.fixed_dictionaries(
    {"name": st.sampled_from(("a", "b", "worker-1", "x.y", "A", "", "default"))},
    optional={
        "generateName": st.text(max_size=5),
        "labels": st.dictionaries(st.text(max_size=5), SCALARS, max_size=2),
        "annotations": st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=2),
        "finalizers": st.lists(st.text(max_size=6), max_size=2),
        "managedFields": DOCUMENTS,
        "ownerReferences": DOCUMENTS,
        "resourceVersion": NUMBERS,
        "uid": st.text(max_size=5),
    },
)
OBJECTS = st.fixed_dictionaries(
    {"metadata": METADATA},
    optional=dict.fromkeys(
        ("spec", "status", "data", "rules", "subjects", "roleRef", "secrets", "type"), DOCUMENTS
    ),
)
OPERATIONS = st.lists(
    st.fixed_dictionaries(
        {
            "op": st.sampled_from(("add", "remove", "replace", "move", "copy", "test", "x")),
            "path": st.sampled_from(
                ("", "/", "/metadata", "/metadata/labels/a", "/data/-", "/x/0")
            ),
        },
        optional={"value": DOCUMENTS, "from": st.sampled_from(("", "/metadata", "/y"))},
    ),
    max_size=4,
)


def written(document: Any) -> bytes:
    return json.dumps(document).encode("utf-8", "surrogatepass")


BODIES = st.one_of(
    st.just(b""),
    st.binary(max_size=60),
    DOCUMENTS.map(written),
    OBJECTS.map(written),
    OPERATIONS.map(written),
    st.sampled_from(
        (
            b"[" * 100_000,
            b'{"a":' * 100_000,
            b"&a [*a, *a]",
            b"a: &a [x]\nb: [*a, *a, *a]",
            b"\xef\xbb\xbf{}",
            b"k8s\x00",
            b"k8s\x00\x0a\x02\x12\x00",
            b'{"metadata":{"name":"a","name":"b"}}',
            b"null",
            b'"x"',
            b"!!python/object:os.system x",
        )
    ),
    st.binary(max_size=40).map(lambda tail: b"k8s\x00" + tail),
)
QUERIES = st.lists(st.tuples(st.sampled_from(PARAMETERS), NASTY), max_size=4).map(
    lambda pairs: "&".join(f"{key}={quote(text, errors='surrogatepass')}" for key, text in pairs)
)
LATIN = st.text(st.characters(max_codepoint=255, exclude_characters="\r\n\x00"), max_size=40)
HEADERS = st.fixed_dictionaries(
    {},
    optional={
        "accept": st.one_of(st.sampled_from(ACCEPTS), LATIN),
        "content-type": st.one_of(st.sampled_from(MEDIA), LATIN),
        "user-agent": st.one_of(st.just("curl/8"), LATIN),
        "audit-id": LATIN,
        "accept-encoding": st.just("gzip"),
        "if-none-match": LATIN,
        "impersonate-user": LATIN,
        "impersonate-group": LATIN,
        "impersonate-uid": LATIN,
        "impersonate-extra-a%2fb": LATIN,
        "x-remote-user": LATIN,
        "sec-websocket-protocol": LATIN,
        "upgrade": st.just("websocket"),
        "connection": st.just("Upgrade"),
    },
)
TARGETS = st.one_of(
    st.sampled_from(COLLECTIONS),
    st.builds("{}/{}{}".format, st.sampled_from(COLLECTIONS), NAMES, st.sampled_from(SUBRESOURCES)),
    st.sampled_from(PAGES),
    st.builds("/{}/{}/{}".format, st.sampled_from(("api", "apis", "x")), NAMES, NAMES),
    st.builds("/api/v1/{}/{}".format, st.sampled_from(("watch", "proxy", "namespaces")), NAMES),
    st.builds("/api/v1/watch/namespaces/{}/configmaps/{}".format, NAMES, NAMES),
    LATIN.map(lambda text: "/" + text.replace("?", "").replace(" ", "")),
)


class Bench:
    """A server and the loop it lives in, kept from one example to the next."""

    def __init__(self, directory: Path) -> None:
        self.loop = asyncio.new_event_loop()
        self._context = api(directory)
        self.server: Api = self.loop.run_until_complete(self._context.__aenter__())
        self.loop.run_until_complete(self._furnish())

    async def _furnish(self) -> None:
        for path in COLLECTIONS:
            if not path.endswith("reviews"):
                await self.server.call("POST", path, {"metadata": {"name": "a"}})

    def close(self) -> None:
        self.loop.run_until_complete(self._context.__aexit__(None, None, None))
        self.loop.close()

    def ask(self, method: str, target: str, headers: dict[str, str], body: bytes = b"") -> Any:
        """Send a request and check the rules that hold for every answer."""
        answer = self.loop.run_until_complete(
            self.server.send(method, target, {"authorization": f"Bearer {ADMIN}", **headers}, body)
        )
        pairs = parsed(answer.headers)
        if not isinstance(answer, Response):
            self.loop.run_until_complete(opened(answer))
            return answer
        if answer.status >= 500:
            assert answer.status == 504, answer.body
            assert b"Too large resource version" in answer.body
        check_body(dict(pairs), answer.body)
        return answer


async def opened(answer: Any) -> None:
    stream = EventStream(answer.status, [])
    answer.open(stream)
    stream.finish()
    await asyncio.sleep(0)


def check_body(headers: dict[str, str], body: bytes) -> None:
    """A body is what its Content-Type says."""
    kind = headers.get("Content-Type", "")
    if "Content-Encoding" in headers or not body:
        return
    if kind.startswith("application/json"):
        json.loads(body)
    elif kind.startswith("application/yaml") and len(body) < 5000:
        yaml.load(body, yaml.CSafeLoader)
    elif kind.startswith("text/"):
        body.decode()


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    made = Bench(tmp_path_factory.mktemp("bench") / "data")
    yield made
    made.close()


@pytest.fixture(autouse=True)
def no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read, "FUTURE_PATIENCE", 0.0001)


@EXAMPLES
@given(st.sampled_from(METHODS), TARGETS, QUERIES, HEADERS, BODIES)
def test_any_request(  # noqa: PLR0917 -- the parts of a request
    bench: Bench, method: str, target: str, query: str, headers: dict[str, str], body: bytes
) -> None:
    """Anything at all."""
    bench.ask(method, f"{target}?{query}" if query else target, headers, body)


@EXAMPLES
@given(st.sampled_from(COLLECTIONS), OBJECTS, QUERIES)
def test_any_object_created(bench: Bench, target: str, body: Any, query: str) -> None:
    """Objects of every kind, nearly right."""
    bench.ask("POST", f"{target}?{query}", {"content-type": "application/json"}, written(body))


@EXAMPLES
@given(st.sampled_from(COLLECTIONS), st.sampled_from(SUBRESOURCES), OBJECTS)
def test_any_object_put(bench: Bench, target: str, subresource: str, body: Any) -> None:
    """Updates of every kind and endpoint, nearly right."""
    headers = {"content-type": "application/json"}
    name = quote(body["metadata"]["name"])
    bench.ask("PUT", f"{target}/{name}{subresource}", headers, written(body))


@EXAMPLES
@given(
    st.sampled_from(COLLECTIONS),
    st.sampled_from(("", "/status", "/approval")),
    st.sampled_from(MEDIA),
    st.one_of(OBJECTS, DOCUMENTS, OPERATIONS),
    QUERIES,
)
def test_any_patch(  # noqa: PLR0917 -- the parts of a patch
    bench: Bench, target: str, subresource: str, media: str, body: Any, query: str
) -> None:
    """Patches of every sort on every kind and endpoint."""
    query = f"fieldManager=x&{query}"
    bench.ask("PATCH", f"{target}/a{subresource}?{query}", {"content-type": media}, written(body))


@EXAMPLES
@given(st.sampled_from(COLLECTIONS), QUERIES, st.sampled_from(ACCEPTS), st.booleans())
def test_any_list_and_watch(
    bench: Bench, target: str, query: str, accept: str, watch: bool
) -> None:
    """Lists and watches with every parameter at odds with itself."""
    query = f"watch=1&{query}" if watch else query
    bench.ask("GET", f"{target}?{query}", {"accept": accept})


@EXAMPLES
@given(st.dictionaries(st.sampled_from(FIELDS), DOCUMENTS, max_size=6))
def test_any_token_request(bench: Bench, spec: dict[str, Any]) -> None:
    """Requests for tokens that ask for the impossible."""
    target = "/api/v1/namespaces/default/serviceaccounts/a/token"
    bench.ask("POST", target, {"content-type": "application/json"}, written({"spec": spec}))


@EXAMPLES
@given(LATIN, st.sampled_from(COLLECTIONS + PAGES))
def test_any_credential(bench: Bench, credential: str, target: str) -> None:
    """No invalid Authorization header authenticates a caller or causes a 500."""
    for given_ in (credential, f"Bearer {credential}", f"Bearer a.{credential}.b"):
        answer = bench.ask("GET", target, {"authorization": given_})
        assert answer.status == 401 or target in PAGES
