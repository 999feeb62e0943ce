"""A controller made with kopf that does nothing but write down every event it is given.

Run by test_controller.py with `kopf run`. $ORCHID_RECORD names the file; each line holds the type
of an event (null when the object was found by listing), its kind, name and resourceVersion.
"""

import json
import os
from typing import Any

import kopf


@kopf.on.startup()
def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
    """Come back quickly, and leave nothing on the server but what others put there."""
    settings.posting.enabled = False
    settings.scanning.disabled = True
    settings.networking.error_backoffs = [0.1] * 600
    settings.watching.reconnect_backoff = 0.1


@kopf.on.event("", "v1", "serviceaccounts")
@kopf.on.event("certificates.k8s.io", "v1", "certificatesigningrequests")
def write_down(type: str | None, body: kopf.Body, **_: Any) -> None:  # noqa: A002 -- kopf's word
    seen = (type, body["kind"], body.metadata["name"], body.metadata["resourceVersion"])
    with open(os.environ["ORCHID_RECORD"], "a", encoding="utf-8") as record:  # noqa: PTH123 -- kopf runs this file, in its own way
        record.write(json.dumps(seen) + "\n")
