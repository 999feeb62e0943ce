"""Keys of an authority: openssl verifies every valid certificate with the published bundle.

Clients request certificates, verify them and earlier ones with `openssl verify -crl_check_all`, and
revoke them; each revoked one stays on the list of its key. The rotation is driven from outside: its
waits (publish time and three refresh hints) would take minutes, so the time of the publication is
put back.
"""

import base64
import random
import subprocess
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from cryptography import x509

from tests.rotation.faults.rounds import Lost, Report, Subject
from tests.unit.kernel.credentials import samples

IDENTITY = "/apis/identity.orch.io/v1alpha1"
KEYS, AUTHORITIES = f"{IDENTITY}/signingkeys", f"{IDENTITY}/certificateauthorities"
REQUESTS = "/apis/certificates.orch.io/v1/certificatesigningrequests"
REVOCATIONS = f"{IDENTITY}/credentialrevocations"
SIGNER = "example.com/web"
OK, CREATED, NOT_FOUND, CONFLICT, INVALID = 200, 201, 404, 409, 422
PATIENCE = 30.0  # seconds for a certificate, or for a list: a leader may have to be elected
PERIOD = 6.0  # seconds that a key signs at least
MOST = 30  # certificates in use
APPROVED = {"type": "Approved", "status": "True", "reason": "Test", "message": "yes"}
STEPS = r"identity/(signingkeys/web-|certificateauthorities/)|core/secrets/orch-system/signing-key-"
PUBLICATION = r"|certificates/clustertrustbundles/|core/configmaps/orch-system/|identity/issued"


class Leaf(NamedTuple):
    """A certificate that a server returned."""

    name: str
    serial: int
    chain: bytes


