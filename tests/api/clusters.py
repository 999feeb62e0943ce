"""A cluster that is registered with a server, and reviews as its API server sends them."""

from typing import Any

from tests.api.world import ADMIN, Answer, Api

IDENTITY = "/apis/identity.orch.io/v1alpha1"
CLUSTERS = f"{IDENTITY}/clusters"
REVOCATIONS = f"{IDENTITY}/credentialrevocations"
ISSUER = "https://prod.example"
CREDENTIAL_ID = "authentication.kubernetes.io/credential-id"
NO_OPINION = {"allowed": False}


def webhook(cluster: str) -> str:
    return f"/webhook/clusters/{cluster}/authorize"


async def cluster(server: Api, name: str = "prod", **spec: Any) -> Any:
    return await server.make(
        CLUSTERS, {"metadata": {"name": name}, "spec": {"issuer": ISSUER, **spec}}
    )


def review(
    user: str = "alice", *ids: str, version: str = "v1", groups: tuple[str, ...] = ()
) -> dict[str, Any]:
    """A review of a request for the pods of a namespace."""
    spec: dict[str, Any] = {
        "resourceAttributes": {
            "namespace": "web",
            "verb": "list",
            "version": "v1",
            "resource": "pods",
        },
        "user": user,
        "groups" if version == "v1" else "group": [*groups, "system:authenticated"],
    }
    if ids:
        spec["extra"] = {CREDENTIAL_ID: list(ids)}
    return {
        "kind": "SubjectAccessReview",
        "apiVersion": f"authorization.k8s.io/{version}",
        "metadata": {},
        "spec": spec,
        "status": {"allowed": False},
    }


async def asked(
    server: Api, user: str = "alice", *ids: str, cluster: str = "prod", version: str = "v1"
) -> Any:
    """The status that the webhook gives a review."""
    answer = await server.call("POST", webhook(cluster), review(user, *ids, version=version))
    assert answer.status == 200, answer.text
    return answer.json["status"]


async def revoke(server: Api, name: str, caller: str | None = ADMIN, **spec: Any) -> Answer:
    body = {"metadata": {"name": name}, "spec": {"cluster": "prod", **spec}}
    return await server.call("POST", REVOCATIONS, body, token=caller)


async def revoked(server: Api, name: str, **spec: Any) -> Any:
    answer = await revoke(server, name, **spec)
    assert answer.status == 201, answer.text
    return answer.json
