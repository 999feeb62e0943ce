"""Requirements of a Secret's type for its data."""

import pytest

from orchid.features.objects.kinds.secret import Rules, Secret
from orchid.kernel.wire.fields import gathered
from orchid.kernel.wire.naming import ORCH

CONFIG = ".dockerconfigjson"
REDACTED = '"<secret contents redacted>": must be a JSON object'


@pytest.mark.parametrize(
    ("type_", "data", "expected"),
    [
        ("tls", {"tls.crt": b""}, ["data[tls.key]: Required value"]),
        ("ssh-auth", {}, ["data[ssh-privatekey]: Required value"]),
        (
            "basic-auth",
            {},
            ["data[username]: Required value", "data[password]: Required value"],
        ),
        ("basic-auth", {"password": b"x"}, []),
        ("dockercfg", {}, ["data[.dockercfg]: Required value"]),
        ("dockercfg", {".dockercfg": b"{}"}, []),
        ("dockerconfigjson", {CONFIG: b"hush"}, [f"data[{CONFIG}]: Invalid value: {REDACTED}"]),
        ("dockerconfigjson", {CONFIG: b"[]"}, [f"data[{CONFIG}]: Invalid value: {REDACTED}"]),
        ("another", {}, []),
    ],
)
def test_types_demand_their_keys(type_: str, data: dict[str, bytes], expected: list[str]) -> None:
    """The keys that readers of such Secrets rely on; what is in them is never shown."""
    secret = Secret(type=ORCH.own(type_), data=data)

    assert [str(error) for error in gathered(Rules(ORCH).validate(secret))] == expected


@pytest.mark.parametrize(
    ("key", "text"),
    [(".", "must not be '.'"), ("..", "must not be '..'"), ("..a", "must not start with '..'")],
)
def test_keys_are_no_way_out_of_a_directory(key: str, text: str) -> None:
    """Keys become file names where a Secret is mounted."""
    found = [str(error) for error in Rules(ORCH).validate(Secret(data={key: b""}))]

    assert found == [f'data[{key}]: Invalid value: "{key}": {text}']
