"""The platform signers whose CAs are files: one for all, or each its own."""

from collections.abc import Mapping
from pathlib import Path

from orchid.features.approval.platform_signers import platform_profiles, pod_profiles
from orchid.features.authorities.file_authorities import FileAuthority
from orchid.features.authorities.settings import AuthoritySettings, own_pairs, stores_authority
from orchid.features.revocation.settings import RevocationSettings
from orchid.features.sign_in.settings import SignInSettings
from orchid.kernel.base.clock import Clock
from orchid.kernel.credentials.authorities.authority import Authority
from orchid.kernel.credentials.files import read_bounded
from orchid.kernel.credentials.x509 import certificates
from orchid.kernel.credentials.x509.revocation_list import list_url
from orchid.kernel.runtime.context import Signer
from orchid.kernel.settings.checking import Settings
from orchid.kernel.settings.data_directory import DataDirectory
from orchid.kernel.wire.naming import Naming
from orchid.kernel.wire.struct import replace

CLUSTER = "cluster"  # the authority that all platform signers share


def signers(
    settings: Settings, files: DataDirectory, clock: Clock, *, is_stored: bool | None = None
) -> dict[str, Signer]:
    """The platform signers with a CA in files: one for all, or each its own."""
    naming = settings.naming
    own = own_pairs(settings.given)
    profiles = platform_profiles(naming)
    base_url = settings.given.of(RevocationSettings).crl_url
    if own:
        signers_of_pairs = {
            name: Signer(
                profiles[name],
                Authority.following(*pair, monotonic=clock.monotonic).current,
                list_name=name.partition("/")[2],
                crl_url=list_url(base_url, name.partition("/")[2]),
            )
            for name, pair in own.items()
        }
        client = signers_of_pairs.get(naming.client_signer)
        return signers_of_pairs | _pod_signers(naming, client) if client else signers_of_pairs
    if stores_authority(settings.given) if is_stored is None else is_stored:
        return {}  # the CertificateAuthority `cluster` has them
    options = settings.given.of(AuthoritySettings)
    common = Authority.following(
        settings.path(options.cluster_signing_cert_file, files.ca_certificate.name),
        settings.path(options.cluster_signing_key_file, files.ca_key.name),
        monotonic=clock.monotonic,
    )
    url = list_url(base_url, CLUSTER)
    return {
        name: Signer(profile, common.current, list_name=CLUSTER, crl_url=url)
        for name, profile in (profiles | pod_profiles(naming)).items()
    }


def _pod_signers(naming: Naming, client: Signer) -> dict[str, Signer]:
    """The signer of PodCertificateRequests, which issues with the CA of clients."""
    return {name: replace(client, profile=each) for name, each in pod_profiles(naming).items()}


def signing_certificates(settings: Settings, files: DataDirectory) -> dict[str, Path]:
    """The certificate files of the platform signers' CAs, by signer."""
    own = own_pairs(settings.given)
    naming = settings.naming
    if own:
        paths = {name: certificate for name, (certificate, _) in own.items()}
        client = paths.get(naming.client_signer)
        return paths | {naming.pod_client_signer: client} if client else paths
    common = settings.path(
        settings.given.of(AuthoritySettings).cluster_signing_cert_file, files.ca_certificate.name
    )
    return dict.fromkeys(naming.issuing_signers, common)


def file_authorities(settings: Settings, files: DataDirectory) -> list[FileAuthority]:
    """The CAs of the platform signers that are files, named like their revocation lists."""
    if stores_authority(settings.given):
        return []
    paths, naming = signing_certificates(settings, files), settings.naming
    if not own_pairs(settings.given):
        return [FileAuthority(CLUSTER, tuple(paths), paths[naming.client_signer])]
    with_pods = naming.client_signer, naming.pod_client_signer
    return [
        FileAuthority(
            signer.partition("/")[2], with_pods if signer == with_pods[0] else (signer,), path
        )
        for signer, path in paths.items()
        if signer != naming.pod_client_signer
    ]


def unaccepted_clients(settings: Settings, files: DataDirectory) -> str:
    """Whether the authority of client certificates is not one that clients may have."""
    accepted = settings.given.of(SignInSettings).client_ca_file
    if not accepted:
        return ""
    paths = signing_certificates(settings, files)
    signing = paths.get(settings.naming.client_signer, files.ca_certificate)
    signer, *_ = certificates.parse_blocks(read_bounded(signing))
    if signer in certificates.parse_blocks(read_bounded(Path(accepted))):
        return ""
    return (
        f"client certificates that this server signs are refused by it: {accepted} "
        f"does not contain {signing}"
    )


def certificates_of(signers_by_name: Mapping[str, Signer]) -> dict[str, dict[str, list[str]]]:
    """The CAs of some signers, by the SHA-256 of their certificates."""
    by_certificate: dict[str, dict[str, list[str]]] = {}
    for name, signer in sorted(signers_by_name.items()):
        key = certificates.fingerprint(signer.authority().certificate)
        by_certificate.setdefault(key, {"signers": []})["signers"].append(name)
    return by_certificate
