"""Which form an answer takes: media types, transforms, indentation, compression."""

import gzip
import json
from typing import Any

import pytest
import yaml

from tests.api.world import Api

SA = "/api/v1/namespaces/default/serviceaccounts"
TABLE = "application/json;as=Table;g=meta.orch.io;v=v1"
PARTIAL = "application/json;as=PartialObjectMetadata;g=meta.orch.io;v=v1"
PARTIAL_LIST = "application/json;as=PartialObjectMetadataList;g=meta.orch.io;v=v1"
PROTOBUF = "application/vnd.kubernetes.protobuf"


async def get(server: Api, target: str, accept: str, **headers: str) -> Any:
    return await server.call("GET", target, headers={"accept": accept, **headers})


@pytest.mark.parametrize(
    ("accept", "media"),
    [
        ("", "application/json"),
        ("*/*", "application/json"),
        ("application/yaml", "application/yaml"),
        ("application/yaml, application/json", "application/yaml"),
        ("application/json;q=0.5, application/yaml", "application/yaml"),
        ("application/*;q=0.9,application/yaml;q=0.8", "application/yaml"),
        ("application/yaml;q=0.8,application/*;q=0.9", "application/json"),
        ("application/json;q=0", "application/json"),
        ("text/html, */*", "application/json"),
        ("application/json;sv=v1;profile=x;unknown=y", "application/json"),
        ("application/json;sv=v2, application/yaml", "application/yaml"),
        (PROTOBUF, PROTOBUF),
    ],
)
async def test_accept_decides(server: Api, accept: str, media: str) -> None:
    """Clauses in the reference's order, the first that can be served."""
    answer = await get(server, SA, accept)

    assert (answer.status, answer.header("content-type")) == (200, media)


@pytest.mark.parametrize("accept", ["application/*", "*", "text/html", "Application/JSON"])
async def test_the_router_wants_a_literal_type(server: Api, accept: str) -> None:
    """No clause that is offered to the letter: 406 with what there is."""
    answer = await get(server, SA, accept)

    assert answer.status == 406
    assert answer.json["reason"] == "NotAcceptable"
    assert answer.json["details"] == {}
    assert answer.json["message"].endswith(
        "application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch"
    )


async def test_a_transform_nobody_knows_is_not_acceptable(server: Api) -> None:
    """A clause that names an unknown target is unusable; the next one counts."""
    alone = await get(server, SA, "application/json;as=Table;g=other;v=v1")
    other = await get(server, SA, "application/json;as=Table;g=other;v=v1, application/json")

    assert alone.status == 406
    assert alone.json["message"].startswith("only the following media types are accepted: ")
    assert other.json["kind"] == "ServiceAccountList"


async def test_yaml_out_and_in(server: Api) -> None:
    """YAML is served with sorted keys and understood in bodies."""
    body = b"metadata:\n  name: in-yaml\n  labels:\n    answer: 'on'\n"
    made = await server.call("POST", SA, body, headers={"content-type": "application/yaml"})
    shown = await get(server, f"{SA}/in-yaml", "application/yaml")
    document = yaml.safe_load(shown.body)

    assert made.status == 201
    assert document["metadata"]["labels"] == {"answer": "on"}
    assert list(document) == sorted(document)
    assert shown.text.endswith("\n")


async def test_an_error_is_negotiated_too(server: Api) -> None:
    """In YAML if asked so; where only a transform is asked for, indented JSON."""
    as_yaml = await get(server, f"{SA}/none", "application/yaml")
    as_table = await get(server, f"{SA}/none", TABLE)
    as_either = await get(server, f"{SA}/none", f"{TABLE}, application/json")

    assert as_yaml.header("content-type") == "application/yaml"
    assert yaml.safe_load(as_yaml.body)["code"] == 404
    assert as_table.status == 404
    assert as_table.text.startswith('{\n  "kind": "Status"')
    assert as_either.text.startswith('{"kind":"Status"')


