"""The shape of every error: status code, reason, details, headers."""

import json
from typing import Any

import pytest

from tests.api.world import BOB, Api

SA = "/api/v1/namespaces/default/serviceaccounts"
CSR = "/apis/certificates.orch.io/v1/certificatesigningrequests"
MERGE = {"content-type": "application/merge-patch+json"}


def shaped(answer: Any, code: int, reason: str) -> Any:
    """Check what all failures share, and give the Status."""
    status = answer.json
    assert list(status)[:5] == ["kind", "apiVersion", "metadata", "status", "message"]
    assert (status["kind"], status["apiVersion"], status["status"]) == ("Status", "v1", "Failure")
    assert (answer.status, status["code"], status["reason"]) == (code, code, reason)
    assert answer.header("audit-id")
    assert answer.header("cache-control") == "no-cache, private"
    return status


async def test_not_found(server: Api) -> None:
    """The resource and the name, in words and apart."""
    core = shaped(await server.call("GET", f"{SA}/x"), 404, "NotFound")
    group = shaped(await server.call("DELETE", f"{CSR}/x"), 404, "NotFound")

    assert core["message"] == 'serviceaccounts "x" not found'
    assert core["details"] == {"name": "x", "kind": "serviceaccounts"}
    assert group["message"] == 'certificatesigningrequests.certificates.orch.io "x" not found'
    assert group["details"]["group"] == "certificates.orch.io"


@pytest.mark.parametrize("path", [f"/{SA}", f"/{SA}/x", f"//{CSR}", "//livez", "//apis"])
async def test_path_that_begins_with_two_slashes_leads_nowhere(server: Api, path: str) -> None:
    """A proxy may parse such a path differently, so it gets 404."""
    answer = await server.call("GET", path)

    assert (answer.status, answer.text) == (404, "404 page not found\n")


async def test_already_exists(server: Api) -> None:
    """A name that is taken."""
    await server.account("a")
    answer = await server.call("POST", SA, {"metadata": {"name": "a"}})

    status = shaped(answer, 409, "AlreadyExists")
    assert status["message"] == 'serviceaccounts "a" already exists'


async def test_conflict(server: Api) -> None:
    """A version that has passed."""
    made = await server.account("a")
    made["metadata"]["resourceVersion"] = "1"
    status = shaped(await server.call("PUT", f"{SA}/a", made), 409, "Conflict")

    assert status["message"] == (
        'Operation cannot be fulfilled on serviceaccounts "a": the object has been modified; '
        "please apply your changes to the latest version and try again"
    )


async def test_invalid(server: Api) -> None:
    """Every finding in the message and, apart, in the causes."""
    body = {"metadata": {"name": "A", "labels": {"a": "b c"}}}
    status = shaped(await server.call("POST", SA, body), 422, "Invalid")

    assert status["message"].startswith('ServiceAccount "A" is invalid: [metadata.')
    assert status["details"]["kind"] == "ServiceAccount"
    assert {cause["field"] for cause in status["details"]["causes"]} == {
        "metadata.name",
        "metadata.labels",
    }
    assert {cause["reason"] for cause in status["details"]["causes"]} == {"FieldValueInvalid"}


async def test_forbidden(server: Api) -> None:
    """The messages of 403 for an object, a list and a path."""
    one = shaped(await server.call("GET", f"{SA}/x", token=BOB), 403, "Forbidden")
    all_ = shaped(await server.call("GET", CSR, token=BOB), 403, "Forbidden")
    path = shaped(await server.call("GET", "/metrics", token=BOB), 403, "Forbidden")

    assert one["message"] == (
        'serviceaccounts "x" is forbidden: User "bob" cannot get resource "serviceaccounts" in '
        'API group "" in the namespace "default"'
    )
    assert all_["message"] == (
        'certificatesigningrequests.certificates.orch.io is forbidden: User "bob" cannot list '
        'resource "certificatesigningrequests" in API group "certificates.orch.io" at the '
        "cluster scope"
    )
    assert path["message"] == 'forbidden: User "bob" cannot get path "/metrics"'
    assert path["details"] == {}


