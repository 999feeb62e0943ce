"""Debian's kubectl works from our OpenAPI document: explain, apply with validation, and diff."""

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.serving import running_server

Kubectl = Callable[..., "subprocess.CompletedProcess[str]"]

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

        def run(*words: str, stdin: str = "") -> "subprocess.CompletedProcess[str]":
            return subprocess.run(
                ["kubectl", "--kubeconfig", str(server.kubeconfig), *words],
                input=stdin,
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
                env={"HOME": str(place), "PATH": "/usr/local/bin:/usr/bin:/bin"},
            )

        yield run


def test_explain_tells_what_we_say_of_a_field(kubectl: Kubectl) -> None:
    """explain shows types, descriptions and what is required."""
    account = kubectl("explain", "serviceaccounts")
    spec = kubectl("explain", "csr.spec")

    assert "An identity for a workload" in account.stdout
    assert "secrets\t<[]Object>" in account.stdout
    assert "signerName\t<string> -required-" in spec.stdout


def test_apply_validates_and_applies(kubectl: Kubectl) -> None:
    """A good manifest is applied by the client and by the server; diff then finds nothing."""
    kubectl("delete", "--ignore-not-found", "-f", "-", stdin=GOOD)

    applied = kubectl("apply", "--validate", "-f", "-", stdin=GOOD)
    again = kubectl("apply", "-f", "-", stdin=GOOD)
    same = kubectl("diff", "-f", "-", stdin=GOOD)
    by_server = kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=GOOD)

    assert applied.returncode == 0, applied.stderr
    assert applied.stdout.count("created") == 3
    assert again.stdout.count("unchanged") == 3
    assert (same.returncode, same.stdout) == (0, "")
    assert by_server.stdout.count("serverside-applied") == 3, by_server.stderr


def test_diff_shows_what_would_change(kubectl: Kubectl) -> None:
    """diff asks for a dry run, which the document promises, and shows the change."""
    kubectl("apply", "-f", "-", stdin=GOOD)

    found = kubectl("diff", "-f", "-", stdin=GOOD.replace("team: blue", "team: green"))

    assert found.returncode == 1, found.stderr
    assert "+    team: green" in found.stdout


@pytest.mark.parametrize(
    ("manifest", "complaint"),
    [
        (MISSPELT, 'unknown field "secretz" in io.k8s.api.core.v1.ServiceAccount'),
        (INCOMPLETE, 'missing required field "name" in io.k8s.api.rbac.v1.Subject'),
    ],
    ids=["misspelt", "incomplete"],
)
def test_validation_finds_mistakes(kubectl: Kubectl, manifest: str, complaint: str) -> None:
    """A field that is unknown or missing is refused by the client, by the definition's name."""
    found = kubectl("apply", "-f", "-", stdin=manifest)

    assert found.returncode != 0
    assert complaint in found.stderr
