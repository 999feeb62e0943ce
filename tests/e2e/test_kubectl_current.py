"""Features that only a current kubectl has, in the names that it knows.

The operating system's kubectl is older, so these tests run only where ORCHID_KUBECTL names one of
1.33 or later. Everywhere, test_kubectl_requests.py holds the requests that it sends.
"""

import base64
import json
import os
from collections.abc import Iterator
from pathlib import Path

import jwt
import pytest
import yaml

from tests.e2e.issuing import new_request
from tests.e2e.kubectl import Kubectl
from tests.e2e.serving import Server, running_server

if "ORCHID_KUBECTL" not in os.environ:
    pytest.skip("ORCHID_KUBECTL names no current kubectl", allow_module_level=True)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server with its controllers; each test has a namespace of its own."""
    place = tmp_path_factory.mktemp("kubectl")
    with running_server(place / "data", "--naming", "kubernetes") as server:
        yield server


@pytest.fixture(scope="module")
def kubectl(server: Server) -> Kubectl:
    """The administrator at the keyboard."""
    return Kubectl(server.kubeconfig, server.data_dir.parent)


def config_map(namespace: str, name: str = "it", **data: str) -> str:
    meta = {"name": name, "namespace": namespace}
    return yaml.safe_dump(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": dict(data)}
    )


def test_who_one_is(kubectl: Kubectl) -> None:
    """whoami shows the caller, or whom the caller acts as, with uid and (from 1.35 on) extra."""
    has_extra = kubectl.release >= (1, 35)
    extra = ("--as-user-extra=team=blue",) if has_extra else ()
    acting = ("--as=jane", "--as-group=devs", "--as-uid=42", *extra)

    mine = kubectl("auth", "whoami")
    theirs = json.loads(kubectl(*acting, "auth", "whoami", "-o", "json").out)

    mine.says("Username", "system:masters", "X509SHA256=")
    assert theirs["status"]["userInfo"] == {
        "username": "jane",
        "uid": "42",
        "groups": ["devs", "system:authenticated"],
        **({"extra": {"team": ["blue"]}} if has_extra else {}),
    }


def test_tokens_are_created(kubectl: Kubectl) -> None:
    """create token takes audiences, a duration and a bound object, and reports errors."""
    here = ("-n", "tokens", "create")
    kubectl(*here, "sa", "app")
    kubectl(*here, "secret", "generic", "it")
    bound = ("--bound-object-kind=Secret", "--bound-object-name")

    token = kubectl(
        *here, "token", "app", "--audience=x", "--audience=y", "--duration=20m", *bound, "it"
    ).out.strip()
    claims = jwt.decode(token, options={"verify_signature": False})
    whole = yaml.safe_load(kubectl(*here, "token", "app", "-o", "yaml").out)

    assert claims["aud"] == ["x", "y"]
    assert claims["exp"] - claims["iat"] == 1200
    assert claims["sub"] == "system:serviceaccount:tokens:app"
    assert claims["kubernetes.io"]["secret"]["name"] == "it"
    assert whole["kind"] == "TokenRequest"
    assert whole["spec"]["expirationSeconds"] == 3600
    kubectl.fails(*here, "token", "nobody").says('serviceaccounts "nobody" not found')
    kubectl.fails(*here, "token", "app", *bound, "none").says('secrets "none" not found')
    other = (*bound, "it", "--bound-object-uid=1234")
    kubectl.fails(*here, "token", "app", *other).says("does not match the UID in record")
    kubectl.fails(*here, "token", "app", "--duration=1m").says("less than 10 minutes")


def test_a_token_is_spoken_with(kubectl: Kubectl, tmp_path: Path) -> None:
    """The account that a created token is of is the one that whoami names."""
    kubectl("-n", "spoken", "create", "sa", "app")
    token = kubectl("-n", "spoken", "create", "token", "app").out.strip()
    config = yaml.safe_load(kubectl.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": token}
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(config))

    shown = Kubectl(path, tmp_path)("auth", "whoami")

    shown.says("system:serviceaccount:spoken:app", "system:serviceaccounts:spoken", "JTI=")


def test_what_all_one_may(kubectl: Kubectl) -> None:
    """can-i --list shows the rules of another user, including the default ones."""
    kubectl("-n", "may", "create", "role", "app", "--verb=get,list", "--resource=pods")
    kubectl("-n", "may", "create", "rolebinding", "app", "--role=app", "--user=jane")

    listed = kubectl("--as=jane", "-n", "may", "auth", "can-i", "--list")

    listed.says("selfsubjectreviews.authentication.k8s.io", "[/readyz]")
    assert ["pods", "[]", "[]", "[get", "list]"] in listed.rows


def test_explain_reads_either_document(kubectl: Kubectl) -> None:
    """The third version of OpenAPI is read by itself, the second when asked for."""
    third = kubectl("explain", "csr.spec")
    second = kubectl("explain", "csr.spec", "--output=plaintext-openapiv2")

    third.says("GROUP:      certificates.k8s.io", "signerName\t<string> -required-")
    second.says("VERSION:  certificates.k8s.io/v1", "signerName\t<string> -required-")
    kubectl("explain", "clustertrustbundles.spec").says("VERSION:    v1\n", "trustBundle")
    kubectl("explain", "sa", "--recursive").says("automountServiceAccountToken\t<boolean>")
    kubectl.fails("explain", "sa.nothing").says('field "nothing" does not exist')


def test_unknown_fields_are_refused_warned_of_or_ignored(kubectl: Kubectl) -> None:
    """The server checks fields as --validate says, when creating and when applying."""
    wrong = config_map("fields", a="b") + "unknown: 1\n"
    apply = ("apply", "-f", "-")

    kubectl.fails("create", "-f", "-", stdin=wrong).says('strict decoding error: unknown field "un')
    kubectl("create", "--validate=warn", "-f", "-", stdin=wrong).says('Warning: unknown field "unk')
    kubectl.fails(*apply, stdin=wrong).says('unknown field "unknown"')
    kubectl(*apply, "--validate=warn", stdin=wrong).says('Warning: unknown field "unknown"')
    silent = kubectl(*apply, "--validate=ignore", stdin=wrong)
    kubectl.fails(*apply, "--server-side", stdin=wrong).says(".unknown: field not declared in sch")

    assert "unknown" not in silent.out + silent.err


def test_diff_by_the_server(kubectl: Kubectl) -> None:
    """diff --server-side shows what an apply would change, or with whom it would conflict."""
    apply = ("apply", "--server-side", "-f", "-")
    kubectl(*apply, stdin=config_map("differs", a="b"))
    diff = ("diff", "--server-side", "-f", "-")

    kubectl(*diff, stdin=config_map("differs", a="b"))
    kubectl.fails(*diff, stdin=config_map("differs", a="c")).says("-  a: b", "+  a: c")
    other = (*diff, "--field-manager=other")
    kubectl.fails(*other, stdin=config_map("differs", a="c")).says('conflict with "kubectl"')


def test_ownership_moves_from_client_to_server(kubectl: Kubectl) -> None:
    """Fields that the client applied are applied by the server from then on, without a conflict."""
    kubectl("apply", "-f", "-", stdin=config_map("moves", a="b", old="yes"))

    kubectl("apply", "--server-side", "-f", "-", stdin=config_map("moves", a="c"))
    kubectl("apply", "--server-side", "-f", "-", stdin=config_map("moves", a="d"))
    shown = ("-o", "json", "--show-managed-fields")
    left = json.loads(kubectl("-n", "moves", "get", "cm", "it", *shown).out)

    assert left["data"] == {"a": "d"}
    managers = {
        (owner["manager"], owner["operation"]) for owner in left["metadata"]["managedFields"]
    }
    assert managers == {("kubectl", "Apply"), ("kubectl-last-applied", "Apply")}


def test_a_set_of_objects_is_pruned(kubectl: Kubectl) -> None:
    """An apply set stores its members and deletes those that are no longer named."""
    apply = ("-n", "sets", "apply", "--prune", "--applyset=mine", "-f", "-")
    one, two = config_map("sets", "one", a="b"), config_map("sets", "two", a="b")
    kubectl("create", "ns", "sets")

    kubectl(*apply, stdin=f"{one}---\n{two}", KUBECTL_APPLYSET="true").says("two created")
    kubectl(*apply, stdin=one, KUBECTL_APPLYSET="true").says("one unchanged", "two pruned")


def test_wait_for_anything(kubectl: Kubectl) -> None:
    """wait supports fields, objects that are created later, and objects that do not exist."""
    here = ("-n", "anything")
    wait = (*here, "wait", "--timeout=30s")

    with kubectl.started(*wait, "--for=create", "cm/it") as waiting:
        kubectl("create", "-f", "-", stdin=config_map("anything", a="b"))
        came = waiting.communicate(timeout=30)[0]
    with kubectl.started(*wait, "--for=jsonpath={.data.a}=c", "cm/it") as waiting:
        kubectl(*here, "patch", "cm", "it", "--type=merge", "-p", '{"data":{"a":"c"}}')
        changed = waiting.communicate(timeout=30)[0]
    kubectl(*wait, "--for=delete", "cm/none")

    assert "condition met" in came
    assert "condition met" in changed


def test_subresources(kubectl: Kubectl, tmp_path: Path) -> None:
    """A status is read and patched by itself."""
    request = yaml.safe_dump(
        {
            "apiVersion": "certificates.k8s.io/v1",
            "kind": "CertificateSigningRequest",
            "metadata": {"name": "sub"},
            "spec": {
                "signerName": "example.test/own",
                "usages": ["client auth"],
                "request": base64.b64encode(new_request(tmp_path / "key", "/CN=jane")).decode(),
            },
        }
    )
    kubectl("create", "-f", "-", stdin=request)
    tried = {"type": "Tried", "status": "True", "reason": "Test"}
    status = json.dumps({"status": {"conditions": [tried]}})
    condition = "jsonpath={.status.conditions[0].type}"

    kubectl("get", "csr", "sub", "--subresource=status").says("sub", "example.test/own", "Pending")
    kubectl("patch", "csr", "sub", "--subresource=status", "--type=merge", "-p", status)
    kubectl("get", "csr", "sub", "-o", condition).says("Tried")
    kubectl("get", "csr", "sub", "--subresource=approval", "-o", "name").says("sub")
    kubectl.fails("get", "csr", "sub", "--subresource=scale").says("could not find the req")


def test_events_are_listed_and_watched(kubectl: Kubectl, tmp_path: Path) -> None:
    """events lists what the controllers say of one object, and follows it."""
    secret = (
        "apiVersion: v1\nkind: Secret\ntype: kubernetes.io/service-account-token\n"
        "metadata: {name: it, annotations: {kubernetes.io/service-account.name: app}}\n"
    )
    kubectl("-n", "events", "create", "sa", "app")
    words = ("-n", "events", "events", "--for=serviceaccount/app", "-w")

    with kubectl.started(*words) as watch:
        assert watch.stdout is not None
        kubectl("-n", "events", "apply", "-f", "-", stdin=secret)
        shown = next(line for line in watch.stdout if "TokenWritten" in line)

    assert "Secret it filled." in shown
    kubectl("-n", "events", "events", "--types=Normal").says("TokenWritten")
    kubectl("-n", "events", "get", "events").says("TokenWritten", "serviceaccount/app")
    note = "jsonpath={.items[0].note}"
    kubectl("-n", "events", "get", "events.events.k8s.io", "-o", note).says("Secret it filled.")


def test_roles_that_collect(kubectl: Kubectl) -> None:
    """A role made with an aggregation rule gets the rules of those it selects."""
    kubectl("create", "clusterrole", "part", "--verb=get", "--resource=pods")
    kubectl("label", "clusterrole", "part", "collect=yes")
    kubectl("create", "clusterrole", "whole", "--aggregation-rule=collect=yes")

    rule = "--for=jsonpath={.rules[0].resources[0]}=pods"
    kubectl("wait", rule, "clusterrole/whole", "--timeout=30s").says("condition met")
