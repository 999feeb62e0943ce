"""What ends each credential, and on which paths, as data.

`test_ends.py` makes each credential, ends it in each of its ways, and tries each of its paths;
docs/revocation.md shows this table. `derived.py` compares it with the source: a new authenticator,
a new stored kind and a new target of a revocation must be listed here.
"""

from dataclasses import dataclass, field
from typing import Final


@dataclass(frozen=True)
class Path:
    """A use of credentials, and how soon one is refused there after its end."""

    name: str
    others: str  # why no other credential is used there
    soon: str = "next request"


SOON: Final = "ends within a second"
API: Final = Path("API", "not for the API")
WATCH: Final = Path("watch", "not for the API", SOON)
REVIEW: Final = Path("TokenReview", "no token")
INTROSPECTION: Final = Path("introspection", "no token")
EXCHANGE: Final = Path("exchange", "of no outside issuer")
CONSOLE: Final = Path("console", "no session")
LIVE: Final = Path("open console page", "no session", "it shows no further change")
WAITING: Final = Path("waiting request", "sends no certificate requests", "it is not approved")
RENEWAL: Final = Path("renewal", "renewed by other means")
ORDER: Final = Path("ACME order", "of no ACME client")
REGISTRATION: Final = Path("ACME registration", "no external account key")
LIST: Final = Path("revocation list", "no certificate of an authority", "when it is published")
WEBHOOK: Final = Path("cluster webhook", "of no cluster")


@dataclass(frozen=True)
class End:
    """A revocation, named by its target, or a deletion."""

    name: str
    others: str  # why it does not occur for other credentials
    target: str = ""  # of a CredentialRevocation


ITSELF: Final = End("revoked itself", "has no id", "certificate, token")
USER: Final = End("user revoked", "of an account, or of no user", "user")
ACCOUNT: Final = End("account revoked", "of no account", "account")
SIGNER: Final = End("signer revoked", "has no signer here", "authority")
KEY: Final = End("token key revoked", "signed by no token key", "key")
ORIGIN: Final = End("outside token revoked", "not exchanged", "token")
PERSON: Final = End("person revoked", "not exchanged", "user")
PROXY: Final = End("proxy's certificate revoked", "no proxy", "certificate")
DELETED: Final = End("account deleted", "of no account")
BOUND: Final = End("object deleted", "no such object")
POLICY: Final = End("exchange policy deleted", "not exchanged")
DEACTIVATED: Final = End("deactivated by its client", "no ACME account")

ENDED: Final = ""
RESTORED: Final = "revoked again"  # by revocations.jsonl, before the server is ready


@dataclass(frozen=True)
class Credential:
    """A kind of credential: its paths, and its ends with what happens."""

    name: str
    modules: tuple[str, ...]  # of the source, that accept it
    paths: tuple[Path, ...]
    ends: dict[End, str]  # ENDED on each path, or why it is not affected
    kinds: tuple[str, ...] = ()  # stored objects that it is, is in, or depends on
    spared: dict[tuple[End, Path], str] = field(default_factory=dict)  # exceptions, and why


TOKENS: Final = "features/accounts/authenticators/service_account_token.py"
CERTIFICATES: Final = "features/certificates/authenticators/client_certificate.py"
TOKEN: Final = (API, WATCH, REVIEW, INTROSPECTION, WAITING)
CERTIFICATE: Final = (API, WATCH, WAITING)
OF_ACCOUNT: Final = {ITSELF: ENDED, ACCOUNT: ENDED, DELETED: ENDED, KEY: ENDED}
LIVES_ON: Final = "has no uid of it"
REMAINS: Final = "its account or user remains"

