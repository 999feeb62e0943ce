"""Token keys: accounts and Pods request tokens all the time, and no accepted token is rejected.

Every token outlives the publish time, so each has a row of its holder. Pods come and go, so that
keys are Retired; a token of a deleted Pod is no credential any more.
"""

import base64
import json
import random
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from orchid.features.token_keys.long_tokens import DAY, PREFIX
from orchid.kernel.store.interface import Span, Store
from tests.rotation.faults.rounds import Lost, Report, Subject
from tests.rotation.token_load import AUDIENCE, JWKS, REVIEWS, kid_of

KEYS = "/apis/identity.orch.io/v1alpha1/signingkeys"
HOME = "/api/v1/namespaces/ci"
SECRETS = "/api/v1/namespaces/orch-system/secrets"
PUBLISH_SECONDS = 2
POD_SECONDS = 20.0  # that a Pod lives
AGREED_SECONDS = 30.0  # rotations follow each other every four seconds
GRACE = timedelta(seconds=90)  # for a private key, while leaders are killed
OK, CREATED, NOT_FOUND, CONFLICT, INVALID = 200, 201, 404, 409, 422
STEPS = r"identity/signingkeys/tokens-|core/secrets/orch-system/signing-key-"


class Token(NamedTuple):
    """A token that a server returned."""

    text: str
    kid: str
    holder: str  # the beginning of the holder in its row: kind, namespace, name
    day: int  # of its expiry


