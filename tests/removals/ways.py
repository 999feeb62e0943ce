"""Everything whose removal ends a right or a credential: how it is given, used and taken away.

Each function of `WAYS` gives somebody a right or a credential of their own and returns it as
`Given`: the request that rests on it, how to take it away, and what is answered from then on.
"""

import base64
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.removals.stage import Client, Stage

UNAUTHORIZED, FORBIDDEN = 401, 403
NAMESPACE = "removals"
CORE = f"/api/v1/namespaces/{NAMESPACE}"
GROUP = "rbac.authorization.orch.io"
RBAC = f"/apis/{GROUP}/v1"
REVOCATIONS = "/apis/identity.orch.io/v1alpha1/credentialrevocations"
REVIEWS = "/apis/authentication.orch.io/v1/tokenreviews"
WHO = "/apis/authentication.orch.io/v1/selfsubjectreviews"
POD = {"containers": [{"name": "c", "image": "i"}]}


@dataclass
class Given:
    """A right or a credential of a caller."""

    ask: Callable[[], int]  # the request that rests on it; gives its status
    remove: Callable[[], Any]
    refused: int  # the status of the same request when it is gone
    token: str = ""  # the credential, if it is one that can be reviewed
    close: Callable[[], None] = lambda: None


# Rights


def binding(stage: Stage) -> Given:
    """A binding of a role, in one namespace or in all."""
    given, place, name, _ = _bound(stage)
    given.remove = lambda: stage.admin("DELETE", f"{place}/{name}")
    return given


def role(stage: Stage) -> Given:
    """The role to which a binding points."""
    given, _, _, role_path = _bound(stage)
    given.remove = lambda: stage.admin("DELETE", role_path)
    return given


def namespace(stage: Stage) -> Given:
    """The namespace into which somebody may write: on its way out it takes nothing more."""
    name, place = stage.name(), f"ns-{stage.name()}"
    token = _token(stage, name)
    rule = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create"]}
    stage.admin("POST", "/api/v1/namespaces", {"metadata": {"name": place}})
    roles = f"{RBAC}/namespaces/{place}"
    stage.admin("POST", f"{roles}/roles", {"metadata": {"name": name}, "rules": [rule]})
    stage.admin("POST", f"{roles}/rolebindings", _binding(name, "Role", _account(name)))
    body = {"metadata": {"generateName": "c"}}
    client = stage.caller()
    return Given(
        lambda: client.ask("POST", f"/api/v1/namespaces/{place}/configmaps", body, token=token)[0],
        lambda: stage.admin("DELETE", f"/api/v1/namespaces/{place}"),
        FORBIDDEN,
    )


def _bound(stage: Stage) -> tuple[Given, str, str, str]:
    """Give an account the right to list; return the path and name of the binding, and the role."""
    name, client = stage.name(), stage.caller()
    token = _token(stage, name)
    inside = f"{RBAC}/namespaces/{NAMESPACE}"
    kind = stage.chance.choice(("Role", "ClusterRole"))
    roles = f"{inside}/roles" if kind == "Role" else f"{RBAC}/clusterroles"
    everywhere = kind == "ClusterRole" and stage.chance.random() < 0.5
    place = f"{RBAC}/clusterrolebindings" if everywhere else f"{inside}/rolebindings"
    rule = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}
    stage.admin("POST", roles, {"metadata": {"name": name}, "rules": [rule]})
    user = {"kind": "User", "name": _username(name), "apiGroup": GROUP}
    subject = stage.chance.choice((_account(name), user))
    stage.admin("POST", place, _binding(name, kind, subject))
    path = f"{CORE}/configmaps" + stage.chance.choice(("", "?resourceVersion=0", "?limit=5"))
    given = Given(lambda: client.ask("GET", path, token=token)[0], lambda: None, FORBIDDEN)
    return given, place, name, f"{roles}/{name}"


# Credentials


def account(stage: Stage) -> Given:
    """The account of a token."""
    name = stage.name()
    return _by_token(stage, _token(stage, name), f"{CORE}/serviceaccounts/{name}")


def pod(stage: Stage) -> Given:
    """The Pod that a token is bound to."""
    return _by_bound_token(stage, "Pod", {"spec": POD})


def secret(stage: Stage) -> Given:
    """The Secret that a token is bound to."""
    return _by_bound_token(stage, "Secret", {})