async def test_an_unknown_method_has_no_verb(server: Api) -> None:
    """Authorization is asked with an empty verb, then the router refuses."""
    refused = await server.call("BREW", f"{SA}/x", token=BOB)
    brewed = await server.call("BREW", f"{SA}/x")

    assert "cannot  resource" in refused.json["message"]
    shaped(brewed, 405, "MethodNotAllowed")


async def test_a_question_about_a_namespace_is_asked_in_one(server: Api) -> None:
    """There is no path over all namespaces for what is only created."""
    path = "/apis/authorization.orch.io/v1/localsubjectaccessreviews"

    shaped(await server.call("POST", path, b"{}"), 404, "NotFound")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "the object provided is unrecognized (must be of type ServiceAccount): "),
        (b"{", "couldn't get version/kind; json parse error: "),
        (b"[]", "expected object, got array (5b5d)"),
        (b'{"kind":"Secret","apiVersion":"v1"}', 'Secret in version "v1" cannot be handled as a'),
        (b'{"kind":"X","apiVersion":"a/b"}', 'no kind "X" is registered for version "a/b"'),
        (b'{"apiVersion":"a/b/c"}', "unexpected GroupVersion string: a/b/c"),
        (b'{"metadata":{"name":1}}', "cannot be handled as a ServiceAccount: "),
        (b'{"metadata":{"labels":[]}}', "cannot be handled as a ServiceAccount: "),
        (b"\xff\xfe", "(fffe)"),
    ],
)
async def test_bad_bodies(server: Api, body: bytes, message: str) -> None:
    """A body that cannot be decoded is a 400 that says how far it was understood."""
    answer = await server.call("POST", SA, body, headers={"content-type": "application/json"})

    assert message in shaped(answer, 400, "BadRequest")["message"]


@pytest.mark.parametrize("body", [b"null", b"{}"])
async def test_an_empty_object_is_only_nameless(server: Api, body: bytes) -> None:
    """kind and apiVersion may be left out."""
    answer = await server.call("POST", SA, body, headers={"content-type": "application/json"})

    shaped(answer, 422, "Invalid")


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("limit=abc", 'strconv.ParseInt: parsing "abc": invalid syntax'),
        ("limit=", 'strconv.ParseInt: parsing "": invalid syntax'),
        ("limit=" + "9" * 20, "value out of range"),
        ("timeout=5", 'time: missing unit in duration "5"'),
        ("timeout=x", 'time: invalid duration "x"'),
        ("continue=x", "invalid continue token: "),
        ("labelSelector=a%3D%3D%3Db", "unable to parse requirement"),
        ("fieldSelector=a", "invalid selector: 'a'; can't understand 'a'"),
    ],
)
async def test_bad_queries(server: Api, query: str, message: str) -> None:
    """Each parameter that cannot be read is a 400 in the words that clients know."""
    answer = await server.call("GET", f"{SA}?{query}")

    assert message in shaped(answer, 400, "BadRequest")["message"]


@pytest.mark.parametrize(
    "target",
    [f"{SA}?labelSelector={'a,' * 20_000}", f"{SA}/{'%41' * 20_000}", f"{SA}?{'a&' * 20_000}"],
)
async def test_targets_have_a_longest_length(server: Api, target: str) -> None:
    """Targets are parsed before authentication, so long ones are refused without parsing."""
    for token in (None, BOB):
        answer = await server.call("GET", target, token=token)
        assert "is longer than 32768 characters" in shaped(answer, 400, "BadRequest")["message"]


async def test_long_selectors_are_fine(server: Api) -> None:
    """A thousand names in a selector are within the limit."""
    names = ",".join(f"application-{i}" for i in range(1000))
    answer = await server.call("GET", f"{SA}?labelSelector=app%20in%20({names})")

    assert answer.status == 200


