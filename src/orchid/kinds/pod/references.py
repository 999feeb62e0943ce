"""What a Pod refers to: the other objects of the API that it cannot run without.

`PLACES` says where in a spec the names of Secrets, config maps and accounts stand, `leaves` finds
them there. `reference_of` tells whether there is any reference at all, by a name or without one.

A spec may hold anything anywhere: a value of an unexpected shape refers to nothing.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from orchid.wire.fields import Path

ROOT: Final = Path()
_CONTAINERS = ("initContainers", "containers", "ephemeralContainers")
_SECRET_VOLUMES = ("cephfs", "cinder", "flexVolume", "iscsi", "rbd", "scaleIO", "storageos")
# Where in a Pod's spec the names of other objects stand.
PLACES: Final[dict[str, tuple[tuple[str, ...], ...]]] = {
    "secrets": (
        ("imagePullSecrets", "name"),
        ("volumes", "secret", "secretName"),
        ("volumes", "projected", "sources", "secret", "name"),
        ("volumes", "csi", "nodePublishSecretRef", "name"),
        ("volumes", "azureFile", "secretName"),
        *(("volumes", volume, "secretRef", "name") for volume in _SECRET_VOLUMES),
        *((containers, "envFrom", "secretRef", "name") for containers in _CONTAINERS),
        *((containers, "env", "valueFrom", "secretKeyRef", "name") for containers in _CONTAINERS),
    ),
    "configmaps": (
        ("volumes", "configMap", "name"),
        ("volumes", "projected", "sources", "configMap", "name"),
        *((containers, "envFrom", "configMapRef", "name") for containers in _CONTAINERS),
        *(
            (containers, "env", "valueFrom", "configMapKeyRef", "name")
            for containers in _CONTAINERS
        ),
    ),
    "serviceaccounts": (("serviceAccountName",),),
}

# Volumes that stand for an object of the API, even if they do not name one.
VOLUMES: Final = {
    "configMap": "configmaps (via configmap volumes)",
    "secret": "secrets (via secret volumes)",
    "csi": "csidrivers (via CSI volumes)",
    "glusterfs": "endpoints (via glusterFS volumes)",
    "persistentVolumeClaim": "persistentvolumeclaims",
    "ephemeral": "persistentvolumeclaims (via ephemeral volumes)",
    "azureFile": "secrets (via azureFile volumes)",
}
PROJECTED: Final = {
    "configMap": "configmaps (via projected volumes)",
    "secret": "secrets (via projected volumes)",
    "serviceAccountToken": "serviceaccounts (via projected volumes)",
    "clusterTrustBundle": "clustertrustbundles",
    "podCertificate": "podcertificates",
}


def leaves(value: Any, path: tuple[str, ...]) -> list[str]:
    """The texts at the end of a path, through lists where there are any; odd shapes have none."""
    found = [value]
    for word in path:
        inner = [one[word] for one in found if isinstance(one, dict) and word in one]
        found = [item for one in inner for item in (one if isinstance(one, list) else (one,))]
    return [one for one in found if isinstance(one, str) and one]


def located(value: Any, path: tuple[str, ...], at: Path = ROOT) -> Iterator[tuple[Path, str]]:
    """The same, each with the place where it stands; slow, so only for what is to be told."""
    if not path:
        if isinstance(value, str) and value:
            yield at, value
    elif isinstance(value, dict):
        inner, there = value.get(path[0]), at / path[0]
        if isinstance(inner, list):
            for index, item in enumerate(inner):
                yield from located(item, path[1:], there[index])
        else:
            yield from located(inner, path[1:], there)


def items(value: Any) -> Iterator[dict[str, Any]]:
    """The objects in a list; a Pod may hold anything in its place."""
    if isinstance(value, list | tuple):
        yield from (item for item in value if isinstance(item, dict))


def reference_of(spec: dict[str, Any]) -> str:
    """What a Pod refers to, besides the account it runs as; nothing if it stands alone."""
    for resource in ("secrets", "configmaps"):
        if any(leaves(spec, path) for path in PLACES[resource]):
            return resource
    if spec.get("resourceClaims"):
        return "resourceclaims"
    for volume in items(spec.get("volumes")):
        if found := _known(volume, VOLUMES):
            return found
        projected = volume.get("projected")
        for source in items(projected.get("sources") if isinstance(projected, dict) else None):
            if found := _known(source, PROJECTED):
                return found
    return ""


def _known(source: dict[str, Any], names: Mapping[str, str]) -> str:
    return next((text for key, text in names.items() if source.get(key) is not None), "")
