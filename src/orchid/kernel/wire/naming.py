"""All names that contain the product, in two sets: `orch` and `kubernetes`.

With `--naming kubernetes` the server uses the identifiers that unmodified Kubernetes clients,
agents and test suites expect. No other module contains a product name; a test enforces that. Names
that both sets share (`system:masters`, `v1`, ...) do not belong here.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Final


@dataclass(frozen=True)
class Naming:
    """A set of names. Derived names are properties of these few fields."""

    name: str
    group_domain: str  # authentication.<group_domain>
    domain: str  # <domain>/service-account.name, signers, claims
    user_extra_domain: str  # authentication.<user_extra_domain>/credential-id
    component: str  # <component>-apiserver, <component>-system
    agent: str  # the node agent
    client_tool: str  # the command-line tool whose apply is tracked by annotation
    legacy_issuer: str
    flow_header: str  # X-<flow_header>-Pf-Flowschema-Uid
    serves_inside: bool = False  # workloads reach the server by a Service of its name

    def group(self, word: str) -> str:
        """The API group of a word: `certificates` -> `certificates.orch.io`; core stays empty."""
        return f"{word}.{self.group_domain}" if word else ""

    def instead_of(self, group: str) -> str:
        """The group in this set for a group of the other set; empty for any other group."""
        for other in (ORCH, KUBERNETES):
            suffix = f".{other.group_domain}"
            if other is not self and group.endswith(suffix) and group != self.identity:
                return self.group(group.removesuffix(suffix))
        return ""

    def of_client_tool(self, manager: str) -> "Naming":
        """The set whose client tool is this field manager: each tool has its own annotation."""
        return next((one for one in (ORCH, KUBERNETES) if one.client_tool == manager), self)

    def own(self, word: str) -> str:
        """A label, annotation, type or signer in the product's domain: `<domain>/<word>`."""
        return f"{self.domain}/{word}"

    def extra(self, word: str) -> str:
        """A key of a user's extra: `authentication.<domain>/<word>`."""
        return f"authentication.{self.user_extra_domain}/{word}"

    # API groups
    @cached_property
    def authentication(self) -> str:
        return self.group("authentication")

    @cached_property
    def authorization(self) -> str:
        return self.group("authorization")

    @cached_property
    def certificates(self) -> str:
        return self.group("certificates")

    @cached_property
    def rbac(self) -> str:
        return self.group("rbac.authorization")

    @cached_property
    def coordination(self) -> str:
        return self.group("coordination")

    @cached_property
    def events(self) -> str:
        return self.group("events")

    @cached_property
    def identity(self) -> str:
        """The group of kinds that Kubernetes does not have: the same in both sets."""
        return "identity.orch.io"

    @cached_property
    def meta(self) -> str:
        return self.group("meta")

    @cached_property
    def discovery(self) -> str:
        return self.group("apidiscovery")

    @cached_property
    def audit(self) -> str:
        return self.group("audit")

    @cached_property
    def server_config(self) -> str:
        return self.group("apiserver.config")

    # OpenAPI definitions
    def definition(self, package: str, name: str) -> str:
        """The definition of a type: ("core.v1", "Pod") -> `io.orch.api.core.v1.Pod`."""
        root = ".".join(reversed(self.group_domain.split(".")))
        tree = {"meta": "apimachinery.pkg.apis", "version": "apimachinery.pkg"}
        return f"{root}.{tree.get(package.partition('.')[0], 'api')}.{package}.{name}"

    # Signers
    @cached_property
    def client_signer(self) -> str:
        return self.own(f"{self.component}-apiserver-client")

    @cached_property
    def node_client_signer(self) -> str:
        return self.own(f"{self.component}-apiserver-client-{self.agent}")

    @cached_property
    def pod_client_signer(self) -> str:
        return self.own(f"{self.component}-apiserver-client-pod")

    @cached_property
    def node_serving_signer(self) -> str:
        return self.own(f"{self.agent}-serving")

    @cached_property
    def server_serving_signer(self) -> str:
        return self.own(f"{self.component}-apiserver-serving")

    @cached_property
    def legacy_signer(self) -> str:
        return self.own("legacy-unknown")

    # Tokens
    @cached_property
    def signing_signers(self) -> tuple[str, str, str, str]:
        """The platform signers for which the signing controller issues."""
        return (
            self.legacy_signer,
            self.client_signer,
            self.node_client_signer,
            self.node_serving_signer,
        )

    @cached_property
    def issuing_signers(self) -> tuple[str, ...]:
        """All platform signers for which this server issues; one is for PodCertificateRequests."""
        return (*self.signing_signers, self.pod_client_signer)

    @cached_property
    def private_claim(self) -> str:
        return self.domain

    @cached_property
    def token_secret_type(self) -> str:
        return self.own("service-account-token")

    @cached_property
    def bootstrap_token_type(self) -> str:
        return f"bootstrap.{self.domain}/token"

    @cached_property
    def websocket_bearer(self) -> str:
        return f"base64url.bearer.authorization.{self.group_domain}."

    @cached_property
    def credential_id(self) -> str:
        return f"authentication.{self.user_extra_domain}/credential-id"

    @cached_property
    def issued_credential_id(self) -> str:
        return f"authentication.{self.user_extra_domain}/issued-credential-id"

    @cached_property
    def node_name_extra(self) -> str:
        return self.extra("node-name")  # noqa: S610 - no Django here

    @cached_property
    def bound_node_name(self) -> str:
        """Extra of a join token: the node that it is bound to."""
        return self.extra("bound-node-name")  # noqa: S610 - no Django here

    @cached_property
    def associated_node_keys_extra(self) -> str:
        return self.extra("associated-node-keys")  # noqa: S610 - no Django here

    # Annotations and labels
    @cached_property
    def account_name_annotation(self) -> str:
        return self.own("service-account.name")

    @cached_property
    def account_uid_annotation(self) -> str:
        return self.own("service-account.uid")

    @cached_property
    def mountable_secrets_annotation(self) -> str:
        return self.own("enforce-mountable-secrets")

    @cached_property
    def last_applied_annotation(self) -> str:
        return f"{self.client_tool}.{self.domain}/last-applied-configuration"

    @cached_property
    def last_used_label(self) -> str:
        return self.own("legacy-token-last-used")

    @cached_property
    def invalid_since_label(self) -> str:
        return self.own("legacy-token-invalid-since")

    @cached_property
    def description_annotation(self) -> str:
        return self.own("description")

    @cached_property
    def unsafe_delete_annotation(self) -> str:
        return f"apiserver.{self.domain}/unsafe-delete-ignore-read-error"

    @cached_property
    def token_volume_prefix(self) -> str:
        return f"{self.component}-api-access-"

    @cached_property
    def token_mount_path(self) -> str:
        return f"/var/run/secrets/{self.domain}/serviceaccount"

    @cached_property
    def mirror_annotation(self) -> str:
        return self.own("config.mirror")

    @cached_property
    def bootstrapping_label(self) -> str:
        return self.own("bootstrapping")

    @cached_property
    def autoupdate_annotation(self) -> str:
        return f"rbac.authorization.{self.domain}/autoupdate"

    # Namespaces and well-known objects
    @cached_property
    def system_namespace(self) -> str:
        return f"{self.component}-system"

    @cached_property
    def public_namespace(self) -> str:
        return f"{self.component}-public"

    @cached_property
    def node_lease_namespace(self) -> str:
        return f"{self.component}-node-lease"

    @cached_property
    def root_ca_config_map(self) -> str:
        return f"{self.component}-root-ca.crt"

    @cached_property
    def namespace_finalizer(self) -> str:
        return self.legacy_issuer.partition("/")[0]

    @cached_property
    def namespace_name_label(self) -> str:
        return f"{self.domain}/metadata.name"

    @cached_property
    def controller_manager_user(self) -> str:
        return f"system:{self.component}-controller-manager"

    @cached_property
    def scheduler_user(self) -> str:
        return f"system:{self.component}-scheduler"

    @cached_property
    def controller_lease(self) -> str:
        return f"{self.component}-controller-manager"

    @cached_property
    def legacy_token_tracking_config_map(self) -> str:
        return f"{self.component}-apiserver-legacy-service-account-token-tracking"

    @cached_property
    def server_names(self) -> tuple[str, ...]:
        """DNS names of the server inside a cluster, if the set has them."""
        word = self.namespace_finalizer
        return (word, f"{word}.default", f"{word}.default.svc") if self.serves_inside else ()

    @cached_property
    def root_ca_description(self) -> str:
        word = self.namespace_finalizer
        return (
            f"Contains a CA bundle that can be used to verify the {self.component}-apiserver when "
            f"using internal endpoints such as the internal service IP or {word}.default.svc. "
            f"No other usage is guaranteed across distributions of {word.capitalize()} clusters."
        )


