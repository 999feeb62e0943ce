"""The recorded exchanges in the other naming: requests translated on the way out, answers back.

The cases are written in the product's own names. `TranslatingCaller` speaks them to a server
that was started with `--naming kubernetes`, so that one recording holds for both. The rules
stand here as patterns on purpose: they are what a person would expect, not what the server's
naming module says.
"""

import re
from collections.abc import Mapping

from tests.conformance.exchanges import Caller

_GROUPS = (
    r"(authentication|authorization|rbac\.authorization|certificates|coordination|events|meta)"
)
_EXTRA = r"authentication\.{}/(credential-id|(?:pod|node)-(?:name|uid)|[a-z-]*token[a-z-]*)"
_COMPONENT = r"{}-(apiserver|system|public|node-lease|root-ca\.crt|controller-manager)"

TO_KUBERNETES = (
    (_EXTRA.format(r"orch\.io"), r"authentication.kubernetes.io/\1"),
    (_GROUPS + r"\.orch\.io", r"\1.k8s.io"),
    (r"\borchctl\.orch\.io", "kubectl.kubernetes.io"),
    (r"\borch\.io", "kubernetes.io"),
    (_COMPONENT.format("orch"), r"kube-\1"),
    (r"\borchlet", "kubelet"),
    (r"-orchlet\b", "-kubelet"),
    (r"\borchctl\b", "kubectl"),
)
FROM_KUBERNETES = (
    (_EXTRA.format(r"kubernetes\.io"), r"authentication.orch.io/\1"),
    (_GROUPS + r"\.k8s\.io", r"\1.orch.io"),
    (r"\bkubectl\.kubernetes\.io", "orchctl.orch.io"),
    (r"\bkubernetes\.io", "orch.io"),
    (_COMPONENT.format("kube"), r"orch-\1"),
    (r"\bkubelet", "orchlet"),
    (r"-kubelet\b", "-orchlet"),
    (r"\bkubectl\b", "orchctl"),
)


def translated(text: str, rules: tuple[tuple[str, str], ...]) -> str:
    for pattern, replacement in rules:
        text = re.sub(pattern, replacement, text)
    return text


class TranslatingCaller(Caller):
    """Speaks the recorded names to a server that has the other ones."""

    def send(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes | None
    ) -> tuple[int, dict[str, str], bytes]:
        status, found, raw = super().send(
            method,
            translated(path, TO_KUBERNETES),
            {name: translated(value, TO_KUBERNETES) for name, value in headers.items()},
            translated(body.decode(), TO_KUBERNETES).encode() if body is not None else None,
        )
        back = {name: translated(value, FROM_KUBERNETES) for name, value in found.items()}
        text = translated(raw.decode("utf-8", "replace"), FROM_KUBERNETES)
        return status, back, text.encode()
