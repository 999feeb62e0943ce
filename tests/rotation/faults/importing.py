"""Import: a server dies while it brings keys of an earlier version into the store.

Each round begins with a store that an earlier version wrote (tests/data/upgrades), in which the
token key is a file. The first start dies after one of its writes; the next one must have the same
key id, refuse nothing and have lost nothing.
"""

import asyncio
import contextlib
import random
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests.e2e.https import Https
from tests.e2e.serving import (
    Server,
    ServerFailed,
    running_server,
    sealing_flags,
    start,
    wait_until_ready,
)
from tests.rotation.faults.killed_server import launcher
from tests.rotation.faults.rounds import Report
from tests.unit.kernel.store import etcd_process
from tests.upgrades.population import FLAGS, SIGNING, problems
from tests.upgrades.recording import Recording, put, recordings

NAME = "import"
PATTERN = r"identity/|core/secrets/orch-system/|~"
MOST_WRITES = 25  # of the first start
SOON = 8.0  # seconds after the start in which it dies


def without_keys() -> list[Recording]:
    """Recordings of versions that had no SigningKeys."""
    prefix = "identity/signingkeys/"
    return [
        recording
        for recording in recordings()
        if not any(key.startswith(prefix) for key, _ in recording.writes())
    ]


def run(store: str, rounds: int, seed: int) -> Report:
    report, rng, begun = Report(NAME, store, seed), random.Random(seed), time.monotonic()
    found = without_keys()
    for number in range(rounds):
        with tempfile.TemporaryDirectory(prefix="orchid-import-") as home:
            recording = found[number % len(found)]
            _round(Path(home), recording, store, rng.randint(1, MOST_WRITES), report)
        report.rounds += 1
    report.seconds = time.monotonic() - begun
    return report


def _round(home: Path, recording: Recording, store: str, after: int, report: Report) -> None:
    data, made = recording.copy_data(home / "data"), recording.population(store)
    with _flags(store, data, recording) as flags:
        written = home / "killed-after"
        written.touch()
        server = start(data, *flags, launcher=launcher(after, PATTERN, written))
        try:
            _until_dead(server)
        finally:
            server.kill()
        for line in written.read_text().splitlines() or ["nothing more was written"]:
            report.steps[line] += 1
        with running_server(data, *flags, ready_seconds=120) as again, Https(again.port) as https:
            wrong = problems(https, again.port, made)
            kid = https.send("GET", "/openid/v1/jwks").json["keys"][0]["kid"]
        report.done["stores opened"] += 1
        report.violations += [f"{recording.commit}: {text}" for text in wrong]
        if kid != made.key_id:
            report.violations.append(f"{recording.commit}: {kid} signs instead of {made.key_id}")


@contextlib.contextmanager
def _flags(store: str, data: Path, recording: Recording) -> Iterator[tuple[str, ...]]:
    if store != "etcd":
        yield (*FLAGS, *SIGNING)
        return
    with etcd_process.running() as cluster:
        asyncio.run(cluster.wait_healthy())
        asyncio.run(put(cluster.urls[0], recording.writes()))
        yield (*FLAGS, *SIGNING, *sealing_flags(data), "--etcd-servers", cluster.urls[0])


def _until_dead(server: Server) -> None:
    """Wait until the server has killed itself, or has nothing more to write."""
    with contextlib.suppress(ServerFailed):
        wait_until_ready(server, 120)
    end = time.monotonic() + SOON
    while server.process.poll() is None and time.monotonic() < end:
        time.sleep(0.05)
    code = server.process.poll()
    if code not in (None, -signal.SIGKILL):
        raise ServerFailed(server.with_log(f"ended with code {code}"))
