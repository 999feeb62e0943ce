"""Rules for the certificates that a Pod mounts: projected volumes with a `podCertificate`.

The node of the Pod requests the certificate by a PodCertificateRequest and writes the files.
"""

from collections.abc import Iterator
from typing import Any, Final

from orchid.features.objects.kinds.pod.references import projected_sources
from orchid.kernel.wire.fields import FieldError, Path, invalid, required, type_invalid, unsupported
from orchid.kernel.wire.rules.signer_names import signer_name_errors
from orchid.kernel.wire.rules.user_annotations import user_annotation_errors

SOURCE: Final = "podCertificate"
KEY_TYPES: Final = ("RSA3072", "RSA4096", "ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519")
SHORTEST: Final = 3600
LONGEST: Final = 7_862_400
LONGEST_PLATFORM: Final = 86_400
PATHS: Final = ("credentialBundlePath", "keyPath", "certificateChainPath")


def mounts_certificate_of(spec: dict[str, Any], signer: str) -> bool:
    """Whether a Pod mounts a certificate of the signer."""
    sources = projected_sources(spec, SOURCE)
    return any(source.get("signerName") == signer for _, source in sources)


def certificate_errors(spec: dict[str, Any], platform_domain: str) -> Iterator[FieldError]:
    for path, source in projected_sources(spec, SOURCE):
        signer = source.get("signerName") or ""
        if not isinstance(signer, str):
            yield type_invalid(path / "signerName", signer, "must be a string")
            continue
        yield from signer_name_errors(path / "signerName", signer)
        if source.get("keyType") not in KEY_TYPES:
            yield unsupported(path / "keyType", source.get("keyType") or "", KEY_TYPES)
        is_platform = signer.startswith(f"{platform_domain}/")
        yield from _expiration_errors(path, source, LONGEST_PLATFORM if is_platform else LONGEST)
        annotations = source.get("userAnnotations")
        if isinstance(annotations, dict) and all(map(_is_text, annotations.values())):
            yield from user_annotation_errors(path / "userAnnotations", annotations)
        yield from _path_errors(path, source)


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _expiration_errors(path: Path, source: dict[str, Any], longest: int) -> Iterator[FieldError]:
    seconds, at = source.get("maxExpirationSeconds"), path / "maxExpirationSeconds"
    if not isinstance(seconds, int):
        return
    if seconds < SHORTEST:
        yield invalid(at, seconds, f"if provided, maxExpirationSeconds must be >= {SHORTEST}")
    if seconds > longest:
        yield invalid(at, seconds, f"if provided, maxExpirationSeconds must be <= {longest}")


def _path_errors(path: Path, source: dict[str, Any]) -> Iterator[FieldError]:
    names = [name for name in PATHS if source.get(name)]
    if not names:
        text = "specify at least one of credentialBundlePath, keyPath, and certificateChainPath"
        yield required(path, text)
    seen: set[str] = set()
    for name in names:
        file = source[name]
        if not isinstance(file, str):
            yield type_invalid(path / name, file, "must be a string")
            continue
        if file.startswith("/"):
            yield invalid(path / name, file, "must be a relative path")
        if ".." in file.split("/"):
            yield invalid(path / name, file, "must not contain '..'")
        elif file.startswith(".."):
            yield invalid(path / name, file, "must not start with '..'")
        if file in seen:
            yield invalid(path / name, file, "conflicting duplicate paths")
        seen.add(file)
