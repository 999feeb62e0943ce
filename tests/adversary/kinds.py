"""The kinds that are attacked and observed, with their paths."""

from dataclasses import dataclass

HOME = "orch-system"
IDENTITY, CERTIFICATES = "identity.orch.io", "certificates.orch.io"
AUTHENTICATION, RBAC = "authentication.orch.io", "rbac.authorization.orch.io"


@dataclass(frozen=True)
class Kind:
    """A kind: its plural is its name here."""

    name: str
    kind: str
    group: str = ""
    version: str = "v1"
    is_namespaced: bool = False

    @property
    def _root(self) -> str:
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"

    @property
    def described(self) -> dict[str, str]:
        """How an object names its kind; the items of a list do not."""
        version = f"{self.group}/{self.version}" if self.group else self.version
        return {"apiVersion": version, "kind": self.kind}

    @property
    def everywhere(self) -> str:
        return f"{self._root}/{self.name}"

    def path(self, name: str = "", namespace: str = "", subresource: str = "") -> str:
        inside = f"/namespaces/{namespace}" if self.is_namespaced else ""
        parts = [f"{self._root}{inside}/{self.name}", name, subresource]
        return "/".join(part for part in parts if part)


KINDS = {
    kind.name: kind
    for kind in (
        Kind("certificateauthorities", "CertificateAuthority", IDENTITY, "v1beta1"),
        Kind("signingkeys", "SigningKey", IDENTITY, "v1beta1"),
        Kind("publishedbundles", "PublishedBundle", IDENTITY, "v1beta1"),
        Kind("credentialrevocations", "CredentialRevocation", IDENTITY),
        Kind("issuedcertificates", "IssuedCertificate", IDENTITY),
        Kind("approvalpolicies", "ApprovalPolicy", IDENTITY),
        Kind("tokenexchangepolicies", "TokenExchangePolicy", IDENTITY, "v1alpha1", True),
        Kind("acmeaccounts", "AcmeAccount", IDENTITY, "v1alpha1", True),
        Kind("acmeorders", "AcmeOrder", IDENTITY, "v1alpha1", True),
        Kind("clusters", "Cluster", IDENTITY, "v1beta1"),
        Kind("certificatesigningrequests", "CertificateSigningRequest", CERTIFICATES),
        Kind("clustertrustbundles", "ClusterTrustBundle", CERTIFICATES, "v1beta1"),
        Kind("serviceaccounts", "ServiceAccount", is_namespaced=True),
        Kind("secrets", "Secret", is_namespaced=True),
        Kind("configmaps", "ConfigMap", is_namespaced=True),
    )
}

# Stored kinds that nobody writes here, with the reason.
LEFT_OUT = {
    "namespaces": "the stage; deleting one deletes everything in it",
    "roles": "the rights of users are what the model knows",
    "clusterroles": "the rights of users are what the model knows",
    "rolebindings": "the rights of users are what the model knows",
    "clusterrolebindings": "the rights of users are what the model knows",
    "leases": "who writes those of the system namespace may stop every controller",
    "events": "nothing is decided by them",
    "pods": "a kubelet writes them, with rights over its node",
    "nodes": "a kubelet writes them, with rights over its node",
    "podcertificaterequests": "a kubelet writes them, with rights over its node",
    "consolesessions": "only the console writes them; tests/security/test_console_sessions.py",
}