@pytest.mark.parametrize(
    ("method", "query", "body", "message"),
    [
        ("POST", "dryRun=Some", {}, 'CreateOptions.meta.orch.io "" is invalid: dryRun: Unsupp'),
        ("POST", "dryRun=", {}, 'dryRun: Unsupported value: [""]: supported values: "All"'),
        ("POST", "fieldValidation=Hard", {}, 'fieldValidation: Unsupported value: "Hard": supp'),
        ("POST", "fieldManager=" + "m" * 129, {}, "fieldManager: Too long: may not be more th"),
        ("POST", "fieldManager=a%0Ab", {}, "invalid character U+000A (at position 1)"),
        ("DELETE", "propagationPolicy=", None, 'propagationPolicy: Unsupported value: ""'),
        (
            "DELETE",
            "propagationPolicy=Orphan&orphanDependents=true",
            None,
            "orphanDependents and deletionPropagation cannot be both set",
        ),
        ("GET", "sendInitialEvents=true", None, 'ListOptions.meta.orch.io "" is invalid: sendI'),
    ],
)
async def test_bad_options(server: Api, method: str, query: str, body: Any, message: str) -> None:
    """Options that make no sense are a 422 on the options themselves."""
    answer = await server.call(method, f"{SA}?{query}", body)

    assert message in shaped(answer, 422, "Invalid")["message"]


async def test_empty_segments(server: Api) -> None:
    """`{namespace}` and `{name}` are required: empty, they mean neither all nor nothing."""
    placeless = "/api/v1/namespaces//serviceaccounts"
    answers = [
        await server.call("GET", f"{CSR}//approval"),
        await server.call("POST", f"{SA}//token", {}),
        await server.call("GET", placeless),
        await server.call("GET", f"{placeless}?watch=1"),
        await server.call("GET", f"{placeless}/a"),
        await server.call("POST", placeless, {"metadata": {"name": "x"}}),
        await server.call("POST", f"{placeless}/a/token", {}),
    ]

    messages = [shaped(answer, 400, "BadRequest")["message"] for answer in answers]
    assert messages == [
        *["Name parameter required."] * 2,
        *["Namespace parameter required."] * 5,
    ]


async def test_trailing_slashes_are_tolerated(server: Api) -> None:
    """The path is trimmed before it is looked at."""
    await server.account("a")

    assert (await server.call("GET", f"{SA}/")).json["kind"] == "ServiceAccountList"
    assert (await server.call("GET", f"{SA}/a//")).json["kind"] == "ServiceAccount"
    assert (await server.call("GET", "/api//v1/serviceaccounts")).status == 404


async def test_names_that_are_tricks(server: Api) -> None:
    """Dots and percent signs name nothing; an encoded slash is a slash."""
    dots = await server.call("GET", f"{SA}/%2e%2e")
    percent = await server.call("GET", f"{SA}/a%25b")
    slash = await server.call("GET", f"{SA}/a%2fb")
    bytes_ = await server.call("GET", f"{SA}/%ff%fe")

    assert shaped(dots, 400, "BadRequest")["message"] == (
        "Name parameter invalid: \"..\": may not be '..'"
    )
    assert "may not contain '%'" in shaped(percent, 400, "BadRequest")["message"]
    assert slash.status == 404
    shaped(bytes_, 404, "NotFound")


async def test_a_watch_path_that_names_nothing(server: Api) -> None:
    """`/watch` without a resource is a client error."""
    answer = await server.call("GET", "/api/v1/watch", token=None)

    assert answer.status in (400, 404, 401)
    proxied = await server.call("GET", "/api/v1/proxy/")
    assert proxied.status == 400


async def test_the_export_parameter_is_gone(server: Api) -> None:
    """On one object it is refused, on a list ignored."""
    await server.account("a")
    one = await server.call("GET", f"{SA}/a?export=true")

    assert "is no longer supported" in shaped(one, 400, "BadRequest")["message"]
    assert (await server.call("GET", f"{SA}?export=true")).status == 200


async def test_warnings_are_within_a_budget(server: Api) -> None:
    """Each distinct text is one header; many are cut short, and none breaks a header."""
    body = {"metadata": {"name": "a"}, **{f"field{i}" + "x" * 300: 1 for i in range(60)}}
    answer = await server.call("POST", SA, body)
    few = await server.call("POST", SA, {"metadata": {"name": "b"}, 'a"\\\r\nb': 1})

    assert answer.status == 201
    assert 1 < len(answer.warnings) <= 60
    assert sum(map(len, answer.warnings)) < 8192
    assert all(warning.startswith('299 - "') for warning in few.warnings)


