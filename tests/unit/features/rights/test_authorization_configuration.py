"""The AuthorizationConfiguration file: what it may say, and all that can be wrong with it."""

import json
from pathlib import Path
from typing import Any

import pytest

from orchid.features.rights.authorizers.configuration import (
    AuthorizerSettings,
    InvalidAuthorization,
    read_configuration,
)
from orchid.features.rights.authorizers.webhook import WebhookSettings
from orchid.kernel.expressions import cel
from orchid.kernel.expressions.cel import Compiler

V1 = "apiserver.config.orch.io/v1"


@pytest.fixture
def kubeconfig(tmp_path: Path) -> str:
    path = tmp_path / "webhook.yaml"
    path.write_text("{}")
    return str(path)


def document(*authorizers: Any, **more: Any) -> bytes:
    kind = "AuthorizationConfiguration"
    return json.dumps(
        {"apiVersion": V1, "kind": kind, "authorizers": list(authorizers), **more}
    ).encode()


def webhook(kubeconfig: str, name: str = "corp", **more: Any) -> dict[str, Any]:
    settings = {
        "timeout": "3s",
        "subjectAccessReviewVersion": "v1",
        "failurePolicy": "Deny",
        "connectionInfo": {"type": "KubeConfigFile", "kubeConfigFile": kubeconfig},
    }
    return {"type": "Webhook", "name": name, "webhook": {**settings, **more}}


def problem(text: bytes, **more: Any) -> str:
    with pytest.raises(InvalidAuthorization) as caught:
        read_configuration(text, Compiler(), **more)
    return str(caught.value)


def test_a_whole_file_is_read(kubeconfig: str) -> None:
    """Types by name, several webhooks, and the defaults of what is left out."""
    text = f"""\
apiVersion: {V1}
kind: AuthorizationConfiguration
authorizers:
  - type: Webhook
    name: first.example
    webhook:
      timeout: 3s
      subjectAccessReviewVersion: v1
      failurePolicy: Deny
      authorizedTTL: 1m30s
      unauthorizedTTL: 5s
      cacheUnauthorizedRequests: false
      connectionInfo: {{type: KubeConfigFile, kubeConfigFile: {kubeconfig}}}
  - {{type: Node, name: node}}
  - {{type: RBAC, name: rbac}}
  - type: Webhook
    name: last
    webhook:
      timeout: 500ms
      subjectAccessReviewVersion: v1beta1
      failurePolicy: NoOpinion
      cacheAuthorizedRequests: false
      connectionInfo: {{type: KubeConfigFile, kubeConfigFile: {kubeconfig}}}
"""

    assert read_configuration(text.encode(), Compiler()) == (
        AuthorizerSettings(
            "Webhook",
            "first.example",
            WebhookSettings("v1", 90.0, 0.0, True, kubeconfig, 3.0),
        ),
        AuthorizerSettings("Node", "node"),
        AuthorizerSettings("RBAC", "rbac"),
        AuthorizerSettings(
            "Webhook",
            "last",
            WebhookSettings("v1beta1", 0.0, 30.0, False, kubeconfig, 0.5),
        ),
    )


@pytest.mark.parametrize("group", ["apiserver.config.orch.io", "apiserver.config.k8s.io"])
@pytest.mark.parametrize("version", ["v1", "v1beta1"])
def test_every_version_is_understood_in_both_namings(group: str, version: str) -> None:
    """A file for the reference can be used as it is."""
    text = document({"type": "RBAC", "name": "rbac"}, apiVersion=f"{group}/{version}")

    assert read_configuration(text, Compiler()) == (AuthorizerSettings("RBAC", "rbac"),)