class TokenKeys(Subject):
    name = "tokens"
    flags = (
        "--token-key-publish-time", f"{PUBLISH_SECONDS}s", "--token-key-rotation", "4s",
        "--service-account-jwks-max-age", "1s",
    )  # fmt: skip
    patterns = (STEPS, STEPS, STEPS, r"~tokens/|" + STEPS)

    def __init__(self, report: Report, rng: random.Random) -> None:
        super().__init__(report, rng)
        self._tokens: list[Token] = []  # of holders that exist
        self._issued: list[Token] = []  # all of them
        self._pods: dict[str, float] = {}  # when each was made
        self._made = 0
        self._last: set[str] = set()  # the keys that signed when the faults ended
        self.faults = {"two servers activate different keys": self._activate_two}

    def begin(self) -> None:
        body = {"metadata": {"name": "builder"}}
        self._surely("POST", f"{HOME}/serviceaccounts", body, (CREATED, CONFLICT))

    # -- clients -----------------------------------------------------------------------------

    def work(self, turn: int) -> None:
        with self.lock:
            pods = list(self._pods)
        pod = self.rng.choice([*pods, ""]) if pods else ""
        self._issue(turn, pod)
        with self.lock:
            known = self._tokens[-1:] + self.rng.choices(self._tokens, k=2)
        for token in known:
            self._review(turn + 1, token)

    def _issue(self, turn: int, pod: str) -> None:
        spec: dict[str, Any] = {"audiences": [AUDIENCE], "expirationSeconds": DAY}
        if pod:
            spec["boundObjectRef"] = {"kind": "Pod", "apiVersion": "v1", "name": pod}
        place = f"{HOME}/serviceaccounts/builder/token"
        # A Pod may have been deleted meanwhile.
        reply = self.send(turn, "POST", place, {"spec": spec}, (CREATED, NOT_FOUND, CONFLICT))
        if reply.status != CREATED:
            return
        text = reply.json["status"]["token"]
        claims = json.loads(base64.urlsafe_b64decode(text.split(".")[1] + "=="))
        holder = f"Pod/ci/{pod}/" if pod else "ServiceAccount/ci/builder/"
        token = Token(text, kid_of(text), holder, claims["exp"] // DAY)
        with self.lock:
            self._issued.append(token)
            if not pod or pod in self._pods:
                self._tokens.append(token)
        self.count("tokens issued")

    def _review(self, turn: int, token: Token) -> None:
        body = {"spec": {"token": token.text, "audiences": [AUDIENCE]}}
        status = self.send(turn, "POST", REVIEWS, body, (CREATED,)).json["status"]
        self.count("reviews")
        if status.get("authenticated") is not True:
            with self.lock:
                still_there = token in self._tokens
            if still_there:
                self.violate(f"a token of {self._name(token.kid)} is rejected: {status}")

    def drive(self) -> None:
        """Replace Pods; the leader rotates by itself."""
        now = time.monotonic()
        with self.lock:
            old = [pod for pod, since in self._pods.items() if now - since > POD_SECONDS]
        for pod in old:
            with self.lock:  # its tokens end with it
                self._pods.pop(pod, None)
                self._tokens = [one for one in self._tokens if one.holder != f"Pod/ci/{pod}/"]
            self.send(0, "DELETE", f"{HOME}/pods/{pod}", None, (OK, 202, NOT_FOUND))
        if len(self._pods) < 4:
            self._made += 1
            spec = {"serviceAccountName": "builder", "containers": [{"name": "c", "image": "i"}]}
            body = {"metadata": {"name": f"pod-{self._made}"}, "spec": spec}
            self.send(self._made, "POST", f"{HOME}/pods", body, (CREATED, CONFLICT))
            with self.lock:
                self._pods[f"pod-{self._made}"] = now

    def _activate_two(self) -> None:
        """Two keys become Active at the same time, each by another server."""
        try:
            waiting = [one for one in self._keys(0) if one["spec"]["state"] == "Published"]
            if len(waiting) == 1:
                number = max(int(one["metadata"]["name"].split("-")[1]) for one in self._keys(0))
                body = {
                    "metadata": {"name": f"tokens-{number + 1}"},
                    "spec": {"algorithm": "EdDSA"},
                }
                self.send(0, "POST", KEYS, body, (CREATED, CONFLICT, INVALID))
                time.sleep(PUBLISH_SECONDS + 1)
            for turn, one in enumerate(waiting := self._keys(0)):
                if one["spec"]["state"] == "Published":
                    one["spec"]["state"] = "Active"
                    place = f"{KEYS}/{one['metadata']['name']}"
                    self.send(turn, "PUT", place, one, (OK, CONFLICT, INVALID))
        except Lost:
            return

    # -- what must hold ----------------------------------------------------------------------

    def unsettled(self) -> str:
        found = self._keys(0)
        states = Counter(one["spec"]["state"] for one in found)
        active = {one["metadata"]["name"] for one in found if one["spec"]["state"] == "Active"}
        self._last = self._last or active
        # A rotation follows the other: the keys that sign now have been replaced completely.
        if not active or not states["Published"] or self._last & active:
            return f"states {dict(states)}, {sorted(self._last)} to be replaced"
        replaced = [one for one in found if one["metadata"]["name"] in self._last]
        overdue = self._overdue(replaced, timedelta(seconds=5))
        return f"private keys are not deleted: {overdue}" if overdue else ""

    def judge(self) -> None:
        with self.lock:
            tokens = list(self._tokens)
        self._judge_signer()
        for turn in range(len(self.system.machines)):
            for token in [*self.rng.sample(tokens, min(len(tokens), 1000)), *tokens[-50:]]:
                self._review(turn, token)
            self._issue(turn, "")
        found = self._keys(0)
        for state, number in Counter(one["spec"]["state"] for one in found).items():
            self.count(f"keys {state}", number)
        if overdue := self._overdue(found, GRACE):
            self.violate(f"private keys were not deleted in time: {overdue}")

    def _judge_signer(self) -> None:
        """All servers sign with the same key; a step may come between two answers."""
        end = time.monotonic() + AGREED_SECONDS
        while True:
            answers = [self.send(n, "GET", JWKS) for n in range(len(self.system.machines))]
            signers = {one.json["keys"][0]["kid"] for one in answers}
            if len(signers) == 1:
                return
            if time.monotonic() > end:
                self.violate(f"servers sign with {len(signers)} keys")
                return
            time.sleep(0.2)

    async def judge_store(self, store: Store) -> None:
        """Every token of a key that verifies has its row."""
        rows = {
            record.key: json.loads(record.value)
            for record in (await store.read(Span.prefix(PREFIX))).records
        }
        verifying = set()
        for record in (await store.read(Span.prefix("identity/signingkeys/"))).records:
            one = json.loads(record.value)
            if one["spec"]["state"] != "Retired":
                verifying.add(one["status"]["keyID"])
        days: dict[tuple[str, str], set[str]] = {}
        for key, counts in rows.items():
            kid, kind, namespace, name, _ = key.removeprefix(PREFIX).split("/")
            days.setdefault((kid, f"{kind}/{namespace}/{name}/"), set()).update(counts)
        missing = [
            token
            for token in self._issued
            if token.kid in verifying
            and str(token.day) not in days.get((token.kid, token.holder), ())
        ]
        self.count("rows", len(rows))
        if missing:
            self.violate(f"{len(missing)} tokens without a row, for example {missing[0]}")

    # -- helpers -----------------------------------------------------------------------------

    def _keys(self, turn: int) -> list[Any]:
        found: list[Any] = self.send(turn, "GET", KEYS, None, (OK,)).json["items"]
        return [one for one in found if not one["spec"].get("authority")]

    def _name(self, kid: str) -> str:
        try:
            found = [one for one in self._keys(0) if one["status"]["keyID"] == kid]
        except Lost:
            return kid
        return str([(one["metadata"]["name"], one["spec"]["state"]) for one in found])

    def _overdue(self, found: list[Any], grace: timedelta) -> list[str]:
        """Keys that no longer sign, and whose private key should be gone."""
        overdue = []
        for one in found:
            since = one["status"]["times"].get("verifying")
            if one["spec"]["state"] != "Verifying" or not since:
                continue
            until = datetime.fromisoformat(since) + timedelta(seconds=PUBLISH_SECONDS) + grace
            place = f"{SECRETS}/signing-key-{one['metadata']['uid']}"
            if datetime.now(UTC) > until and self.send(0, "GET", place).status == OK:
                overdue.append(one["metadata"]["name"])
        return overdue

    def _surely(self, method: str, place: str, body: object, expected: tuple[int, ...]) -> None:
        for turn in range(100):
            try:
                self.send(turn, method, place, body, expected)
            except Lost:
                time.sleep(0.2)
            else:
                return
        raise AssertionError(f"{method} {place} is never answered")
