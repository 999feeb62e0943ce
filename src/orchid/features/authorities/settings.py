"""Settings of the authorities that sign certificates: files of platform signers, and the HSM.

The --cluster-signing-…-file flags: one authority for all platform signers, or one for each.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, ClassVar, Final, NamedTuple

from orchid.features.sealing.settings import is_unsealed
from orchid.kernel.settings.errors import BadSettings
from orchid.kernel.settings.given import Given, Help
from orchid.kernel.settings.section import Section, go_together
from orchid.kernel.settings.values import Duration
from orchid.kernel.wire.naming import SETS

# By the word in the flags: the field of Naming with the signer, and the name of the certificate in
# metrics. The empty word means the pair that all signers share.
_PAIRS: Final = {
    "": ("", "signing-ca"),
    "client_": ("client_signer", "client-signing-ca"),
    "node_client_": ("node_client_signer", "node-client-signing-ca"),
    "node_serving_": ("node_serving_signer", "node-serving-signing-ca"),
    "legacy_unknown_": ("legacy_signer", "legacy-signing-ca"),
}


class AuthoritySettings(Section, frozen=True):
    after: ClassVar = "api-audiences"

    cluster_signing_cert_file: Annotated[
        str, Help(description="CA that signs certificate requests. Default: the cluster CA.")
    ] = ""
    cluster_signing_key_file: Annotated[str, Help(description="Its key.")] = ""
    cluster_signing_duration: Annotated[
        Duration, Help(description="Maximum lifetime of an issued certificate.")
    ] = Duration("8760h")
    cluster_signing_client_cert_file: Annotated[
        str, Help(description="CA of the API client signer only.")
    ] = ""
    cluster_signing_client_key_file: Annotated[str, Help(description="Its key.")] = ""
    cluster_signing_node_client_cert_file: Annotated[
        str, Help(description="CA of the node client signer only.")
    ] = ""
    cluster_signing_node_client_key_file: Annotated[str, Help(description="Its key.")] = ""
    cluster_signing_node_serving_cert_file: Annotated[
        str, Help(description="CA of the node serving signer only.")
    ] = ""
    cluster_signing_node_serving_key_file: Annotated[str, Help(description="Its key.")] = ""
    cluster_signing_legacy_unknown_cert_file: Annotated[
        str, Help(description="CA of the legacy signer only.")
    ] = ""
    cluster_signing_legacy_unknown_key_file: Annotated[str, Help(description="Its key.")] = ""
    pkcs11_module: Annotated[
        str,
        Help(
            description="PKCS#11 library of a hardware security module with keys of authorities; "
            "needs the extra hsm."
        ),
    ] = ""
    pkcs11_token: Annotated[str, Help(description="Label of its token.")] = ""
    pkcs11_pin_file: Annotated[
        str, Help(description="File with the user PIN of the token, readable by its owner only.")
    ] = ""

    def refuse_contradictions(self, given: Given) -> None:
        own_pairs(given)
        go_together(self, "cluster_signing_cert_file", "cluster_signing_key_file")
        go_together(self, "pkcs11_module", "pkcs11_token")
        go_together(self, "pkcs11_module", "pkcs11_pin_file")


class SigningFiles(NamedTuple):
    """One pair of flags; both values are empty if it is not given."""

    signer: str  # empty: all signers
    metric: str
    flag: str
    certificate: str
    key: str


def signing_files(written: Given) -> list[SigningFiles]:
    """Every pair of flags, the shared one first."""
    options, naming = written.of(AuthoritySettings), SETS[written.naming]
    return [
        SigningFiles(
            signer=getattr(naming, field) if field else "",
            metric=metric,
            flag=f"cluster-signing-{word}".rstrip("_-").replace("_", "-"),
            certificate=getattr(options, f"cluster_signing_{word}cert_file"),
            key=getattr(options, f"cluster_signing_{word}key_file"),
        )
        for word, (field, metric) in _PAIRS.items()
    ]


def own_pairs(written: Given) -> Mapping[str, tuple[Path, Path]]:
    """The files of signers with an authority of their own; raises BadSettings."""
    shared, *others = signing_files(written)
    for each in others:
        if bool(each.certificate) != bool(each.key):
            raise BadSettings(f"--{each.flag}-cert-file and --{each.flag}-key-file go together")
    pairs = {each.signer: (Path(each.certificate), Path(each.key)) for each in others if each.key}
    if pairs and shared.certificate:
        raise BadSettings(
            "cannot specify --cluster-signing-{cert,key}-file and other --cluster-signing-*-file "
            "flags at the same time"
        )
    return pairs


def stores_authority(given: Given) -> bool:
    """Whether the platform's authority is a CertificateAuthority; otherwise it is files."""
    has_files = any(each.certificate or each.key for each in signing_files(given))
    return not has_files and not is_unsealed(given)