def test_conditions_are_kept_with_their_webhook(kubeconfig: str) -> None:
    """They are compiled when the file is read, so that nothing is learned too late."""
    sources = ["request.user == 'ann'", "has(request.resourceAttributes)"]
    text = document(
        webhook(
            kubeconfig,
            matchConditionSubjectAccessReviewVersion="v1",
            matchConditions=[{"expression": source} for source in sources],
        )
    )

    (found,) = read_configuration(text, Compiler())

    assert found.webhook is not None
    assert found.webhook.conditions == tuple(sources)


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({"kind": "Policy"}, "an AuthorizationConfiguration of apiserver.config.orch.io/v1 or "),
        ({"apiVersion": "apiserver.config.orch.io/v2"}, "not 'AuthorizationConfiguration' of "),
        ({"authorizers": []}, "authorizers: Required value: at least one authorization mode"),
        ({"authorizers": "RBAC"}, "authorizers"),
    ],
)
def test_another_document_is_refused(more: dict[str, Any], text: str) -> None:
    """Kind and version are looked at, and an empty list decides nothing."""
    assert text in problem(document(**more))


def test_all_unknown_and_repeated_fields_are_named(kubeconfig: str) -> None:
    """Strict: all unknown and duplicate members are reported together."""
    text = f"""\
apiVersion: {V1}
kind: AuthorizationConfiguration
extra: 1
authorizers:
  - type: Webhook
    name: a
    name: b
    webhook: {{timeOut: 3s, connectionInfo: {{kubeconfig: {kubeconfig}}}}}
"""

    found = problem(text.encode())

    assert found.startswith("strict decoding error: ")
    for expected in (
        'key "name" already set',
        'unknown field "extra"',
        'unknown field "authorizers[0].webhook.timeOut"',
        'unknown field "authorizers[0].webhook.connectionInfo.kubeconfig"',
    ):
        assert expected in found


@pytest.mark.parametrize("text", [b"", b"[]", b"{", b"\xff", b"a: [", b"- 1"])
def test_what_is_no_document_is_refused(text: bytes) -> None:
    """Nonsense has an answer, not a traceback."""
    assert problem(text)


