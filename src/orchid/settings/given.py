"""`Given`: every setting as it is written, before it is checked.

A setting is one field, with its help text beside it: the command line, the TOML file and the
documentation all come from there. `reading.py` joins the file and the flags, `checking.py` makes
`Settings` of them.
"""

from typing import Annotated

import msgspec

from orchid.wire.naming import DEFAULT, SETS

Help = msgspec.Meta
Many = tuple[str, ...]


class Given(msgspec.Struct, frozen=True, rename="kebab", forbid_unknown_fields=True):
    """Every setting as it is written, before it is checked."""

    data_dir: Annotated[
        str, Help(description="Where keys, certificates and the embedded store live.")
    ] = "orchid-data"
    listen: Annotated[str, Help(description="Address and port to serve on.")] = "127.0.0.1:6443"
    advertise_address: Annotated[
        str,
        Help(
            description="Address under which clients reach the server, also put into its "
            "certificate. Default: the listen address."
        ),
    ] = ""
    workers: Annotated[int, Help(description="API processes sharing the listening socket.")] = 1
    naming: Annotated[str, Help(description=f"Which names to speak: {' or '.join(SETS)}.")] = (
        DEFAULT
    )
    namespaces: Annotated[
        str,
        Help(
            description="lenient: a namespace comes into being with its first object; "
            "strict: it must exist."
        ),
    ] = "lenient"
    namespace_creators: Annotated[
        Many,
        Help(
            description="Users and groups whose first object brings its namespace, besides those "
            "who may create namespaces; for lenient namespaces only."
        ),
    ] = ()
    anonymous_paths: Annotated[
        Many,
        Help(
            description="Paths open to callers without credentials; a trailing /* means all below."
        ),
    ] = (
        "/healthz",
        "/healthz/*",
        "/livez",
        "/livez/*",
        "/readyz",
        "/readyz/*",
        "/version",
        "/version/*",
        "/.well-known/openid-configuration",
        "/openid/v1/jwks",
        "/crl/*",
        "/trust/*",
    )
    # serving
    tls_cert_file: Annotated[
        str,
        Help(description="Serving certificate, with its chain. Default: issued by the cluster CA."),
    ] = ""
    tls_private_key_file: Annotated[str, Help(description="Key of the serving certificate.")] = ""
    max_requests_inflight: Annotated[
        int,
        Help(description="Reading requests at once, added to the writing ones; 0 means no limit."),
    ] = 400
    max_mutating_requests_inflight: Annotated[
        int,
        Help(description="Writing requests at once, added to the reading ones; 0 means no limit."),
    ] = 200
    request_timeout: Annotated[str, Help(description="How long one request may take.")] = "60s"
    min_request_timeout: Annotated[
        int,
        Help(
            description="Seconds that a watch lasts at least by default; none lasts twice as long."
        ),
    ] = 1800
    shutdown_grace: Annotated[
        str, Help(description="How long a stop waits for requests under way.")
    ] = "10s"
    # who is calling
    client_ca_file: Annotated[
        str, Help(description="Authorities of client certificates. Default: the cluster CA.")
    ] = ""
    token_auth_file: Annotated[
        str, Help(description='Static tokens: token,user,uid,"group,group" by line.')
    ] = ""
    requestheader_client_ca_file: Annotated[
        str,
        Help(
            description="Authority of the front proxy's certificate; without it none is believed."
        ),
    ] = ""
    requestheader_allowed_names: Annotated[
        Many, Help(description="Common names the front proxy may have; empty allows any.")
    ] = ()
    requestheader_username_headers: Annotated[
        Many, Help(description="Headers in which the front proxy names the user.")
    ] = ()
    requestheader_uid_headers: Annotated[
        Many, Help(description="Headers in which the front proxy gives the user's uid.")
    ] = ()
    requestheader_group_headers: Annotated[
        Many, Help(description="Headers in which the front proxy names groups.")
    ] = ()
    requestheader_extra_headers_prefix: Annotated[
        Many, Help(description="Prefixes of headers with further facts about the user.")
    ] = ()
    authentication_config: Annotated[
        str, Help(description="AuthenticationConfiguration file: outside OIDC issuers.")
    ] = ""
    oidc_issuer_url: Annotated[str, Help(description="URL of one outside OIDC issuer.")] = ""
    oidc_client_id: Annotated[str, Help(description="Audience that its tokens must have.")] = ""
    oidc_username_claim: Annotated[str, Help(description="Claim that names the user.")] = "sub"
    oidc_username_prefix: Annotated[
        str, Help(description="Put before the user's name; '-' for nothing.")
    ] = ""
    oidc_groups_claim: Annotated[str, Help(description="Claim that lists groups.")] = ""
    oidc_groups_prefix: Annotated[str, Help(description="Put before each group.")] = ""
    oidc_required_claim: Annotated[
        Many, Help(description="claim=value that a token must have.")
    ] = ()
    oidc_signing_algs: Annotated[
        Many, Help(description="Signature algorithms that are accepted.")
    ] = ("RS256",)
    oidc_ca_file: Annotated[
        str, Help(description="Authorities of the issuer's own certificate.")
    ] = ""
    authentication_token_webhook_config_file: Annotated[
        str, Help(description="kubeconfig of a webhook that reviews tokens.")
    ] = ""
    authentication_token_webhook_cache_ttl: Annotated[
        str, Help(description="How long its answers are kept.")
    ] = "2m"
    # accounts and tokens
    service_account_issuer: Annotated[
        Many, Help(description="Issuer of tokens; the first signs, the others are accepted.")
    ] = ()
    api_audiences: Annotated[
        Many, Help(description="Audiences of this server. Default: the first issuer.")
    ] = ()
    service_account_signing_key_file: Annotated[
        str, Help(description="Key that signs tokens. Default: made in the data directory.")
    ] = ""
    service_account_key_file: Annotated[
        Many, Help(description="Keys by which tokens are verified. Default: the signing key.")
    ] = ()
    service_account_max_token_expiration: Annotated[
        str, Help(description="Longest life of a token; 0s means no limit.")
    ] = "0s"
    service_account_extend_token_expiration: Annotated[
        bool,
        Help(
            description="Give tokens of Pods a longer life than they ask for, with a warning time."
        ),
    ] = True
    service_account_jwks_uri: Annotated[
        str, Help(description="Where the keys can be fetched. Default: under the first issuer.")
    ] = ""
    # what they may do
    authorization_mode: Annotated[
        Many, Help(description="Ways to decide, in order: Node, RBAC, Webhook, AlwaysAllow.")
    ] = ("Node", "RBAC")
    authorization_config: Annotated[
        str, Help(description="AuthorizationConfiguration file, in place of the other settings.")
    ] = ""
    approve_own_requests: Annotated[
        bool,
        Help(description="Whoever created a certificate request may approve it too."),
    ] = False
    authorization_webhook_config_file: Annotated[
        str, Help(description="kubeconfig of a webhook that authorizes.")
    ] = ""
    authorization_webhook_version: Annotated[
        str, Help(description="SubjectAccessReview version it is asked with: v1 or v1beta1.")
    ] = "v1"
    authorization_webhook_cache_authorized_ttl: Annotated[
        str, Help(description="How long a yes is kept.")
    ] = "5m"
    authorization_webhook_cache_unauthorized_ttl: Annotated[
        str, Help(description="How long a no is kept.")
    ] = "30s"
    # certificates
    cluster_signing_cert_file: Annotated[
        str, Help(description="Authority that signs certificate requests. Default: the cluster CA.")
    ] = ""
    cluster_signing_key_file: Annotated[str, Help(description="Its key.")] = ""
    cluster_signing_duration: Annotated[
        str, Help(description="Longest life of an issued certificate.")
    ] = "8760h"
    cluster_signing_client_cert_file: Annotated[
        str, Help(description="Authority of the API client signer alone.")
    ] = ""
    cluster_signing_client_key_file: Annotated[str, Help(description="Its key.")] = ""
    cluster_signing_node_client_cert_file: Annotated[
        str, Help(description="Authority of the node client signer alone.")
    ] = ""
    cluster_signing_node_client_key_file: Annotated[str, Help(description="Its key.")] = ""
    cluster_signing_node_serving_cert_file: Annotated[
        str, Help(description="Authority of the node serving signer alone.")
    ] = ""
    cluster_signing_node_serving_key_file: Annotated[str, Help(description="Its key.")] = ""
    cluster_signing_legacy_unknown_cert_file: Annotated[
        str, Help(description="Authority of the legacy signer alone.")
    ] = ""
    cluster_signing_legacy_unknown_key_file: Annotated[str, Help(description="Its key.")] = ""
    crl_url: Annotated[
        str,
        Help(
            description="Where others reach /crl/ of this server, like http://pki.example.com; "
            "issued certificates then say where their revocation list is."
        ),
    ] = ""
    crl_listen: Annotated[
        str,
        Help(
            description="Address and port to serve revocation lists on without TLS; empty for none."
        ),
    ] = ""
    issued_retention: Annotated[
        str,
        Help(
            description="How long the record of an issued certificate outlives it; at least 168h."
        ),
    ] = "720h"
    # controllers
    controllers: Annotated[
        Many,
        Help(description="Controllers to run: '*' for all, '-name' for all but one, '' for none."),
    ] = ("*",)
    # store
    store: Annotated[
        str,
        Help(
            description="Where objects are kept: sqlite (in the data directory) or memory (lost)."
        ),
    ] = "sqlite"
    history: Annotated[str, Help(description="How long the past can be read and watched from.")] = (
        "5m"
    )
    etcd_servers: Annotated[
        Many, Help(description="etcd endpoints; given these, objects are kept there.")
    ] = ()
    etcd_prefix: Annotated[str, Help(description="Where in etcd the objects stand.")] = "/orchid"
    etcd_cafile: Annotated[str, Help(description="Authority of etcd's certificates.")] = ""
    etcd_certfile: Annotated[str, Help(description="Our certificate towards etcd.")] = ""
    etcd_keyfile: Annotated[str, Help(description="Its key.")] = ""
    encryption_provider_config: Annotated[
        str,
        Help(
            description="EncryptionConfiguration: which resources are sealed in the store, and "
            "with which keys. Default, with the embedded store: encryption.yaml in the data "
            "directory, made at the first start."
        ),
    ] = ""
    # ledger
    ledger_key_file: Annotated[
        str,
        Help(
            description="Ed25519 key that signs the ledger, the same on every server. "
            "Default: made in the data directory."
        ),
    ] = ""
    ledger_tokens: Annotated[
        str,
        Help(
            description="counted: the ledger says how many tokens each key and account has, and "
            "until when; off: it does not."
        ),
    ] = "counted"
    # record
    audit_log_path: Annotated[
        str, Help(description="File for the audit record; '-' for standard output; empty for none.")
    ] = ""
    audit_policy_file: Annotated[str, Help(description="What is recorded, and how much of it.")] = (
        ""
    )
    log_format: Annotated[str, Help(description="text or json.")] = "text"
    log_level: Annotated[str, Help(description="debug, info, warning or error.")] = "info"
