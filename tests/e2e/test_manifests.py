"""The manifests of deploy/kubernetes, shown to a Kubernetes API server.

They run where KUBE_APISERVER names the program; the operating system has none.
"""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e import kube_apiserver
from tests.unit.kernel.store import etcd_process

PROGRAM = os.environ.get("KUBE_APISERVER", "")
KUBERNETES = Path(__file__).resolve().parents[2] / "deploy" / "kubernetes"

if not PROGRAM:
    pytest.skip("KUBE_APISERVER names no kube-apiserver", allow_module_level=True)


@pytest.fixture(scope="module")
def kubeconfig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("cluster")
    with (
        etcd_process.running() as etcd,
        kube_apiserver.running(
            Path(PROGRAM), kube_apiserver.ClusterFiles(folder / "files"), etcd.urls[0]
        ) as server,
    ):
        yield server.kubeconfig


def kubectl(kubeconfig: Path, *words: str, given: str = "") -> subprocess.CompletedProcess[str]:
    command = ["kubectl", "--kubeconfig", str(kubeconfig), *words]
    return subprocess.run(
        command, input=given, capture_output=True, text=True, check=False, timeout=120
    )


def pod(manifests: list[Any]) -> Any:
    """The Pod that the Deployment would create."""
    (template,) = (
        one["spec"]["template"] for one in manifests if one and one["kind"] == "Deployment"
    )
    meta = {**template["metadata"], "name": "orchid-1", "namespace": "orchid"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": template["spec"]}


@pytest.mark.system_package("etcd", "kubectl")
def test_api_server_takes_the_manifests_and_their_pod(kubeconfig: Path) -> None:
    """Every object is stored, and Pod Security `restricted` admits the Pod; another it does not."""
    joined = kubectl(kubeconfig, "kustomize", str(KUBERNETES))

    applied = kubectl(kubeconfig, "apply", "-f", "-", given=joined.stdout)
    kubectl(kubeconfig, "create", "serviceaccount", "default", "--namespace", "orchid")
    wanted = pod(list(yaml.safe_load_all(joined.stdout)))
    dry = ("create", "--dry-run=server", "-f", "-")
    good = kubectl(kubeconfig, *dry, given=json.dumps(wanted))
    wanted["spec"]["containers"][0]["securityContext"]["allowPrivilegeEscalation"] = True
    bad = kubectl(kubeconfig, *dry, given=json.dumps(wanted))

    assert applied.returncode == 0, applied.stderr
    assert "deployment.apps/orchid created" in applied.stdout
    assert good.returncode == 0, good.stderr
    assert 'violates PodSecurity "restricted:latest"' in bad.stderr
