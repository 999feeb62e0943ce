"""kubectl works from our OpenAPI documents: explain, apply with validation, and diff.

Releases differ: since 1.25 the server validates fields, since 1.27 explain reads OpenAPI v3.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.kubectl import Kubectl
from tests.e2e.serving import running_server

pytestmark = pytest.mark.system_package("kubectl")

GOOD = """
apiVersion: v1
kind: ServiceAccount
metadata: {name: builder, namespace: default, labels: {team: blue}}
secrets: [{name: first}]
imagePullSecrets: [{name: registry}]
---
apiVersion: v1
kind: Pod
metadata: {name: builder, namespace: default}
spec:
  serviceAccountName: builder
  containers: [{name: main, image: example.test/main, ports: [{containerPort: 80}]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: builder, namespace: default}
subjects: [{kind: ServiceAccount, name: builder, namespace: default}]
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}
"""
MISSPELT = """
apiVersion: v1
kind: ServiceAccount
metadata: {name: misspelt, namespace: default}
secretz: [{name: first}]
"""
INCOMPLETE = """
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: incomplete, namespace: default}
subjects: [{kind: ServiceAccount, namespace: default}]
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}
"""


@pytest.fixture(scope="module")
def kubectl(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubectl]:
    """Run kubectl as the administrator of a server in kubernetes naming."""
    place: Path = tmp_path_factory.mktemp("kubectl")
    flags = ("--naming", "kubernetes", "--controllers", "")
    with running_server(place / "data", *flags) as server:
        yield Kubectl(server.kubeconfig, place)


def test_explain_shows_the_description_of_a_field(kubectl: Kubectl) -> None:
    """explain shows types, descriptions and what is required."""
    account = kubectl("explain", "serviceaccounts")
    spec = kubectl("explain", "csr.spec")

    type_ = "<[]ObjectReference>" if kubectl.release >= (1, 27) else "<[]Object>"
    account.says("An identity for a workload", f"secrets\t{type_}")
    spec.says("signerName\t<string> -required-")


def test_apply_validates_and_applies(kubectl: Kubectl) -> None:
    """A good manifest is applied by the client and by the server; diff then finds nothing."""
    kubectl("delete", "--ignore-not-found", "-f", "-", stdin=GOOD)

    applied = kubectl("apply", "--validate", "-f", "-", stdin=GOOD)
    again = kubectl("apply", "-f", "-", stdin=GOOD)
    same = kubectl.run("diff", "-f", "-", stdin=GOOD)
    by_server = kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=GOOD)

    assert applied.out.count("created") == 3
    assert again.out.count("unchanged") == 3
    assert (same.code, same.out) == (0, "")
    assert by_server.out.count("serverside-applied") == 3, by_server.err


def test_diff_shows_what_would_change(kubectl: Kubectl) -> None:
    """diff asks for a dry run, which the document promises, and shows the change."""
    kubectl("apply", "-f", "-", stdin=GOOD)

    found = kubectl.run("diff", "-f", "-", stdin=GOOD.replace("team: blue", "team: green"))

    assert found.code == 1, found.err
    found.says("+    team: green")


@pytest.mark.parametrize(
    ("manifest", "by_client", "by_server"),
    [
        (
            MISSPELT,
            'unknown field "secretz" in io.k8s.api.core.v1.ServiceAccount',
            'strict decoding error: unknown field "secretz"',
        ),
        (
            INCOMPLETE,
            'missing required field "name" in io.k8s.api.rbac.v1.Subject',
            "subjects[0].name: Required value",
        ),
    ],
    ids=["misspelt", "incomplete"],
)
def test_validation_finds_mistakes(
    kubectl: Kubectl, manifest: str, by_client: str, by_server: str
) -> None:
    """A field that is unknown or missing is refused: by the client, or since 1.25 by the server."""
    found = kubectl.fails("apply", "-f", "-", stdin=manifest)

    found.says(by_server if kubectl.release >= (1, 25) else by_client)
