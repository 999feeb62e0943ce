"""The files that settings name: their checks before anything starts, and the certificates in them.

`require_usable` reads each file once with the code that the server reads it with, and reports all
mistakes together, each as one line with its flag. `READERS` has a reader for every setting that
names a file. Files that are not given are not read.
"""

import ctypes
import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from orchid.assembly.kinds import stored_kinds
from orchid.features.authorities.file_signers import unaccepted_clients
from orchid.features.authorities.settings import signing_files
from orchid.features.ledger.own_log import ledger_key
from orchid.features.rights.authorizers.configuration import read_configuration as read_authorizers
from orchid.features.sealing.encryption import read_configuration as read_encryption
from orchid.features.sign_in.authenticators.static_token import StaticTokenAuthenticator
from orchid.features.sign_in.settings import SignInSettings
from orchid.features.token_keys.followed_keys import unverified_tokens
from orchid.kernel.credentials import keys
from orchid.kernel.credentials.authorities import authority_keys
from orchid.kernel.credentials.authorities.authority import Authority
from orchid.kernel.credentials.expiry import CertificateFile
from orchid.kernel.credentials.files import read_bounded, read_private
from orchid.kernel.credentials.refusals import Refusal, UnreadableKey
from orchid.kernel.credentials.x509.trust.certification_path import ClientVerifier
from orchid.kernel.expressions.cel import Compiler
from orchid.kernel.http.tls.files import TlsFiles
from orchid.kernel.outbound.remote import read_kubeconfig
from orchid.kernel.outbound.tls import present, trusting
from orchid.kernel.server.audit import policy as audit_policy
from orchid.kernel.settings import trusted_files
from orchid.kernel.settings.checking import Settings
from orchid.kernel.settings.data_directory import DataDirectory
from orchid.kernel.settings.errors import BadSettings
from orchid.kernel.settings.trusted_files import require_certificate

Reader = Callable[[Path, Settings], Any]
OF_CONTROLLERS: Final = ("cluster-signing-", "pkcs11-", "notice-")


def require_usable(settings: Settings, prefixes: tuple[str, ...] = ("",)) -> None:
    """Raise BadSettings with a line for each file that cannot be used.

    `prefixes`: of the settings whose files are used.
    """
    if lines := list(problems(settings, prefixes)):
        raise BadSettings("\n".join(lines))


def problems(settings: Settings, prefixes: tuple[str, ...] = ("",)) -> Iterator[str]:
    """A line for each file that cannot be used: flag, file and reason."""
    for field in msgspec.structs.fields(type(settings.given)):
        name, value = field.encode_name, getattr(settings.given, field.name)
        if name in READERS and name.startswith(prefixes) and value:
            for text in (value,) if isinstance(value, str) else value:
                if problem := _problem(name, text, settings):
                    yield problem


def _problem(name: str, text: str, settings: Settings) -> str:
    try:
        READERS[name](Path(text), settings)
    except BadSettings as problem:
        return str(problem)
    except (Refusal, ValueError) as problem:
        why = str(problem)
        return f"--{name}: {why if text in why else f'{text}: {why}'}"
    return ""


def certificate_files(settings: Settings, files: DataDirectory) -> list[CertificateFile]:
    """All certificate files that a server with these settings uses for itself."""
    options, sign_in = settings.given, settings.given.of(SignInSettings)
    signing = {
        **{each.metric: each.certificate for each in signing_files(options)},
        "etcd-client": options.etcd_certfile,
    }
    bundles = {
        "client-ca": sign_in.client_ca_file,
        "front-proxy-ca": sign_in.requestheader_client_ca_file,
        "oidc-ca": sign_in.oidc_ca_file,
        "etcd-ca": options.etcd_cafile,
    }
    return [
        CertificateFile("serving", files.serving_certificate),
        CertificateFile("cluster-ca", files.ca_certificate),
        *(CertificateFile(word, Path(path)) for word, path in signing.items() if path),
        *(
            CertificateFile(word, Path(path), is_bundle=True)
            for word, path in bundles.items()
            if path
        ),
    ]


def refused_credentials(settings: Settings, files: DataDirectory) -> Iterator[str]:
    """Sentences about credentials that the server issues and then refuses, by its settings.

    Files that cannot be read are reported elsewhere.
    """
    for check in (
        functools.partial(unverified_tokens, settings),
        functools.partial(unaccepted_clients, settings, files),
    ):
        try:
            if refused := check():
                yield refused
        except (Refusal, ValueError):
            continue


# -- readers: each raises BadSettings, Refusal or ValueError -----------------------------------


def _trusted(path: Path, _: Settings) -> None:
    trusted_files.read(path)


def _clients(path: Path, _: Settings) -> None:
    ClientVerifier.load(path)