async def test_partial_metadata(server: Api) -> None:
    """An object reduced to its metadata, a list of them, and neither where the other is."""
    await server.account("a", labels={"x": "y"})
    one = await get(server, f"{SA}/a", PARTIAL)
    many = await get(server, SA, PARTIAL_LIST)
    wrong = await get(server, SA, PARTIAL)
    also_wrong = await get(server, f"{SA}/a", PARTIAL_LIST)
    beta = await get(server, f"{SA}/a", PARTIAL.replace("v=v1", "v=v1beta1"))

    assert (one.json["kind"], one.json["apiVersion"]) == (
        "PartialObjectMetadata",
        "meta.orch.io/v1",
    )
    assert set(one.json) == {"kind", "apiVersion", "metadata"}
    assert many.json["kind"] == "PartialObjectMetadataList"
    assert many.json["items"][0]["kind"] == "PartialObjectMetadata"
    assert (wrong.status, also_wrong.status) == (406, 406)
    assert "but the requested object is a list" in wrong.json["message"]
    assert "but the requested object is not a list" in also_wrong.json["message"]
    assert beta.json["apiVersion"] == "meta.orch.io/v1beta1"


async def test_the_name_of_the_group_is_the_askers(server: Api) -> None:
    """Stock clients ask for meta.k8s.io and get it."""
    answer = await get(server, SA, TABLE.replace("orch.io", "k8s.io"))

    assert answer.json["apiVersion"] == "meta.k8s.io/v1"


async def test_tables(server: Api) -> None:
    """Columns, cells, and of the object as much as includeObject asks for."""
    await server.account("a")
    table = (await get(server, SA, TABLE)).json
    bare = (await get(server, f"{SA}?includeObject=None", TABLE)).json
    full = (await get(server, f"{SA}/a?includeObject=Object", TABLE)).json
    wrong = await get(server, f"{SA}?includeObject=Some", TABLE)

    assert [column["name"] for column in table["columnDefinitions"]] == ["Name", "Age"]
    assert table["columnDefinitions"][0]["format"] == "name"
    assert table["rows"][0]["cells"][0] == "a"
    assert table["rows"][0]["object"]["kind"] == "PartialObjectMetadata"
    assert bare["rows"][0]["object"] is None
    assert full["rows"][0]["object"]["kind"] == "ServiceAccount"
    assert full["metadata"]["resourceVersion"]
    assert wrong.status == 400
    assert 'includeObject: Invalid value: "Some"' in wrong.json["message"]


async def test_reviews_have_no_table(server: Api) -> None:
    """Where there are no columns, a Table alone is not acceptable."""
    target = "/apis/authentication.orch.io/v1/selfsubjectreviews"
    answer = await server.call("POST", target, {}, headers={"accept": TABLE})
    partial = await server.call("POST", target, {}, headers={"accept": PARTIAL})

    assert answer.status == 406
    assert partial.status == 201


async def test_finalizing_a_namespace_gives_the_namespace_and_no_table(server: Api) -> None:
    """Nobody looks at it in columns; who takes plain JSON too gets that."""
    namespace = await server.make("/api/v1/namespaces", {"metadata": {"name": "n"}})
    target = "/api/v1/namespaces/n/finalize"
    table = await server.call("PUT", target, namespace, headers={"accept": TABLE})
    both = await server.call(
        "PUT", target, namespace, headers={"accept": f"{TABLE},application/json"}
    )

    assert (table.status, both.status) == (406, 200)
    assert both.json["kind"] == "Namespace"


@pytest.mark.parametrize(
    ("query", "agent", "accept", "indented"),
    [
        ("", "tests", "", False),
        ("?pretty=true", "tests", "", True),
        ("?pretty=yes", "curl/8", "", False),
        ("?pretty=", "curl/8", "", True),
        ("", "Wget/1", "", True),
        ("", "Mozilla/5.0 x", "", True),
        ("", "CURL/8", "", False),
        ("?pretty=0", "tests", "application/json;pretty=1", True),
    ],
)
async def test_indentation(
    server: Api, query: str, agent: str, accept: str, indented: bool
) -> None:
    """The parameter decides, else the client; a parameter of Accept can only ask for it."""
    answer = await get(server, SA + query, accept, **{"user-agent": agent})

    assert (b"\n  " in answer.body) is indented