async def test_delete_options(server: Api) -> None:
    """The body is decoded leniently, but it must be DeleteOptions."""
    await server.account("a")
    wrong = await server.call("DELETE", f"{SA}/a", {"kind": "Pod", "apiVersion": "v1"})
    broken = await server.call(
        "DELETE", f"{SA}/a", b"{", headers={"content-type": "application/json"}
    )
    right = await server.call(
        "DELETE", f"{SA}/a", {"kind": "DeleteOptions", "apiVersion": "x/y", "unknown": 1}
    )

    assert 'no kind "Pod" is registered' in shaped(wrong, 400, "BadRequest")["message"]
    shaped(broken, 400, "BadRequest")
    assert right.status == 200


async def test_deleting_with_finalizers_and_orphan_dependents_false_is_accepted(
    server: Api,
) -> None:
    """202 only when that deprecated option was given."""
    await server.account("a", finalizers=["x/y"])
    answer = await server.call("DELETE", f"{SA}/a?orphanDependents=false")

    assert (answer.status, answer.json["kind"]) == (202, "ServiceAccount")


async def test_an_audit_id_is_echoed_or_made(server: Api) -> None:
    """The client's own comes back unchanged, unless it could break the header."""
    given = await server.call("GET", "/livez", headers={"audit-id": "mine-1"})
    odd = await server.call("GET", "/livez", headers={"audit-id": "a\tb\xe4"})
    none = await server.call("GET", "/nowhere")

    assert given.header("audit-id") == "mine-1"
    assert odd.header("audit-id") not in ("", None, "a\tb\xe4")
    assert len(none.header("audit-id") or "") == 36


async def test_a_failed_patch_reveals_nothing(server: Api) -> None:
    """The error for a patch whose result is no object quotes only the patch."""
    await server.account("a")
    answer = await server.call(
        "PATCH", f"{SA}/a", json.dumps({"metadata": 1}).encode(), headers=MERGE
    )

    status = shaped(answer, 422, "Invalid")
    assert status["details"]["causes"][0]["field"] == "patch"


@pytest.mark.parametrize(
    ("meta", "status"),
    [({"uid": "u"}, 409), ({"resourceVersion": "7"}, 201), ({"resourceVersion": "x"}, 400)],
)
async def test_a_put_where_nothing_is(server: Api, meta: dict[str, str], status: int) -> None:
    """It may not mean one that was there; a version is not held against it."""
    body = {"metadata": {"name": "r"} | meta, "roleRef": {"kind": "ClusterRole", "name": "view"}}
    path = "/apis/rbac.authorization.orch.io/v1/clusterrolebindings/r"

    answer = await server.call("PUT", path, json.dumps(body).encode())

    assert answer.status == status


@pytest.mark.parametrize(
    ("media", "body", "message"),
    [
        (
            "application/json",
            b'{"apiVersion":"a/b/c"}',
            'unexpected GroupVersion string: a/b/c ({"apiVersion":"a/b/c"})',
        ),
        ("application/yaml", b"kind: [\n", "yaml: line 1: did not find expected node content"),
    ],
)
async def test_an_error_about_a_missing_kind_quotes_the_beginning_of_the_body(
    server: Api, media: str, body: bytes, message: str
) -> None:
    """The error is that of the parser, not one about a missing kind."""
    path = "/api/v1/namespaces/default/serviceaccounts"
    answer = await server.call("POST", path, body, headers={"content-type": media})

    assert answer.status == 400
    assert f"(must be of type ServiceAccount): {message}" in answer.json["message"]


async def test_a_path_is_answered_as_before_whatever_was_asked_in_between(server: Api) -> None:
    """The route of a path is cached; method and query are not part of it."""
    account = (await server.account("robot"))["metadata"]["name"]
    paths = [SA, f"{SA}/{account}", f"{SA}/none", f"{SA}/{account}/token", f"{SA}//", "/livez", CSR]
    queries = ["", "?watch=1&timeoutSeconds=1", "?limit=1", "?dryRun=All"]
    asked = [
        (method, path + query)
        for method in ("GET", "HEAD", "POST", "PUT", "PATCH", "OPTIONS")
        for path in paths
        for query in queries
    ]

    async def answers(order: list[tuple[str, str]]) -> dict[tuple[str, str], int]:
        return {one: (await server.call(*one)).status for one in order}

    first = await answers(asked)

    assert await answers(asked[::-1]) == first
    assert {200, 400, 404, 405} <= set(first.values())