def _key(path: Path, _: Settings) -> None:
    keys.find_private_key(read_private(path), str(path))


def _pair(key: str, load: Callable[[Path, Path], Any]) -> Reader:
    """The reader of a certificate whose key is another setting, which has its own reader."""

    def read(path: Path, settings: Settings) -> None:
        require_certificate(path)
        key_file = Path(getattr(settings.given, key.replace("-", "_")))
        if _problem(key, str(key_file), settings):
            return
        try:
            load(path, key_file)
        except (Refusal, ValueError) as problem:
            why = str(problem)
            both = f"{path} and {key_file}: "
            raise UnreadableKey(why if str(key_file) in why else both + why) from None

    return read


def _authority(certificate: Path, key: Path) -> None:
    Authority.load(read_bounded(certificate), read_private(key))


def _serving(certificate: Path, key: Path) -> None:
    TlsFiles(certificate, key)


def _presented(certificate: Path, key: Path) -> None:
    present(trusting(), read_bounded(certificate), read_private(key))


def _authority_key(path: Path, _: Settings) -> None:
    authority_keys.read(read_private(path), str(path))


def _signing_key(path: Path, _: Settings) -> None:
    keys.load_signing_key(path)


def _verification_keys(path: Path, _: Settings) -> None:
    keys.load_verification_keys(path)


def _ledger_key(path: Path, _: Settings) -> None:
    ledger_key(path)


def _static_tokens(path: Path, _: Settings) -> None:
    StaticTokenAuthenticator.load(path, ())


def _outside_issuers(_: Path, settings: Settings) -> None:
    from orchid.features.sign_in import outside_issuers  # noqa: PLC0415 -- most servers have none

    outside_issuers.read(settings)


def _exchange_issuers(_: Path, settings: Settings) -> None:
    from orchid.features.exchange import parts  # noqa: PLC0415 -- most servers have none

    parts.issuers(settings)


def _kubeconfig(path: Path, _: Settings) -> None:
    read_kubeconfig(path)


def _authorizers(path: Path, settings: Settings) -> None:
    for one in read_authorizers(read_bounded(path), Compiler()):
        if one.webhook is not None:
            _kubeconfig(Path(one.webhook.kubeconfig), settings)


def _encryption(path: Path, settings: Settings) -> None:
    read_encryption(read_private(path), stored_kinds(settings.naming))


def _audit_policy(path: Path, _: Settings) -> None:
    audit_policy.load(path)


def _module(path: Path, _: Settings) -> None:
    """Load the library; the token itself may be out of reach for a while."""
    read = "C_GetFunctionList"  # the entry point of every PKCS#11 library
    try:
        if not path.is_file() or not hasattr(ctypes.CDLL(str(path)), read):
            raise UnreadableKey(f"{path} is not a PKCS#11 library")
    except OSError:
        raise UnreadableKey(f"{path} is not a PKCS#11 library") from None


def _secret(path: Path, _: Settings) -> None:
    try:
        text = read_private(path).decode().strip()
    except UnicodeDecodeError:
        text = ""
    if not text.isprintable() or not text:
        raise UnreadableKey(f"{path} does not contain a line of text")


READERS: Final[dict[str, Reader]] = {
    "tls-cert-file": _pair("tls-private-key-file", _serving),
    "tls-private-key-file": _key,
    "client-ca-file": _clients,
    "token-auth-file": _static_tokens,
    "requestheader-client-ca-file": _clients,
    "authentication-config": _outside_issuers,
    "oidc-ca-file": _trusted,
    "authentication-token-webhook-config-file": _kubeconfig,
    "service-account-signing-key-file": _signing_key,
    "service-account-key-file": _verification_keys,
    "token-exchange-config": _exchange_issuers,
    "authorization-config": _authorizers,
    "authorization-webhook-config-file": _kubeconfig,
    **{
        name: reader
        for word in ("", "client-", "node-client-", "node-serving-", "legacy-unknown-")
        for name, reader in {
            f"cluster-signing-{word}cert-file": _pair(
                f"cluster-signing-{word}key-file", _authority
            ),
            f"cluster-signing-{word}key-file": _authority_key,
        }.items()
    },
    "pkcs11-module": _module,
    "pkcs11-pin-file": _secret,
    "notice-ca-file": _trusted,
    "notice-token-file": _secret,
    "console-oidc-client-secret-file": _secret,
    "console-tls-cert-file": _pair("console-tls-private-key-file", _serving),
    "console-tls-private-key-file": _key,
    "etcd-cafile": _trusted,
    "etcd-certfile": _pair("etcd-keyfile", _presented),
    "etcd-keyfile": _key,
    "encryption-provider-config": _encryption,
    "ledger-key-file": _ledger_key,
    "audit-policy-file": _audit_policy,
}
