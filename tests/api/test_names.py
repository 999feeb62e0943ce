"""Names: given, generated, and refused with the text that says why."""

import pytest

from tests.api.world import Api

SA = "/api/v1/namespaces/default/serviceaccounts"
CSR = "/apis/certificates.orch.io/v1/certificatesigningrequests"


@pytest.mark.parametrize("name", ["a", "a.b", "1", "x" * 253, "a-b.c-d"])
async def test_good_names(server: Api, name: str) -> None:
    """A DNS subdomain."""
    made = await server.account(name)

    assert (await server.call("GET", f"{SA}/{name}")).json["metadata"] == made["metadata"]


@pytest.mark.parametrize(
    ("name", "fields", "detail"),
    [
        ("A", 1, "a lowercase RFC 1123 subdomain must consist of"),
        ("-a", 1, "a lowercase RFC 1123 subdomain must consist of"),
        ("a..b", 1, "a lowercase RFC 1123 subdomain must consist of"),
        ("x" * 254, 1, "must be no more than 253 characters"),
        ("X" * 254, 2, "must be no more than 253 characters"),
        ("a/b", 1, "a lowercase RFC 1123 subdomain must consist of"),
        ("\u00e4", 1, "a lowercase RFC 1123 subdomain must consist of"),
    ],
)
async def test_bad_names(server: Api, name: str, fields: int, detail: str) -> None:
    """Length and pattern are separate errors; both are reported if both are wrong."""
    answer = await server.call("POST", SA, {"metadata": {"name": name}})

    assert answer.status == 422
    assert len(answer.json["details"]["causes"]) == fields
    assert detail in answer.json["details"]["causes"][0]["message"]
    assert answer.json["details"]["name"] == name


async def test_any_path_segment_names_a_request(server: Api) -> None:
    """Requests have no rule of their own, but a name must be a path segment."""
    for name, message in (("..", "may not be '..'"), ("a/b", "may not contain '/'")):
        answer = await server.call("POST", CSR, {"metadata": {"name": name}, "spec": {}})
        assert answer.status == 422
        assert message in answer.json["message"]


@pytest.mark.parametrize(
    ("base", "fields"),
    [
        ("a_", ["metadata.generateName", "metadata.name"]),
        ("x.", ["metadata.generateName"]),
        ("A-", ["metadata.name"]),
    ],
)
async def test_bases_are_judged_apart_from_what_they_become(
    server: Api, base: str, fields: list[str]
) -> None:
    """A generateName and the generated name each have their own findings."""
    answer = await server.call("POST", SA, {"metadata": {"generateName": base}})

    assert answer.status == 422
    assert sorted({c["field"] for c in answer.json["details"]["causes"]}) == fields
    assert answer.json["details"]["name"].startswith(base)


async def test_generated_names(server: Api) -> None:
    """The base and five characters; the base is kept, and a given name wins."""
    made = await server.make(SA, {"metadata": {"generateName": "job-"}})
    named = await server.make(SA, {"metadata": {"generateName": "job-", "name": "mine"}})

    assert made["metadata"]["name"].startswith("job-")
    assert len(made["metadata"]["name"]) == 9
    assert made["metadata"]["generateName"] == "job-"
    assert named["metadata"]["name"] == "mine"


async def test_a_taken_name_with_a_generate_name_is_reported_as_a_generated_one(
    server: Api,
) -> None:
    """As in Kubernetes: with a generateName the client may retry, also during a deletion."""
    both = {"metadata": {"generateName": "job-", "name": "mine", "finalizers": ["acme.io/hold"]}}
    await server.make(SA, both)
    taken = await server.call("POST", SA, both)
    await server.call("DELETE", f"{SA}/mine")
    going = await server.call("POST", SA, both)

    sentence = (
        'serviceaccounts "mine" already exists, '
        "the server was not able to generate a unique name for the object"
    )
    assert (taken.status, taken.json["message"]) == (409, sentence)
    assert taken.header("retry-after") == "1"
    assert (going.status, going.json["message"]) == (409, f"object is being deleted: {sentence}")