def test_all_errors_of_authorizers_are_reported_together() -> None:
    """One message has everything to fix in the file."""
    text = document(
        {},
        {"type": "ABAC", "name": "abac"},
        {"type": "RBAC", "name": "policy"},
        {"type": "RBAC", "name": "rbac"},
        {"type": "Node", "name": "node", "webhook": {}},
        {"type": "Webhook", "name": "Bad_Name"},
        {"type": "Webhook"},
        {"type": "Webhook", "name": "node"},
    )

    assert problem(text).split("; ") == [
        "authorizers[0].type: Required value",
        'authorizers[1].type: Unsupported value: "ABAC": supported values: "Node", "RBAC", '
        '"Webhook"',
        "authorizers[2].name: Invalid value: \"policy\": must be 'rbac' for type RBAC",
        'authorizers[3].type: Duplicate value: "RBAC"',
        'authorizers[4].webhook: Invalid value: "non-null": may only be specified when '
        "type=Webhook",
        'authorizers[5].name: Invalid value: "Bad_Name": authorizer name is invalid: a lowercase '
        "RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and "
        "must start and end with an alphanumeric character (e.g. 'example.com', regex used for "
        "validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')",
        "authorizers[5].webhook: Required value: required when type=Webhook",
        "authorizers[6].name: Required value",
        "authorizers[6].webhook: Required value: required when type=Webhook",
        'authorizers[7].name: Duplicate value: "node"',
        "authorizers[7].webhook: Required value: required when type=Webhook",
    ]


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({"timeout": ""}, "timeout: Required value"),
        ({"timeout": "0s"}, 'timeout: Invalid value: "0s": must be > 0s and <= 30s'),
        ({"timeout": "31s"}, 'timeout: Invalid value: "31s": must be > 0s and <= 30s'),
        ({"timeout": "soon"}, 'timeout: Invalid value: "soon": must be > 0s and <= 30s'),
        ({"authorizedTTL": "-1s"}, 'authorizedTTL: Invalid value: "-1s": must be > 0s'),
        ({"unauthorizedTTL": "x"}, 'unauthorizedTTL: Invalid value: "x": must be > 0s'),
        ({"subjectAccessReviewVersion": ""}, "subjectAccessReviewVersion: Required value"),
        (
            {"subjectAccessReviewVersion": "v2"},
            'subjectAccessReviewVersion: Unsupported value: "v2": supported values: "v1", '
            '"v1beta1"',
        ),
        ({"failurePolicy": ""}, "failurePolicy: Required value"),
        (
            {"failurePolicy": "Allow"},
            'failurePolicy: Unsupported value: "Allow": supported values: "NoOpinion", "Deny"',
        ),
        ({"connectionInfo": {}}, "connectionInfo.type: Required value"),
        (
            {"connectionInfo": {"type": "InClusterConfig"}},
            'connectionInfo.type: Unsupported value: "InClusterConfig": supported values: '
            '"KubeConfigFile"',
        ),
        (
            {"connectionInfo": {"type": "KubeConfigFile"}},
            "connectionInfo.kubeConfigFile: Required value",
        ),
        (
            {"connectionInfo": {"type": "KubeConfigFile", "kubeConfigFile": "here.yaml"}},
            'connectionInfo.kubeConfigFile: Invalid value: "here.yaml": must be an absolute path',
        ),
        (
            {"connectionInfo": {"type": "KubeConfigFile", "kubeConfigFile": "/nowhere/x"}},
            'connectionInfo.kubeConfigFile: Invalid value: "/nowhere/x": error loading file: no '
            "such file",
        ),
        (
            {"connectionInfo": {"type": "KubeConfigFile", "kubeConfigFile": "/"}},
            'connectionInfo.kubeConfigFile: Invalid value: "/": must be a regular file',
        ),
        (
            {"matchConditionSubjectAccessReviewVersion": "v1beta1"},
            'matchConditionSubjectAccessReviewVersion: Unsupported value: "v1beta1": supported '
            'values: "v1"',
        ),
        (
            {"matchConditions": [{"expression": " "}]},
            "matchConditionSubjectAccessReviewVersion: Required value: required if match "
            "conditions are specified; authorizers[0].webhook.matchConditions[0].expression: "
            "Required value",
        ),
        (
            {
                "matchConditionSubjectAccessReviewVersion": "v1",
                "matchConditions": [{"expression": ""}] * 65,
            },
            "matchConditions: Too many: 65: must have at most 64 items",
        ),
    ],
)
def test_what_can_be_wrong_with_a_webhook(
    kubeconfig: str, more: dict[str, Any], expected: str
) -> None:
    """Each with its place and, where there are some, the values that would do."""
    assert problem(document(webhook(kubeconfig, **more))) == f"authorizers[0].webhook.{expected}"


def test_bad_conditions_are_reported_with_their_field(kubeconfig: str) -> None:
    """Expressions that do not compile, are no conditions, or are duplicates."""
    sources = ["request.user == 'a'", "request.user == 'a'", "request.user", "request.nobody == ''"]
    text = document(
        webhook(
            kubeconfig,
            matchConditionSubjectAccessReviewVersion="v1",
            matchConditions=[{"expression": source} for source in sources],
        )
    )

    place = "authorizers[0].webhook.matchConditions"
    assert problem(text).split("; ") == [
        f"{place}[1].expression: Duplicate value: \"request.user == 'a'\"",
        f'{place}[2].expression: Invalid value: "request.user": must evaluate to bool',
        f"{place}[3].expression: Invalid value: \"request.nobody == ''\": compilation failed: "
        "undefined field 'nobody'",
    ]


def test_conditions_without_their_library_stop_the_start(
    kubeconfig: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A condition that cannot run protects nobody."""

    def missing(variable: str) -> Any:
        raise cel.LibraryMissing("expressions need one more package")

    monkeypatch.setattr(cel, "_environment", missing)
    text = document(
        webhook(
            kubeconfig,
            matchConditionSubjectAccessReviewVersion="v1",
            matchConditions=[{"expression": "true"}],
        )
    )

    assert problem(text) == "expressions need one more package"


def test_what_was_there_at_the_start_must_stay() -> None:
    """A reload may not drop the authorizers that the server was started with."""
    text = document({"type": "RBAC", "name": "rbac"})

    assert "must stay: ['Node']" in problem(text, must_have={"Node", "RBAC"})
