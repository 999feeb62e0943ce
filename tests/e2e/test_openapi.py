"""The running server answers as its OpenAPI document says, for all callers and requests.

Requests are made up from the published document (schemathesis), as an administrator, as somebody
who may read, and as nobody. ORCHID_OPENAPI_EXAMPLES sets how many there are of each operation, and
makes up others every time; without it there are few, always the same, within a minute.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import requests
import schemathesis
from hypothesis import strategies as st
from openapi_spec_validator import validate
from schemathesis.checks import not_a_server_error
from schemathesis.core.failures import FailureGroup
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.conformance.exchanges import TOKENS
from tests.e2e.serving import Server, running_server

EXAMPLES = int(os.environ.get("ORCHID_OPENAPI_EXAMPLES", "0"))  # 0: two, always the same


def success_is_listed(context: Any, response: Any, case: Any) -> None:
    """The `default` answer of the document is for failures alone."""
    code = str(response.status_code)
    if code.startswith("2"):
        assert code in case.operation.definition.raw["responses"], f"{code} is not listed"


CHECKS = [
    not_a_server_error,
    success_is_listed,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
USERS = {"admin": "admin-token-0001", "viewer": "viewer-token-0008", "nobody": ""}
NAMES = ("fuzzed", "default")


class Caller:
    """One user of one server."""

    def __init__(self, server: Server, token: str) -> None:
        self.base = server.url
        self.session = requests.Session()
        self.session.trust_env = False  # the environment may name other authorities
        self.session.verify = str(server.data_dir / "ca.crt")
        self.options = {"timeout": 30, "verify": self.session.verify}
        if token:
            self.session.headers["Authorization"] = f"Bearer {token}"

    def document(self, path: str) -> Any:
        answer = self.session.get(self.base + path, timeout=30)
        answer.raise_for_status()
        return answer.json()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with static tokens."""
    data: Path = tmp_path_factory.mktemp("openapi") / "data"
    flags = ("--naming", "kubernetes", "--token-auth-file", str(TOKENS), "--controllers", "")
    with running_server(data, *flags) as running:
        yield running


@pytest.fixture(scope="module")
def admin(server: Server) -> Caller:
    """The administrator, who has let the readers read."""
    caller = Caller(server, USERS["admin"])
    group = next(g for g in groups(caller) if g.startswith("rbac."))
    binding = {
        "metadata": {"name": "readers"},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "view"},
        "subjects": [{"apiGroup": group, "kind": "Group", "name": "readers"}],
    }
    path = f"{server.url}/apis/{group}/v1/clusterrolebindings"
    answer = caller.session.post(path, json=binding, timeout=30)
    assert answer.status_code == 201, answer.text
    return caller


def groups(caller: Caller) -> list[str]:
    return [group["name"] for group in caller.document("/apis")["groups"]]


def test_every_document_is_valid(admin: Caller) -> None:
    """A validator of OpenAPI finds no fault with the old document nor with any of the new ones."""
    index = admin.document("/openapi/v3")["paths"]

    validate(admin.document("/openapi/v2"))
    for entry in index.values():
        validate(admin.document(entry["serverRelativeURL"]))

    assert "api/v1" in index


def test_every_type_and_field_is_described(admin: Caller) -> None:
    """No definition and no field is left without a word; types say more than their own name."""
    definitions = admin.document("/openapi/v2")["definitions"]

    silent = [
        f"{name}.{field}"
        for name, schema in definitions.items()
        for field, described in {"": schema, **schema.get("properties", {})}.items()
        if described.get("description", "") in ("", name.rpartition(".")[2])
    ]

    assert silent == []


@pytest.mark.parametrize("user", USERS)
def test_answers_are_as_the_document_says(server: Server, admin: Caller, user: str) -> None:
    """No answer is a 5xx, and none has a status, a media type or a body that is not described."""
    caller = Caller(server, USERS[user])
    wanted = EXAMPLES or 2
    examples = wanted if user == "admin" else max(1, wanted // 4)
    problems: list[str] = []

    for key in sorted(admin.document("/openapi/v3")["paths"]):
        document = admin.document(f"/openapi/v3/{key}")
        del document["security"]  # or credentials are made up as well, in place of ours
        for found in schemathesis.openapi.from_dict(document).get_all_operations():
            operation = found.ok()
            if "/watch/" not in operation.path:
                problems += tried(operation, caller, examples)

    assert problems == []


def tried(operation: Any, caller: Caller, examples: int) -> list[str]:
    """The faults in the answers to some requests for one operation."""
    problems: list[str] = []

    @hypothesis.given(case=operation.as_strategy(), name=st.sampled_from(NAMES), tame=st.booleans())
    @hypothesis.settings(
        max_examples=examples,
        derandomize=not EXAMPLES,
        database=None,
        deadline=None,
        phases=[hypothesis.Phase.generate],
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    def attempt(case: Any, name: str, tame: bool) -> None:
        if tame:
            # Names made up at random hit nothing: then only refusals would be tried.
            tamed(case, name)
        (case.query or {}).pop("watch", None)  # it would last for minutes
        answer = case.call(base_url=caller.base, session=caller.session, **caller.options)
        try:
            case.validate_response(answer, checks=CHECKS)
        except (AssertionError, FailureGroup) as problem:  # each is reported, with its request
            problems.append(
                f"{case.as_curl_command()}\n{answer.status_code} {answer.text[:500]}\n{problem}"
            )

    attempt()
    return problems


def tamed(case: Any, name: str) -> None:
    """The same request, for an object that may be there."""
    places = {"namespace": "default", "name": name}
    for place in case.path_parameters or {}:
        case.path_parameters[place] = places[place]
    if isinstance(case.body, dict) and case.method in ("POST", "PUT"):
        for word in ("kind", "apiVersion"):
            case.body.pop(word, None)
        case.body["metadata"] = {"name": name}