CREDENTIALS: Final = (
    Credential(
        "token of an account",
        (TOKENS,),
        TOKEN,
        OF_ACCOUNT,
        ("serviceaccounts",),
    ),
    Credential(
        "token bound to a Pod",
        (TOKENS,),
        TOKEN,
        {**OF_ACCOUNT, BOUND: ENDED},
        ("pods",),
    ),
    Credential(
        "token bound to a Secret",
        (TOKENS,),
        TOKEN,
        {**OF_ACCOUNT, BOUND: ENDED},
        ("secrets",),
        {(BOUND, WAITING): REMAINS},
    ),
    Credential(
        "token bound to a Node",
        (TOKENS,),
        TOKEN,
        {**OF_ACCOUNT, BOUND: ENDED},
        ("nodes",),
        {(BOUND, WAITING): REMAINS},
    ),
    Credential(
        "token in a Secret",
        ("features/accounts/authenticators/secret_token.py",),
        TOKEN,
        {ACCOUNT: ENDED, DELETED: ENDED, BOUND: ENDED, KEY: ENDED},
        ("secrets",),
        {(BOUND, WAITING): REMAINS},
    ),
    Credential(
        "exchanged token",
        (TOKENS,),
        TOKEN,
        {**OF_ACCOUNT, ORIGIN: ENDED, PERSON: ENDED, POLICY: ENDED},
        ("tokenexchangepolicies",),
    ),
    Credential(
        "client certificate of a user",
        (CERTIFICATES,),
        CERTIFICATE,
        {ITSELF: ENDED, USER: ENDED, SIGNER: ENDED},
        ("certificatesigningrequests", "issuedcertificates"),
        {(SIGNER, WAITING): REMAINS},
    ),
    Credential(
        "client certificate of an account",
        (CERTIFICATES,),
        CERTIFICATE,
        {ITSELF: ENDED, ACCOUNT: ENDED, SIGNER: ENDED, DELETED: LIVES_ON},
        spared={(SIGNER, WAITING): REMAINS},
    ),
    Credential(
        "client certificate of a host",
        (CERTIFICATES,),
        (*CERTIFICATE, RENEWAL),
        {ITSELF: ENDED, USER: ENDED, SIGNER: ENDED, BOUND: "its certificate is no object"},
        ("nodes",),
        {(SIGNER, WAITING): REMAINS},
    ),
    Credential(
        "certificate of a Pod",
        ("features/certificates/authenticators/pod_certificate.py",),
        CERTIFICATE,
        {ITSELF: ENDED, ACCOUNT: ENDED, SIGNER: ENDED, DELETED: ENDED, BOUND: ENDED},
        ("podcertificaterequests", "pods"),
        {
            (SIGNER, WAITING): REMAINS,
            (BOUND, WAITING): REMAINS,
        },
    ),
    Credential(
        "X.509-SVID",
        (),
        (LIST,),
        {ITSELF: ENDED, SIGNER: ENDED, ACCOUNT: "with --certificates, which revokes each"},
        ("certificateauthorities",),
    ),
    Credential(
        "join token",
        ("features/sign_in/authenticators/bootstrap_token.py",),
        TOKEN,
        {USER: ENDED, BOUND: ENDED},
        ("secrets",),
        {(BOUND, WAITING): "orchid host revoke deletes it"},
    ),
    Credential(
        "ID token of a person",
        ("features/sign_in/oidc/authenticator.py", "features/exchange/subject_tokens.py"),
        (*TOKEN, EXCHANGE),
        {ITSELF: ENDED, USER: ENDED},
    ),
    Credential(
        "console session",
        ("features/console/sign_in/served.py",),
        (CONSOLE, LIVE),
        {USER: ENDED, BOUND: ENDED},
        ("consolesessions",),
    ),
    Credential(
        "ACME account",
        ("features/acme/acme_accounts.py",),
        (ORDER,),
        {ACCOUNT: ENDED, DELETED: ENDED, BOUND: ENDED, DEACTIVATED: ENDED},
        ("acmeaccounts", "acmeorders"),
    ),
    Credential(
        "external account key",
        ("features/acme/acme_accounts.py",),
        (REGISTRATION,),
        {ACCOUNT: ENDED, DELETED: ENDED, BOUND: ENDED},
        ("secrets",),
    ),
    Credential(
        "static token",
        ("features/sign_in/authenticators/static_token.py",),
        TOKEN,
        {USER: ENDED},
    ),
    Credential(
        "user of a front proxy",
        ("features/certificates/authenticators/request_header.py",),
        CERTIFICATE,
        {USER: ENDED, PROXY: ENDED},
        spared={(PROXY, WAITING): REMAINS},
    ),
    Credential(
        "token that a webhook knows",
        ("features/sign_in/authenticators/webhook_token.py",),
        TOKEN,
        {ITSELF: ENDED, USER: ENDED},
    ),
    Credential(
        "token of a cluster",
        ("features/clusters/revoked.py",),
        (WEBHOOK,),
        {ITSELF: ENDED, ACCOUNT: ENDED},
        ("clusters",),
    ),
    Credential(
        "certificate of a cluster",
        ("features/clusters/revoked.py",),
        (WEBHOOK,),
        {ITSELF: ENDED, USER: ENDED},
        ("clusters",),
    ),
)
PATHS: Final = (
    API,
    WATCH,
    REVIEW,
    INTROSPECTION,
    EXCHANGE,
    CONSOLE,
    LIVE,
    WAITING,
    RENEWAL,
    ORDER,
    REGISTRATION,
    LIST,
    WEBHOOK,
)
ENDS: Final = (
    ITSELF,
    USER,
    ACCOUNT,
    SIGNER,
    KEY,
    ORIGIN,
    PERSON,
    PROXY,
    DELETED,
    BOUND,
    POLICY,
    DEACTIVATED,
)
# Ends that concern more than one credential: tried with a server of their own, for all together.
TOGETHER: Final = (KEY,)

# What accepts no credential of its own, and why.
NO_CREDENTIAL: Final = {
    "kernel/access/authenticators/anonymous.py": "none",
    "kernel/access/authenticators/audiences.py": "helps others",
    "kernel/access/authenticators/bearer.py": "helps others",
    "kernel/access/authenticators/in_process.py": "controllers of the server itself",
    "kernel/access/authenticators/union.py": "asks the others",
    "features/clusters/calls.py": "counts",
    "features/clusters/connection.py": "connects to a cluster",
    "features/clusters/record_usage.py": "counts",
    "features/clusters/cluster_status.py": "what is known about a cluster",
    "features/clusters/reviews.py": "reads the reviews of the webhook",
    "features/clusters/roles.py": "default roles",
    "features/sign_in/oidc/claim_configuration.py": "helps others",
    "features/sign_in/oidc/configuration.py": "helps others",
    "features/sign_in/oidc/keys.py": "helps others",
    "features/sign_in/oidc/mapping.py": "helps others",
}
# Stored kinds whose deletion ends no credential, and why.
NO_END: Final = {
    "namespaces": "what is in it is deleted",
    "configmaps": "no credential",
    "events": "no credential",
    "leases": "no credential",
    "roles": "rights, not credentials",
    "clusterroles": "rights, not credentials",
    "rolebindings": "rights, not credentials",
    "clusterrolebindings": "rights, not credentials",
    "clustertrustbundles": "trust of clients",
    "approvalpolicies": "decides about what is issued later",
    "signingkeys": "only what nobody needs can be deleted",
    "publishedbundles": "trust of clients",
    "credentialrevocations": "an end itself; deleting one lifts a hold, or that of a user",
}
