"""Caches change no answer: the same request on a used connection and on a new one.

Several callers share one connection over TLS, with headers that come again, so that everything
that is kept for the next request is used. Each question is asked once more without any of it: past
the socket, with the caches of targets, forms and grants emptied. Between two questions rights and
objects come and go. Status and body must be the same.
"""

import asyncio
import re
import ssl
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchid.features.rights.authorizers import rbac
from orchid.kernel.http.messages import Response
from orchid.kernel.server import negotiate, parse
from tests.api.world import ADMIN, ALICE, BOB, Api, api
from tests.security.listening import bearer, listening
from tests.unit.kernel.http.listening import Answer, Client

RBAC = "rbac.authorization.orch.io"
MAPS = "/api/v1/namespaces/default/configmaps"
BINDINGS = f"/apis/{RBAC}/v1/clusterrolebindings"

OPTIONS = {
    "limit": ["1", "0", "-1", "x", "99999999999999999999"],
    "continue": ["abc", "eyJ2Ijoi"],
    "timeout": ["5s", "-1s", "x"],
    "timeoutSeconds": ["1", "x"],
    "resourceVersion": ["0", "1", "x", "-1", "18446744073709551616"],
    "resourceVersionMatch": ["Exact", "NotOlderThan", "x"],
    "labelSelector": ["a", "a%3Db", "a+in+(b,c)", "!a", "a,,b"],
    "fieldSelector": ["metadata.name%3Da", "metadata.name!%3Da", "x%3Dy"],
    "sendInitialEvents": ["true", "x"],
    "pretty": ["true", "1"],
}
QUERIES = st.dictionaries(st.sampled_from(sorted(OPTIONS)), st.integers(0, 9), max_size=2).map(
    lambda chosen: "&".join(f"{k}={OPTIONS[k][n % len(OPTIONS[k])]}" for k, n in chosen.items())
)
PATHS = st.sampled_from(
    [
        MAPS, f"{MAPS}/a", f"{MAPS}/b", f"{MAPS}/%61", f"{MAPS}/a/status", "/api/v1/configmaps",
        "/api/v1/namespaces", "/api/v1/namespaces//configmaps", "/api/v1/namespaces/-/secrets/-",
        f"/apis/{RBAC}/v1/clusterroles/view", "/apis", "/livez", "/nothing",
    ]
)  # fmt: skip
METHODS = st.sampled_from(["GET", "GET", "GET", "HEAD", "OPTIONS", "PUT"])
HEADERS = st.tuples(
    st.sampled_from([[bearer(ALICE)], [bearer(BOB)], [bearer(ADMIN)], [bearer("wrong")], []]),
    st.sampled_from([[], ["Accept: application/json;as=Table;v=v1;g=meta.orch.io"]]),
    st.sampled_from([[], [], ["Impersonate-User: alice"], ["Impersonate-Group: x"]]),
).map(lambda parts: [line for part in parts for line in part])
# The same headers several times, before and after a change: from the third time on they are known.
QUESTIONS = st.tuples(HEADERS, st.lists(st.tuples(METHODS, PATHS, QUERIES), min_size=2, max_size=6))


def binding(user: str) -> dict[str, Any]:
    role = {"apiGroup": RBAC, "kind": "ClusterRole", "name": "view"}
    subject = {"apiGroup": RBAC, "kind": "User", "name": user}
    return {"metadata": {"name": "t"}, "roleRef": role, "subjects": [subject]}


CHANGES = st.sampled_from(
    [
        ("POST", BINDINGS, binding("alice")),
        ("DELETE", f"{BINDINGS}/t", None),
        ("POST", BINDINGS, binding("bob")),
        ("POST", MAPS, {"metadata": {"name": "a"}}),
        ("DELETE", f"{MAPS}/a", None),
        ("POST", MAPS, {"metadata": {"name": "b", "labels": {"a": "b"}}}),
    ]
)


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.tuples(QUESTIONS, CHANGES), min_size=10, max_size=20))
def test_what_is_remembered_changes_no_answer(server_files: Path, story: list[Any]) -> None:
    """For several callers on one connection, with rights and objects that change in between."""
    asyncio.run(compare_answers(server_files, story))


async def compare_answers(files: Path, story: list[Any]) -> None:
    trust = ssl.create_default_context(cafile=files / "ca.crt")
    async with api(files) as server, listening(server) as running:
        client = await running.connect(trust)
        for (lines, questions), change in story:
            for asking in (*questions, change, *questions):
                if asking is change:
                    await server.call(*change)
                    continue
                method, target = asking[0], "?".join(filter(None, asking[1:]))
                warm = await asked(client, method, target, lines)
                status, body = await cold(server, method, target, lines)
                assert (warm.status, ageless(warm.body)) == (status, ageless(body))
                if warm.headers.get("connection") == "close":
                    client = await running.connect(trust)


def ageless(body: bytes) -> bytes:
    """An answer without the ages in its table, which may grow from one to the next."""
    return re.sub(rb'"[0-9]+s"', b'"some seconds"', body)


async def asked(client: Client, method: str, target: str, lines: list[str]) -> Answer:
    client.get(target, *lines, method=method)
    answer = await client.head()
    if method != "HEAD":
        answer.body = await client.exactly(int(answer.headers.get("content-length", "0")))
    return answer


async def cold(server: Api, method: str, target: str, lines: list[str]) -> tuple[int, bytes]:
    """The answer to a question that nobody has asked before."""
    for module in parse, negotiate:
        for function in vars(module).values():
            if hasattr(function, "cache_clear"):
                function.cache_clear()
    server.server.context.port(rbac.RBAC)._forget_roles()
    headers = dict(line.split(": ", 1) for line in ("host: test", *lines))
    answer = await server.send(method, target, {k.lower(): v for k, v in headers.items()})
    assert isinstance(answer, Response)
    return answer.status, b"" if method == "HEAD" else answer.body
