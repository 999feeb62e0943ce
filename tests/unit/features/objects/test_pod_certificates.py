"""The certificates that a Pod mounts: which projections are accepted."""

from typing import Any

import pytest

from orchid.features.objects.kinds.pod import pod
from orchid.features.objects.kinds.pod.certificates import mounts_certificate_of
from orchid.kernel.wire.naming import KUBERNETES, ORCH

GOOD = {"signerName": "example.com/pods", "keyType": "ED25519", "credentialBundlePath": "all.pem"}
AT = "spec.volumes[1].projected.sources[0].podCertificate"


def a_pod(**source: Any) -> pod.Pod:
    certificate = {"projected": {"sources": [{"podCertificate": GOOD | source}]}}
    return pod.Pod(spec={"volumes": [{"name": "first"}, {"name": "c", **certificate}]})


def refusals(new: pod.Pod) -> list[str]:
    return [str(error) for error in pod.declare(ORCH).rules.validate(new)]


def test_a_complete_projection_is_accepted() -> None:
    """With one path or three, and with annotations."""
    paths = {"keyPath": "tls.key", "certificateChainPath": "tls.crt"}

    assert refusals(a_pod()) == []
    assert (
        refusals(a_pod(**paths, maxExpirationSeconds=3600, userAnnotations={"a.io/b": "c"})) == []
    )
    assert mounts_certificate_of(a_pod().spec, "example.com/pods")
    assert not mounts_certificate_of(a_pod().spec, "example.com/other")


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ({"signerName": ""}, f"{AT}.signerName: Required value"),
        ({"signerName": 7}, f"{AT}.signerName: Invalid value: 7: must be a string"),
        ({"keyType": "RSA2048"}, f'{AT}.keyType: Unsupported value: "RSA2048": supported values: '),
        ({"maxExpirationSeconds": 60}, f"{AT}.maxExpirationSeconds: Invalid value: 60: "),
        ({"maxExpirationSeconds": 7862401}, f"{AT}.maxExpirationSeconds: Invalid value: 7862401: "),
        ({"credentialBundlePath": ""}, f"{AT}: Required value: specify at least one of"),
        ({"credentialBundlePath": "/etc/x"}, f"{AT}.credentialBundlePath: Invalid value: "),
        ({"credentialBundlePath": "a/../b"}, f"{AT}.credentialBundlePath: Invalid value: "),
        ({"credentialBundlePath": "..data"}, f"{AT}.credentialBundlePath: Invalid value: "),
        ({"keyPath": "all.pem"}, f'{AT}.keyPath: Invalid value: "all.pem": conflicting'),
        ({"userAnnotations": {"plain": "x"}}, f'{AT}.userAnnotations: Invalid value: "plain": '),
    ],
)
def test_each_field_has_its_rule(source: dict[str, Any], text: str) -> None:
    """One error for one fault, with its path."""
    (found,) = refusals(a_pod(**source))

    assert found.startswith(text)


def test_platform_signers_issue_for_a_day_at_most() -> None:
    """The domain of the platform follows the naming."""
    long = a_pod(signerName="kubernetes.io/x", maxExpirationSeconds=86401)

    assert refusals(long) == []
    assert len(list(pod.declare(KUBERNETES).rules.validate(long))) == 1


@pytest.mark.parametrize("volumes", [7, [7], [{"projected": 7}], [{"projected": {"sources": 7}}]])
def test_unexpected_shapes_mount_nothing(volumes: Any) -> None:
    """A Pod may hold anything anywhere; the decoder has checked what the schema declares."""
    assert not mounts_certificate_of({"volumes": volumes}, "example.com/pods")