async def test_large_answers_are_compressed_for_who_can_read_them(server: Api) -> None:
    """Above 128 KiB, for the exact word gzip, with Vary."""
    for i in range(3):
        await server.account(f"a{i}", annotations={"x": "y" * 60_000})
    plain = await get(server, SA, "*/*", **{"accept-encoding": "gzip;q=1.0, *"})
    packed = await get(server, SA, "*/*", **{"accept-encoding": "br, gzip"})
    small = await get(server, f"{SA}/a0", "*/*", **{"accept-encoding": "gzip"})

    assert plain.header("content-encoding") is None
    assert packed.header("content-encoding") == "gzip"
    assert packed.header("vary") == "Accept-Encoding"
    assert gzip.decompress(packed.body) == plain.body
    assert small.header("content-encoding") is None


async def test_html_characters_are_escaped(server: Api) -> None:
    """As the reference writes JSON, so that a browser that sniffs finds no tags."""
    made = await server.account("a", annotations={"x": "<b>&\u2028"})
    answer = await get(server, f"{SA}/a", "")

    assert b"\\u003cb\\u003e\\u0026\\u2028" in answer.body
    assert made["metadata"]["annotations"] == {"x": "<b>&\u2028"}


@pytest.mark.parametrize(
    ("media", "status"),
    [
        ("application/json; charset=utf-8", 201),
        ("APPLICATION/JSON", 201),
        ("application/json;", 201),
        ('application/json ; a= "b;c" ;A="b;c";', 201),
        ("application/json;;", 415),
        ("application/json;charset", 415),
        ("application/json;a=b;a=c", 415),
        ('application/json;a="b', 415),
        ("application/*", 415),
        ("text/json", 415),
        (",", 415),
    ],
)
async def test_forms_of_a_body(server: Api, media: str, status: int) -> None:
    """Case and parameters that can be read do not matter, wildcards do not match."""
    body = json.dumps({"metadata": {"name": "a"}}).encode()
    answer = await server.call("POST", SA, body, headers={"content-type": media})

    assert answer.status == status


async def test_no_content_type_means_json(server: Api) -> None:
    """A body nobody described is read as JSON."""
    answer = await server.call("POST", SA, b'{"metadata":{"name":"a"}}')

    assert answer.status == 201


async def test_a_watch_is_not_served_as_yaml(server: Api) -> None:
    """Streams have a form of their own; the refusal itself is YAML."""
    answer = await get(server, f"{SA}?watch=1", "application/yaml")

    assert (answer.status, answer.header("content-type")) == (406, "application/yaml")
    assert "stream=watch" in yaml.safe_load(answer.body)["message"]


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("fieldSelector=x%3Dy", 400),
        ("resourceVersion=x", 400),
        ("resourceVersionMatch=Exact", 422),
        ("timeoutSeconds=1", 406),
    ],
)
async def test_a_watch_is_refused_for_its_options_before_its_form(
    server: Api, query: str, status: int
) -> None:
    """A watch as YAML is refused only after all other checks."""
    answer = await get(server, f"{SA}?watch=true&{query}", "application/yaml")
    preferred = await get(server, f"{SA}?watch=true&{query}", "application/yaml, application/json")

    assert (answer.status, preferred.status) == (status, status)


async def test_options_or_the_form_of_a_body_first(server: Api) -> None:
    """A PUT is refused for its options first, a POST for the form of its body."""
    await server.account("a")
    plain = {"content-type": "text/plain"}
    put = await server.call("PUT", f"{SA}/a?dryRun=Some", b"x", headers=plain)
    post = await server.call("POST", f"{SA}?dryRun=Some", b"x", headers=plain)

    assert (put.status, post.status) == (422, 415)
