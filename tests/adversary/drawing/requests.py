"""Operations on certificate requests and approval policies."""

from typing import Any

from tests.adversary.drawing.base import Drawing
from tests.adversary.operations import Operation
from tests.adversary.rights import ACCOUNTS, CLIENTS, REGISTRAR, SIGNERS, USERS, account_user

POLICIES = ("servers", "spiffe")
REQUESTS = ("req-1", "req-2", "req-3", "req-4")
DNS = (
    "a.web.example.com",
    "b.web.example.com",
    "*.web.example.com",
    "xn--a.web.example.com",
    "xn--nxasmq6b.web.example.com",
    "elsewhere.test",
)
URIS = (
    "https://a.example.com/x",
    "https://evil.test?.example.com",
    "https://evil.test#.example.com",
    "https://evil.test/.example.com",
    "https://evil.test\\.example.com",
    "https://evil.test%2f.example.com",
    "spiffe://example.com/ns/web",
    "spiffe://example.com/a?b",
)
USAGES = (["server auth"], ["client auth"], ["server auth", "client auth"])
PATTERNS = (
    {"commonName": "*", "dnsNames": ["*.web.example.com"]},
    {"commonName": "*", "uris": ["https://*.example.com", "https://*.example.com/*"]},
    {"commonName": "*", "dnsNames": ["*.web.example.com"], "uris": ["spiffe://example.com/*"]},
)


class Requests(Drawing):
    """Requests with usual and with odd names, and who approves and signs them."""

    def _policy(self) -> Operation | None:
        kind, name = "approvalpolicies", self._chance.choice(POLICIES)
        if self._live.named(kind, name):
            return self._operation(self._actor("delete", kind, name), "delete", kind, name)
        signer = self._chance.choice(SIGNERS)
        allows = self._chance.choice(PATTERNS)
        actor = self._actor("create", kind, signer=signer, verbs=("approve",))
        return self._operation(actor, "create", kind, name, signers=[signer], allows=allows)

    def _free_request(self) -> str:
        taken = self._named("certificatesigningrequests")
        return next((name for name in REQUESTS if name not in taken), "")

    def _request(self) -> Operation | None:
        name = self._free_request()
        if not name:
            return self._delete_request()
        used = sorted(
            {
                authority["spec"]["signerName"]
                for authority in self._live.of("certificateauthorities")
                if authority["spec"].get("signerName")
            }
        )
        signer = self._chance.choice(used or SIGNERS)
        names = [["DNS", self._chance.choice(DNS)]]
        if self._chance.random() < 0.5:
            names = [["URI", self._chance.choice(URIS)]]
        options = {"subject": self._subject(), "names": names}
        options["usages"] = self._chance.choice(USAGES)
        return self._asked(name, signer, options)

    def _client_request(self) -> Operation | None:
        name = self._free_request()
        if not name:
            return self._delete_request()
        options = {"subject": self._subject(), "names": [], "usages": ["client auth"]}
        return self._asked(name, CLIENTS, options)

    def _asked(self, name: str, signer: str, options: dict[str, Any]) -> Operation:
        kind = "certificatesigningrequests"
        pair = f"key of op {self._number + 1}"
        actor = self._actor("create", kind)
        return self._operation(actor, "create", kind, name, signer=signer, pair=pair, **options)

    def _subject(self) -> list[list[str]]:
        accounts = [account_user(account) for account in ACCOUNTS]
        parts = [["CN", self._chance.choice([*USERS, *accounts])]]
        if self._chance.random() < 0.2:
            name = self._chance.choice(("serialNumber", "OU", "L"))
            parts.insert(0, [name, f"1,CN={self._chance.choice(USERS)}"])
        return parts

    def _pending(self) -> str:
        waiting = [
            request["metadata"]["name"]
            for request in self._live.of("certificatesigningrequests")
            if not request.get("status", {}).get("conditions")
        ]
        return self._chance.choice(sorted(waiting)) if waiting else ""

    def _approve(self) -> Operation | None:
        name, kind = self._pending(), "certificatesigningrequests"
        if not name:
            return None
        verdict = "deny" if self._chance.random() < 0.1 else "approve"
        actor = REGISTRAR if self._chance.random() < 0.7 else self._chance.choice(USERS)
        return self._operation(actor, verdict, kind, name)

    def _sign(self) -> Operation | None:
        names, kind = self._named("certificatesigningrequests"), "certificatesigningrequests"
        if not names:
            return None
        actor = self._actor("patch", f"{kind}/status")
        return self._operation(
            actor, "sign", kind, self._chance.choice(names), pair=self._label("root")
        )

    def _delete_request(self) -> Operation | None:
        names, kind = self._named("certificatesigningrequests"), "certificatesigningrequests"
        if not names:
            return None
        name = self._chance.choice(names)
        return self._operation(self._actor("delete", kind, name), "delete", kind, name)
