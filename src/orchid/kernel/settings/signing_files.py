"""The --cluster-signing-…-file flags: one authority for all platform signers, or one for each."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from orchid.kernel.settings.errors import BadSettings
from orchid.kernel.settings.given import Given
from orchid.kernel.wire.naming import Naming

# By the word in the flags: the field of Naming with the signer, and the name of the certificate in
# metrics. The empty word means the pair that all signers share.
_PAIRS: Final = {
    "": ("", "signing-ca"),
    "client_": ("client_signer", "client-signing-ca"),
    "node_client_": ("node_client_signer", "node-client-signing-ca"),
    "node_serving_": ("node_serving_signer", "node-serving-signing-ca"),
    "legacy_unknown_": ("legacy_signer", "legacy-signing-ca"),
}


class SigningFiles(NamedTuple):
    """One pair of flags; both values are empty if it is not given."""

    signer: str  # empty: all signers
    metric: str
    flag: str
    certificate: str
    key: str


def signing_files(options: Given, naming: Naming) -> list[SigningFiles]:
    """Every pair of flags, the shared one first."""
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


def own_pairs(options: Given, naming: Naming) -> Mapping[str, tuple[Path, Path]]:
    """The files of signers with an authority of their own; raises BadSettings."""
    shared, *others = signing_files(options, naming)
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
