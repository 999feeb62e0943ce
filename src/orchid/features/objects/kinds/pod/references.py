"""References of a Pod to other objects: Secrets, config maps, accounts, volumes.

`REFERENCE_PATHS` lists the paths in a spec that hold names, `leaves` reads them. `reference_of`
returns any reference, also one without a name.

A spec may hold anything anywhere: a value of an unexpected type refers to nothing.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from orchid.kernel.wire.fields import Path

ROOT: Final = Path()
_CONTAINERS = ("initContainers", "containers", "ephemeralContainers")
_SECRET_VOLUMES = ("cephfs", "cinder", "flexVolume", "iscsi", "rbd", "scaleIO", "storageos")
# Paths in a Pod's spec that hold names of other objects.
REFERENCE_PATHS: Final[dict[str, tuple[tuple[str, ...], ...]]] = {
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

# Volumes that refer to an API object, even without a name.
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
    """Strings at the end of a path, through lists; values of an unexpected type are skipped."""
    nodes = [value]
    for word in path:
        inner = [node[word] for node in nodes if isinstance(node, dict) and word in node]
        nodes = [item for node in inner for item in (node if isinstance(node, list) else (node,))]
    return [node for node in nodes if isinstance(node, str) and node]


def located(value: Any, path: tuple[str, ...], at: Path = ROOT) -> Iterator[tuple[Path, str]]:
    """The same with the index of each; slower, so only for error messages."""
    if not path:
        if isinstance(value, str) and value:
            yield at, value
    elif isinstance(value, dict):
        inner, place = value.get(path[0]), at / path[0]
        if isinstance(inner, list):
            for index, item in enumerate(inner):
                yield from located(item, path[1:], place[index])
        else:
            yield from located(inner, path[1:], place)


def items(value: Any) -> Iterator[dict[str, Any]]:
    """The objects in a list; other values are skipped."""
    if isinstance(value, list | tuple):
        yield from (item for item in value if isinstance(item, dict))


def projected_sources(spec: dict[str, Any], name: str) -> Iterator[tuple[Path, dict[str, Any]]]:
    """The sources of one sort in the projected volumes of a Pod, each with its path."""
    for number, volume in enumerate(_listed(spec.get("volumes"))):
        projected = volume.get("projected") if isinstance(volume, dict) else None
        listed = projected.get("sources") if isinstance(projected, dict) else None
        for index, source in enumerate(_listed(listed)):
            projection = source.get(name) if isinstance(source, dict) else None
            if isinstance(projection, dict):
                path = ROOT / "spec" / "volumes"
                yield (path[number] / "projected" / "sources")[index] / name, projection


def _listed(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else ()


def reference_of(spec: dict[str, Any]) -> str:
    """The first reference of a Pod besides its account, or "" if there is none."""
    for resource in ("secrets", "configmaps"):
        if any(leaves(spec, path) for path in REFERENCE_PATHS[resource]):
            return resource
    if spec.get("resourceClaims"):
        return "resourceclaims"
    for volume in items(spec.get("volumes")):
        if plural := _known(volume, VOLUMES):
            return plural
        projected = volume.get("projected")
        for source in items(projected.get("sources") if isinstance(projected, dict) else None):
            if plural := _known(source, PROJECTED):
                return plural
    return ""


def _known(source: dict[str, Any], names: Mapping[str, str]) -> str:
    return next((text for key, text in names.items() if source.get(key) is not None), "")
