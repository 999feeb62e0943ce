"""The context of the controllers, from settings and files.

`controller_context` loads the CAs and the signing key, and follows their files. Controllers for a
remote server: remote_controllers.py.
"""

import functools
import socket
import uuid
from collections.abc import Awaitable, Callable, Collection, Mapping
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from orchid.assembly.features import IDENTITIES
from orchid.features.approval.platform_signers import platform_profiles, pod_profiles
from orchid.features.authorities.file_authorities import FileAuthority
from orchid.features.certificates.kinds import certificate_signing_request
from orchid.features.notices.settings import ReceiverSettings
from orchid.features.rights.bootstrap import LEADER_ELECTION, ControllerRights
from orchid.kernel.base.clock import Clock
from orchid.kernel.client.client import Client
from orchid.kernel.client.reading import FOREIGN
from orchid.kernel.credentials import keys as key_files
from orchid.kernel.credentials.authorities.authority import Authority
from orchid.kernel.credentials.authorities.hsm import NO_HSM, KeysOfHsm
from orchid.kernel.credentials.files import Reloading, read_bounded, read_private
from orchid.kernel.credentials.refusals import Refusal
from orchid.kernel.credentials.secret import SecretValue
from orchid.kernel.credentials.tokens import TokenSigner
from orchid.kernel.credentials.x509 import certificates, pem
from orchid.kernel.credentials.x509.revocation_list import list_url
from orchid.kernel.engine.catalog import Catalog
from orchid.kernel.outbound import foreign
from orchid.kernel.outbound.answer import Answer
from orchid.kernel.outbound.failures import AnswerRefused, CallFailed
from orchid.kernel.outbound.https_client import HttpsClient
from orchid.kernel.outbound.remote import Remote, embedded_remote, trusting
from orchid.kernel.runtime.context import (
    ClusterConnection,
    ControllerContext,
    KeyRotation,
    NoticeMetrics,
    NoticeReceiver,
    NoticeSettings,
    Signer,
)
from orchid.kernel.server.in_process.clients import LEADER, user_agent
from orchid.kernel.settings import trusted_files
from orchid.kernel.settings.checking import Settings
from orchid.kernel.settings.data_directory import DataDirectory
from orchid.kernel.settings.errors import BadSettings
from orchid.kernel.settings.signing_files import own_pairs
from orchid.kernel.wire.naming import KUBERNETES, Naming
from orchid.kernel.wire.struct import replace

LARGEST_CLUSTER_ANSWER = 3 << 20  # a page; one request in etcd has at most half of that
CLUSTER_TIMEOUT = 30.0  # seconds
NOTICE_TIMEOUT = 10.0
LARGEST_NOTICE_ANSWER = 64 << 10
LARGEST_NOTICE_TOKEN = 16 << 10
FETCH_SECONDS = 10.0
KEY_SETS = "application/jwk-set+json, application/json"
CLUSTER = "cluster"  # the authority that all platform signers share


def controller_accounts(names: Naming) -> dict[str, str]:
    """The service account, in the system namespace, of each controller."""
    own = {one.name: one.account_name(names) for one in IDENTITIES}
    return {**own, LEADER: LEADER_ELECTION}


def controller_rights(names: Naming) -> list[ControllerRights]:
    """The permissions of each controller, for the bootstrap policy."""
    everywhere = [
        ControllerRights(one.account_name(names), one.rights(names), one.in_system_namespace)
        for one in IDENTITIES
    ]
    at_home = [
        ControllerRights(one.account_name(names), rules, in_system_namespace=True)
        for one in IDENTITIES
        if (rules := one.rights_at_home(names))
    ]
    return everywhere + at_home


def controller_context(
    settings: Settings,
    files: DataDirectory,
    clock: Clock,
    token_issuer: Callable[[], TokenSigner],
    notice_metrics: NoticeMetrics | None = None,
    *,
    stores_authority: bool | None = None,
    authorities: Callable[[], str] | None = None,
    hsm: KeysOfHsm = NO_HSM,
) -> ControllerContext:
    """Dependencies of the controllers besides the API; raises BadSettings if a file is unusable.

    `token_issuer` signs tokens of Secrets, and notices. `stores_authority`: whether the CA of the
    platform signers is an object of the server; None: as the settings say. `authorities`: the CAs
    that verify the server, in PEM; None: those of the files. `hsm`: the one HSM of this process.
    """
    names = settings.names
    try:
        return ControllerContext(
            names=names,
            clock=clock,
            signers=signers(settings, files, clock, is_stored=stores_authority),
            signing_duration=timedelta(seconds=settings.signing_duration),
            crl_url=str(settings.given.crl_url),
            issued_retention=timedelta(seconds=settings.issued_retention),
            token_issuer=token_issuer,
            root_ca=_root_ca(settings, files, authorities),
            identity=_identity(settings),
            key_rotation=_key_rotation(settings),
            cluster_client=_cluster_client,
            notices=notice_settings(settings, notice_metrics or NoticeMetrics()),
            hsm=hsm,
        )
    except Refusal as refusal:
        raise BadSettings(str(refusal)) from None