def revocation(stage: Stage) -> Given:
    """Revoke a token, all tokens of an account or a certificate; nothing is removed."""
    name = stage.name()
    what = stage.chance.choice(("token", "account", "certificate"))
    if what == "certificate":
        given, fingerprint = _by_certificate(stage, name)
        spec: dict[str, Any] = {"certificate": {"sha256": fingerprint}}
    else:
        token = _token(stage, name)
        given = _by_token(stage, token, "")
        owner = {"namespace": NAMESPACE, "name": name}
        jti = _claims(token)["jti"]
        spec = {"token": {"jti": jti, **owner}} if what == "token" else {"account": owner}
    body = {"metadata": {"name": name}, "spec": spec}
    given.remove = lambda: stage.admin("POST", REVOCATIONS, body)
    return given


def authority_file(stage: Stage) -> Given:
    """The authority of a certificate, in the file of client authorities."""
    stage.trust(True)
    given, _ = _by_certificate(stage, stage.name())
    given.remove = lambda: stage.trust(False)
    return given


def token_file(stage: Stage) -> Given:
    """A line of the file of static tokens, which takes a restart."""
    token, client = stage.static_token(), stage.caller()
    return Given(
        lambda: client.ask("POST", WHO, {}, token=token)[0],
        lambda: stage.drop_token(token),
        UNAUTHORIZED,
        token,
    )


def _by_bound_token(stage: Stage, kind: str, more: dict[str, Any]) -> Given:
    name = stage.name()
    stage.admin("POST", f"{CORE}/serviceaccounts", {"metadata": {"name": name}})
    if kind == "Pod":
        more = {"spec": {**more["spec"], "serviceAccountName": name}}
    place = f"{CORE}/{kind.lower()}s"
    stage.admin("POST", place, {"metadata": {"name": name}, **more})
    reference = {"kind": kind, "apiVersion": "v1", "name": name}
    token = _issued(stage, name, boundObjectRef=reference)
    return _by_token(stage, token, f"{place}/{name}?gracePeriodSeconds=0")


def _by_token(stage: Stage, token: str, removed: str) -> Given:
    client = stage.caller()
    method, path, body = stage.chance.choice(
        (("GET", "/version", None), ("POST", WHO, {}), ("GET", "/api/v1", None))
    )
    return Given(
        lambda: client.ask(method, path, body, token=token)[0],
        lambda: stage.admin("DELETE", removed),
        UNAUTHORIZED,
        token,
    )


def _by_certificate(stage: Stage, user: str) -> tuple[Given, str]:
    stage.trust(True)
    client = stage.certified(user)

    def who() -> tuple[int, Any]:
        return client.ask("POST", WHO, {})

    status, answer = who()
    extra = answer["status"]["userInfo"]["extra"] if status < UNAUTHORIZED else {}
    shown = extra.get("authentication.orch.io/credential-id", [""])[0]
    given = Given(lambda: who()[0], lambda: None, UNAUTHORIZED, close=client.close)
    return given, shown.removeprefix("X509SHA256=")


# Accounts and their tokens


def _token(stage: Stage, name: str) -> str:
    """Make an account, and give a token of it."""
    stage.admin("POST", f"{CORE}/serviceaccounts", {"metadata": {"name": name}})
    return _issued(stage, name)


def _issued(stage: Stage, name: str, **spec: Any) -> str:
    path = f"{CORE}/serviceaccounts/{name}/token"
    token: str = stage.admin("POST", path, {"spec": {"audiences": [], **spec}})["status"]["token"]
    return token


def _claims(token: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(base64.urlsafe_b64decode(token.split(".")[1] + "=="))
    return found


def _username(name: str) -> str:
    return f"system:serviceaccount:{NAMESPACE}:{name}"


def _account(name: str) -> dict[str, str]:
    return {"kind": "ServiceAccount", "name": name, "namespace": NAMESPACE}


def _binding(name: str, kind: str, subject: dict[str, str]) -> dict[str, Any]:
    reference = {"kind": kind, "name": name, "apiGroup": GROUP}
    return {"metadata": {"name": name}, "roleRef": reference, "subjects": [subject]}


def is_accepted(client: Client, admin: str, token: str) -> bool:
    """Whether a TokenReview accepts the token."""
    status, answer = client.ask("POST", REVIEWS, {"spec": {"token": token}}, token=admin)
    return status not in (200, 201) or bool(answer["status"].get("authenticated"))


Way = Callable[[Stage], Given]

# How often each has its turn, beside the others: a restart takes longer than all the rest.
WAYS: dict[str, tuple[Way, int]] = {
    "binding": (binding, 40),
    "role": (role, 40),
    "account": (account, 40),
    "Pod": (pod, 40),
    "Secret": (secret, 40),
    "namespace": (namespace, 40),
    "revocation": (revocation, 40),
    "certificate authority file": (authority_file, 40),
    "token file": (token_file, 1),
}