class AuthorityKeys(Subject):
    name = "authority"
    flags = ("--token-key-publish-time", "2s", "--service-account-jwks-max-age", "1s")
    patterns = (STEPS, STEPS, STEPS + PUBLICATION)
    clients = 1
    pause = 0.5

    def __init__(self, report: Report, rng: random.Random) -> None:
        super().__init__(report, rng)
        self._leaves: list[Leaf] = []  # valid
        self._revoked: dict[int, float] = {}  # by serial number: since when
        self._numbers = 0
        self._last = ""  # the key that signs
        self._since = 0.0

    def begin(self) -> None:
        spec = {
            "signerName": SIGNER,
            "key": {"algorithm": "ECDSA-P256"},
            "subject": {"commonName": "Web CA"},
            "issues": {"usages": ["client auth", "server auth", "digital signature"]},
        }
        self.send(0, "POST", AUTHORITIES, {"metadata": {"name": "web"}, "spec": spec}, (CREATED,))
        self._until(lambda: self.send(0, "GET", "/trust/web.pem").status == OK, "the bundle")
        self._until(lambda: self._leaves or self.work(0), "the first certificate")

    # -- clients -----------------------------------------------------------------------------

    def work(self, turn: int) -> None:
        self._numbers += 1
        leaf = self._certificate(turn, f"leaf-{self._numbers}")
        with self.lock:
            self._leaves.append(leaf)
            older = self.rng.sample(self._leaves, min(2, len(self._leaves)))
        self.count("certificates")
        for one in {leaf, *older}:
            self._verify(turn + 1, one)
        if len(self._leaves) > MOST:
            self._revoke(turn)
        self._check_lists(turn)

    def _certificate(self, turn: int, name: str) -> Leaf:
        spec = {
            "request": base64.b64encode(samples.request(name)).decode(),
            "signerName": SIGNER,
            "usages": ["client auth", "digital signature"],
        }
        body: dict[str, Any] = {"metadata": {"name": name}, "spec": spec}
        self.send(turn, "POST", REQUESTS, body, (CREATED, CONFLICT))
        decided = {**body, "status": {"conditions": [APPROVED]}}
        self.send(turn, "PUT", f"{REQUESTS}/{name}/approval", decided, (OK, CONFLICT, NOT_FOUND))
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            found = self.send(turn, "GET", f"{REQUESTS}/{name}", None, (OK, NOT_FOUND)).json
            if chain := found.get("status", {}).get("certificate"):
                text = base64.b64decode(chain)
                return Leaf(name, x509.load_pem_x509_certificate(text).serial_number, text)
            time.sleep(0.1)
        raise Lost("no certificate in time")

    def _verify(self, turn: int, leaf: Leaf) -> None:
        """With the published bundle and lists of any server; a list may take a moment."""
        end = time.monotonic() + PATIENCE
        while problem := self._problem(turn, leaf):
            with self.lock:
                if leaf not in self._leaves:
                    return  # revoked meanwhile
            # Nothing but the list of a new key may be late.
            if "CRL" not in problem or time.monotonic() > end:
                self.violate(f"openssl rejects {leaf.name}: {problem}")
                return
            self.count("waits for a list")
            time.sleep(0.2)
        self.count("verifications")

    def _problem(self, turn: int, leaf: Leaf) -> str:
        """Why openssl rejects a certificate; empty if it does not."""
        place = self.system.directory / f"verify-{turn % 7}"
        place.mkdir(exist_ok=True)
        (place / "leaf.pem").write_bytes(leaf.chain)
        (place / "bundle.pem").write_bytes(self._fetch(turn, "/trust/web.pem"))
        (place / "lists.pem").write_bytes(self._fetch(turn, "/crl/web.pem"))
        command = ["openssl", "verify", "-crl_check_all", "-CRLfile", "lists.pem"]
        command += ["-CAfile", "bundle.pem", "-untrusted", "leaf.pem", "leaf.pem"]
        done = subprocess.run(command, cwd=place, capture_output=True, text=True, check=False)
        return done.stderr if done.returncode else ""

    def _fetch(self, turn: int, path: str) -> bytes:
        return self.send(turn, "GET", path, None, (OK,)).body

    def _revoke(self, turn: int) -> None:
        """Revoke the oldest ones, so that keys can be Retired."""
        with self.lock:
            gone, self._leaves = self._leaves[: MOST // 2], self._leaves[MOST // 2 :]
        for leaf in gone:
            spec = {
                "certificate": {"signerName": SIGNER, "serialNumber": f"{leaf.serial:x}"},
                "reason": "superseded",
            }
            body = {"metadata": {"name": leaf.name}, "spec": spec}
            self.send(turn, "POST", REVOCATIONS, body, (CREATED, CONFLICT))
            self._revoked[leaf.serial] = time.monotonic()
            self.count("revoked")

    def _check_lists(self, turn: int) -> None:
        """A revoked certificate is on a list soon, and stays there."""
        listed = self._listed(turn)
        late = time.monotonic() - 2 * PATIENCE
        missing = [serial for serial, since in self._revoked.items() if since < late]
        if lost := [serial for serial in missing if serial not in listed]:
            self.violate(f"{len(lost)} revoked certificates are on no list, of {len(missing)}")
            self._revoked = {}

    def _listed(self, turn: int) -> set[int]:
        end = b"-----END X509 CRL-----"
        parts = [part + end for part in self._fetch(turn, "/crl/web.pem").split(end)[:-1]]
        return {entry.serial_number for part in parts for entry in x509.load_pem_x509_crl(part)}

    # -- the rotation ------------------------------------------------------------------------

    def drive(self) -> None:
        keys = self._keys()
        states = {one["metadata"]["name"]: one["spec"]["state"] for one in keys}
        signer = self.send(0, "GET", f"{AUTHORITIES}/web", None, (OK,)).json["status"]["keys"][0]
        if signer["name"] != self._last:
            self._last, self._since = signer["name"], time.monotonic()
            self.count("rotations")
        waiting = [one for one in keys if one["spec"]["state"] == "Published"]
        if not waiting and "Active" in states.values():
            number = max(int(name.rpartition("-")[2]) for name in states) + 1
            body = {
                "metadata": {"name": f"web-{number}"},
                "spec": {"authority": "web", "algorithm": "ECDSA-P256"},
            }
            self.send(0, "POST", KEYS, body, (CREATED, CONFLICT, INVALID))
        elif waiting and time.monotonic() - self._since > PERIOD:
            self._activate(waiting[0])

    def _activate(self, key: dict[str, Any]) -> None:
        name, times = key["metadata"]["name"], key["status"]["times"]
        if not times.get("published"):
            return  # the leader has not seen it on every server yet
        long_ago = datetime.now(UTC) - timedelta(days=2)
        times["published"] = long_ago.strftime("%Y-%m-%dT%H:%M:%SZ")
        put = self.send(0, "PUT", f"{KEYS}/{name}/status", key, (OK, CONFLICT))
        if put.status == OK:
            new = {**put.json, "spec": {**put.json["spec"], "state": "Active"}}
            self.send(1, "PUT", f"{KEYS}/{name}", new, (OK, CONFLICT, INVALID))

    def _keys(self) -> list[Any]:
        items = self.send(0, "GET", KEYS, None, (OK,)).json["items"]
        return [one for one in items if one["spec"].get("authority") == "web"]

    # -- what must hold ----------------------------------------------------------------------

    def unsettled(self) -> str:
        keys = self._keys()
        active = [one["metadata"]["name"] for one in keys if one["spec"]["state"] == "Active"]
        status = self.send(0, "GET", f"{AUTHORITIES}/web", None, (OK,)).json["status"]
        ready = [one["status"] for one in status["conditions"] if one["type"] == "Ready"]
        if len(active) != 1 or status["keys"][0]["name"] != active[0] or ready != ["True"]:
            return f"Active {active}, the authority has {status['keys']}, Ready {ready}"
        return ""

    def judge(self) -> None:
        with self.lock:
            leaves = list(self._leaves)
        for turn in range(len(self.system.machines)):
            for leaf in leaves:
                self._verify(turn, leaf)
        end, missing = time.monotonic() + PATIENCE, set(self._revoked)
        while (missing := set(self._revoked) - self._listed(0)) and time.monotonic() < end:
            time.sleep(0.5)
        if missing:
            self.violate(f"{len(missing)} revoked certificates are on no list")
        for state, number in Counter(one["spec"]["state"] for one in self._keys()).items():
            self.count(f"keys {state}", number)

    def _until(self, holds: Any, what: str) -> None:
        end = time.monotonic() + 2 * PATIENCE
        while time.monotonic() < end:
            try:
                if holds():
                    return
            except Lost:
                time.sleep(0.2)
        raise AssertionError(f"{what} never came")
