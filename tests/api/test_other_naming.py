"""Clients of the other set of names learn which set the server uses."""

import json
from pathlib import Path

import pytest

from tests.api.world import ALICE, Api, api

APPLY = {"content-type": "application/apply-patch+yaml"}
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
WANTED = (
    "this server was started with --naming orch and serves authorization.orch.io, "
    "not authorization.k8s.io"
)
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


async def test_a_group_of_the_other_naming_is_answered_with_a_warning(server: Api) -> None:
    """The status is as ever; the warning names the group that there is. kubectl prints it."""
    answer = await server.call("POST", REVIEWS, {}, token=ALICE)

    assert answer.status == 403
    assert any(WANTED in one for one in answer.warnings)


async def test_an_administrator_who_asks_for_a_group_of_the_other_naming_is_warned(
    server: Api,
) -> None:
    """There the answer is that the resource does not exist."""
    answer = await server.call("POST", REVIEWS, {})

    assert answer.status == 404
    assert any(WANTED in one for one in answer.warnings)


@pytest.mark.parametrize(
    "path", ["/apis/example.com/v1/things", "/apis/identity.orch.io/v1alpha1/things", "/nothing"]
)
async def test_other_unknown_resources_are_answered_without_a_warning(
    server: Api, path: str
) -> None:
    """They belong to neither set."""
    answer = await server.call("GET", path)

    assert answer.status == 404
    assert not answer.warnings


async def test_the_warning_names_the_groups_of_kubernetes_with_that_naming(tmp_path: Path) -> None:
    """And never the group that is the same in both sets."""
    async with api(tmp_path, naming="kubernetes") as server:
        other = await server.call("GET", "/apis/certificates.orch.io/v1/certificatesigningrequests")
        same = await server.call("GET", "/apis/identity.orch.io/v1alpha1/things")

    assert "serves certificates.k8s.io, not certificates.orch.io" in other.warnings[0]
    assert not same.warnings


async def test_server_side_apply_after_an_apply_of_kubectl_conflicts_with_nothing(
    server: Api,
) -> None:
    """kubectl has one annotation, whatever the naming of the server."""
    path = "/api/v1/namespaces/default/configmaps"
    applied = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}
    first = {**applied, "data": {"key": "1"}}
    kept = {**applied["metadata"], "annotations": {LAST_APPLIED: json.dumps(first)}}
    await server.make(f"{path}?fieldManager=kubectl-client-side-apply", {**first, "metadata": kept})

    second = {**applied, "data": {"key": "2"}}
    answer = await server.call(
        "PATCH", f"{path}/a?fieldManager=kubectl", json.dumps(second).encode(), headers=APPLY
    )

    assert answer.status == 200, answer.text
    annotation = answer.json["metadata"]["annotations"][LAST_APPLIED]
    assert json.loads(annotation)["data"] == {"key": "2"}