def _cluster_client(kubeconfig: bytes, where: str) -> ClusterConnection:
    """A client of a cluster that knows certificate requests, by the names of Kubernetes."""
    transport = HttpsClient(
        embedded_remote(kubeconfig, where),
        max_answer=LARGEST_CLUSTER_ANSWER,
        timeout=CLUSTER_TIMEOUT,
        user_agent=user_agent(KUBERNETES),
    )
    catalog = Catalog([certificate_signing_request.declare(KUBERNETES)])
    return ClusterConnection(Client(transport, catalog, FOREIGN), transport)


def file_token_issuer(settings: Settings, files: DataDirectory) -> Callable[[], TokenSigner]:
    """The signer of tokens in Secrets by the key file, read when it is needed."""
    names = settings.names

    def issuer() -> TokenSigner:
        key = key_files.load_signing_key(files.signing_key)
        return TokenSigner(key, names.legacy_issuer, names.private_claim)

    return issuer


def _key_rotation(settings: Settings) -> KeyRotation:
    return KeyRotation(
        settings.stores_token_keys,
        timedelta(seconds=settings.token_key_rotation),
        timedelta(seconds=settings.token_key_publish_time),
        timedelta(seconds=settings.issued_retention),
        _fetching(settings.keys_elsewhere) if settings.keys_elsewhere else None,
    )


def _fetching(url: str) -> Callable[[], Awaitable[Collection[str]]]:
    """Fetch the ids of published keys, with the authorities of the system."""

    async def fetch() -> set[str]:
        from orchid.kernel.access.json_endpoint import JsonEndpoint  # noqa: PLC0415 -- most need it not

        endpoint = JsonEndpoint(Remote(url, trusting()), timeout=FETCH_SECONDS, accept=KEY_SETS)
        try:
            found = foreign.decode(await endpoint.get(), _KeyIds)
        except AnswerRefused as problem:
            raise CallFailed(f"{url} has no key set: {problem}") from None
        return {key.kid for key in found.keys}

    return fetch


class _KeyId(msgspec.Struct):
    kid: str


class _KeyIds(msgspec.Struct):
    keys: list[_KeyId]


def _identity(settings: Settings) -> str:
    """Our identity among the candidates for leader.

    The embedded store belongs to one server, so that after a crash that server may continue
    immediately: it is the same candidate. With a shared store every process is a new one.
    """
    host = socket.gethostname()
    if settings.given.etcd_servers:
        return f"{host}_{uuid.uuid4()}"
    data_id = uuid.uuid5(uuid.NAMESPACE_URL, settings.data_dir.resolve().as_uri())
    return f"{host}_{data_id}"


def _root_ca(
    settings: Settings, files: DataDirectory, stored: Callable[[], str] | None
) -> Callable[[], str]:
    """The CAs that verify this server, as PEM text; "" if unknown."""
    path = files.ca_certificate
    if settings.given.tls_cert_file:
        path = files.serving_certificate  # its chain may end in a CA
    elif stored is not None:
        return stored

    def text() -> str:
        found = certificates.parse_blocks(read_bounded(path))
        authorities = [one for one in found if certificates.is_authority(one)]
        blocks = (pem.encode(pem.CERTIFICATE, certificates.encode(one)) for one in authorities)
        return b"".join(blocks).decode("ascii")

    return Reloading([path], text).current


# --- notices ----------------------------------------------------------------------------------