ORCH: Final = Naming(
    name="orch",
    group_domain="orch.io",
    domain="orch.io",
    user_extra_domain="orch.io",
    component="orch",
    agent="orchlet",
    client_tool="orchctl",
    legacy_issuer="orch/serviceaccount",
    flow_header="Orch",
)

KUBERNETES: Final = Naming(
    name="kubernetes",
    group_domain="k8s.io",
    domain="kubernetes.io",
    user_extra_domain="kubernetes.io",
    component="kube",
    agent="kubelet",
    client_tool="kubectl",
    legacy_issuer="kubernetes/serviceaccount",
    flow_header="Kubernetes",
    serves_inside=True,
)

SEALED_VALUE: Final = b"k8s:enc:"  # prefix of every encrypted value in a store
SETS: Final = {naming.name: naming for naming in (ORCH, KUBERNETES)}
DEFAULT: Final = ORCH.name

# Domains reserved for signers of the platform, in either naming.
PLATFORM_DOMAINS: Final = frozenset(
    domain for naming in SETS.values() for domain in (naming.domain, naming.group_domain)
)
# Groups that content negotiation accepts in either naming, so that stock clients work with both.
META_GROUPS: Final = frozenset(naming.meta for naming in SETS.values())
DISCOVERY_GROUPS: Final = frozenset(naming.discovery for naming in SETS.values())
PROTOBUF_MEDIA_TYPE: Final = "application/vnd.kubernetes.protobuf"
PROTOBUF_MAGIC: Final = b"k8s\0"  # the first bytes of every such body
INITIAL_EVENTS_END: Final = ("orch.io/initial-events-end", "k8s.io/initial-events-end")
# Finalizers that are valid without a domain.
PLAIN_FINALIZERS: Final = frozenset(naming.namespace_finalizer for naming in SETS.values())
# OpenAPI extensions keep the names that tools read, in either naming.
EXTENSION: Final = "x-kubernetes-"

# The stock client, in either naming: project, program, and its configuration below the
# home directory.
REFERENCE: Final = "Kubernetes"
CLIENT: Final = "kubectl"
CUSTOM_RESOURCES: Final = "apiextensions.k8s.io"  # a group that is always empty
CLIENT_CONFIG: Final = (".kube", "config")
EXEC_GROUP: Final = "client.authentication.k8s.io"  # of credential plugins
# environment variable with the input of a credential plugin
EXEC_INFO: Final = "KUBERNETES_EXEC_INFO"
# parameter of a token exchange: the requested lifetime (prefix: RFC 6749, section 8.2)
EXPIRES_PARAMETER: Final = "orch_expires_in"
