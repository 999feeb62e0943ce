"""Fields of other programs in Pods, Nodes and events are preserved, in JSON and protobuf."""

from typing import Any

import msgspec
import pytest

from orchid.features.objects.kinds.event import Event
from orchid.features.objects.kinds.node import Node
from orchid.features.objects.kinds.pod.pod import Pod
from orchid.kernel.wire.codec.documents import decoder_of, encode
from orchid.kernel.wire.codec.protobuf import message_of
from orchid.kernel.wire.meta import Object

NOTICED = "2026-01-02T03:04:05.678901Z"
CHANGED = "2026-01-02T03:04:05Z"
KEY = {"key": "k", "path": "p"}

SAID: dict[str, tuple[type[Object], dict[str, Any]]] = {
    "a series of events": (
        Event,
        {
            "series": {"count": 100, "lastObservedTime": NOTICED},
            "related": {"kind": "Pod", "name": "it"},
        },
    ),
    "the state of a Pod": (
        Pod,
        {
            "status": {
                "phase": "Running",
                "conditions": [
                    {
                        "type": "Ready",
                        "status": "True",
                        "lastTransitionTime": CHANGED,
                        "reason": "Started",
                        "message": "all is well",
                        "observedGeneration": 2,
                    }
                ],
                "podIP": "192.0.2.1",
                "podIPs": [{"ip": "192.0.2.1"}],
                "hostIP": "192.0.2.2",
                "startTime": CHANGED,
                "observedGeneration": 2,
            }
        },
    ),
    "what a Pod takes from other objects": (
        Pod,
        {
            "spec": {
                "volumes": [
                    {"name": "a", "secret": {"secretName": "s", "items": [KEY], "optional": True}},
                    {"name": "b", "configMap": {"name": "c", "defaultMode": 420}},
                    {
                        "name": "c",
                        "projected": {
                            "sources": [
                                {"secret": {"name": "s"}},
                                {"configMap": {"name": "c", "items": [KEY]}},
                                {"serviceAccountToken": {"audience": "x", "path": "token"}},
                                {"clusterTrustBundle": {"name": "t", "path": "anchors"}},
                            ]
                        },
                    },
                ],
                "initContainers": [
                    {"name": "i", "envFrom": [{"prefix": "P", "secretRef": {"name": "s"}}]}
                ],
                "containers": [
                    {
                        "name": "m",
                        "env": [
                            {"name": "V", "value": "v"},
                            {"name": "S", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
                        ],
                    }
                ],
            }
        },
    ),
    "the state of a Node": (
        Node,
        {
            "status": {
                "conditions": [
                    {
                        "type": "Ready",
                        "status": "True",
                        "lastHeartbeatTime": CHANGED,
                        "lastTransitionTime": CHANGED,
                        "reason": "AgentReady",
                        "message": "all is well",
                    }
                ],
                "addresses": [{"type": "InternalIP", "address": "192.0.2.2"}],
            }
        },
    ),
}
every_case = pytest.mark.parametrize(("type_", "said"), SAID.values(), ids=SAID)


@every_case
def test_it_is_kept_as_json(type_: type[Object], said: dict[str, Any]) -> None:
    """Nothing that was said is dropped when the object is stored."""
    assert_says(decoder_of(type_).stored(msgspec.json.encode(said)), said)


@every_case
def test_it_travels_as_protobuf(type_: type[Object], said: dict[str, Any]) -> None:
    """A client that reads and writes protobuf sees all of it, and writes it back."""
    there = message_of(type_).encode(decoder_of(type_).stored(msgspec.json.encode(said)))

    back = message_of(type_).decode(there, kind=type_.__name__, api_version="v1")

    assert_says(back, said)


def assert_says(new: Object, said: dict[str, Any]) -> None:
    written = msgspec.json.decode(encode(new))
    assert {name: written.get(name) for name in said} == said


def test_an_event_shows_the_times_it_lacks() -> None:
    """Clients find all three of them, set or not."""
    shown = msgspec.json.decode(encode(Event()))

    assert {name: shown[name] for name in ("firstTimestamp", "lastTimestamp", "eventTime")} == {
        "firstTimestamp": None,
        "lastTimestamp": None,
        "eventTime": None,
    }