def notice_settings(settings: Settings, metrics: NoticeMetrics) -> NoticeSettings | None:
    """None if there is no receiver; raises BadSettings if it cannot be used."""
    given = settings.given.of(ReceiverSettings)
    if not given.notice_url:
        return None
    bearer = None
    if given.notice_token_file:
        bearer = functools.partial(_token, Path(given.notice_token_file))
    tls = trusting(trusted_files.authorities("notice-ca-file", given.notice_ca_file))
    remote = Remote(given.notice_url, tls, bearer=bearer)
    client = HttpsClient(remote, max_answer=LARGEST_NOTICE_ANSWER, timeout=NOTICE_TIMEOUT)

    async def post(body: bytes, media: str) -> Answer:
        return await client.send("POST", body=body, media=media)

    receiver = NoticeReceiver(post, settings.issuers[0], _origin(given.notice_url))
    return NoticeSettings(receiver, timedelta(seconds=given.notice_before.seconds), metrics)


def _origin(url: str) -> str:
    """The audience of the notices: without the path, which may be a secret of the receiver."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def _token(path: Path) -> SecretValue:
    """Read at each use, so that the file can be replaced."""
    try:
        text = read_private(path, LARGEST_NOTICE_TOKEN).decode("ascii").strip()
    except (Refusal, UnicodeDecodeError) as problem:
        why = str(problem) if isinstance(problem, Refusal) else "it is not ASCII"
        raise AnswerRefused(f"the token file cannot be used: {why}") from None
    if not text or not text.isprintable() or " " in text:
        raise AnswerRefused("the token file has no token")
    return SecretValue(text)


# --- signers ----------------------------------------------------------------------------------


def signers(
    settings: Settings, files: DataDirectory, clock: Clock, *, is_stored: bool | None = None
) -> dict[str, Signer]:
    """The platform signers with a CA in files: one for all, or each its own."""
    names = settings.names
    own = own_pairs(settings.given, settings.names)
    profiles = platform_profiles(names)
    if own:
        found = {
            name: Signer(
                profiles[name],
                Authority.following(*pair, monotonic=clock.monotonic).current,
                list_name=name.partition("/")[2],
                crl_url=list_url(settings.given.crl_url, name.partition("/")[2]),
            )
            for name, pair in own.items()
        }
        client = found.get(names.client_signer)
        return found | _pod_signers(names, client) if client else found
    if settings.stores_authority if is_stored is None else is_stored:
        return {}  # the CertificateAuthority `cluster` has them
    given = settings.given
    common = Authority.following(
        settings.path(given.cluster_signing_cert_file, files.ca_certificate.name),
        settings.path(given.cluster_signing_key_file, files.ca_key.name),
        monotonic=clock.monotonic,
    )
    url = list_url(settings.given.crl_url, CLUSTER)
    return {
        name: Signer(profile, common.current, list_name=CLUSTER, crl_url=url)
        for name, profile in (profiles | pod_profiles(names)).items()
    }


def _pod_signers(names: Naming, client: Signer) -> dict[str, Signer]:
    """The signer of PodCertificateRequests, which issues with the CA of clients."""
    return {name: replace(client, profile=each) for name, each in pod_profiles(names).items()}


def signing_certificates(settings: Settings, files: DataDirectory) -> dict[str, Path]:
    """The certificate files of the platform signers' CAs, by signer."""
    own = own_pairs(settings.given, settings.names)
    names = settings.names
    if own:
        found = {name: certificate for name, (certificate, _) in own.items()}
        client = found.get(names.client_signer)
        return found | {names.pod_client_signer: client} if client else found
    common = settings.path(settings.given.cluster_signing_cert_file, files.ca_certificate.name)
    return dict.fromkeys(names.issuing_signers, common)


def file_authorities(settings: Settings, files: DataDirectory) -> list[FileAuthority]:
    """The CAs of the platform signers that are files, named like their revocation lists."""
    if settings.stores_authority:
        return []
    found, names = signing_certificates(settings, files), settings.names
    if not own_pairs(settings.given, settings.names):
        return [FileAuthority(CLUSTER, tuple(found), found[names.client_signer])]
    with_pods = names.client_signer, names.pod_client_signer
    return [
        FileAuthority(
            signer.partition("/")[2], with_pods if signer == with_pods[0] else (signer,), path
        )
        for signer, path in found.items()
        if signer != names.pod_client_signer
    ]


def authorities(found: Mapping[str, Signer]) -> dict[str, dict[str, list[str]]]:
    """The CAs of some signers, by the SHA-256 of their certificates."""
    known: dict[str, dict[str, list[str]]] = {}
    for name, signer in sorted(found.items()):
        key = certificates.fingerprint(signer.authority().certificate)
        known.setdefault(key, {"signers": []})["signers"].append(name)
    return known
