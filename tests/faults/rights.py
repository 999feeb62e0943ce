"""Rights that are removed during faults: later requests are refused.

`Rights.run` gives an account a right and a token, sees that they count, removes what they rest on
by any server that is there, and, once that is acknowledged, asks by every server. The binding of
an account, the account itself, and the object that its token is bound to take their turns; so do
revocations of the token, and of every token of the account. A fault excuses any refusal, and no
permission: what is still allowed, or still known, is improper.
"""

import asyncio
import base64
import itertools
import json
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from datetime import datetime
from typing import Any, NamedTuple

from tests.faults.workload import DONE, OPEN, REFUSED, Lost, OverTls, Way

NAMESPACE = "rights"
CORE = f"/api/v1/namespaces/{NAMESPACE}"
RBAC = f"/apis/rbac.authorization.orch.io/v1/namespaces/{NAMESPACE}"
REVOCATIONS = "/apis/identity.orch.io/v1alpha1/credentialrevocations"
REVIEWS = "/apis/authorization.orch.io/v1/subjectaccessreviews"
TOKEN_REVIEWS = "/apis/authentication.orch.io/v1/tokenreviews"
ASKED = f"{CORE}/serviceaccounts"
RULE = {"verbs": ["list"], "apiGroups": [""], "resources": ["serviceaccounts"]}
FORBIDDEN = 403
PAUSE = 0.05
ASKED_AGAIN = 6


class Removal(NamedTuple):
    """The removed object, and the answers to the token that show a server without the removal."""

    what: str
    collection: str
    wrong: tuple[int, ...]
    bound: bool = False  # whether the token is bound to it
    revokes: bool = False  # it is not removed, but revoked


REMOVALS = (
    Removal("binding", f"{RBAC}/rolebindings", DONE),
    Removal("account", f"{CORE}/serviceaccounts", (*DONE, FORBIDDEN)),
    Removal("bound object", f"{CORE}/secrets", (*DONE, FORBIDDEN), bound=True),
    Removal("token", REVOCATIONS, (*DONE, FORBIDDEN), revokes=True),
    Removal("tokens", REVOCATIONS, (*DONE, FORBIDDEN), revokes=True),
)


class NotDone(Exception):
    """Something on the way was not done: there is nothing to be seen this time."""


class Rights:
    """An administrator who takes rights away, and those who had them."""

    def __init__(self, urls: Sequence[str], token: str) -> None:
        self._urls = urls
        self._token = token
        self._numbers = itertools.count()
        self._removals = itertools.cycle(REMOVALS)
        self._ended: list[tuple[str, str]] = []  # accounts and tokens of theirs that were revoked
        self.removed: Counter[str] = Counter()  # acknowledged, and asked about afterwards
        self.revoked: set[str] = set()  # uids of revocations that were acknowledged
        self.improper: list[str] = []

    async def run(self, stop: asyncio.Event, most: int | None = None) -> None:
        """Remove one right after the other until `stop` is set, or so many."""
        async with self._callers(self._token) as admins:
            turns = itertools.cycle(admins)
            for number in itertools.count():
                if stop.is_set() or number == most:
                    return
                with suppress(Lost, NotDone):
                    await self._take_away(next(self._removals), self._name(), turns)
                await asyncio.sleep(PAUSE)

    def _name(self) -> str:
        return f"r{next(self._numbers)}"

    async def given(self) -> list[tuple[Removal, str, str]]:
        """For each way of revoking: an account with a token that is to be revoked later."""
        async with self._callers(self._token) as admins:
            turns = itertools.cycle(admins)
            names = [(removal, self._name()) for removal in REMOVALS if removal.revokes]
            return [(each, name, await self._given(each, name, turns)) for each, name in names]

    async def revoke(self, tokens: Sequence[tuple[Removal, str, str]]) -> None:
        async with self._callers(self._token) as admins:
            for removal, name, token in tokens:
                await self._revoke(removal, name, token, admins[0])

    async def ask_again(self) -> None:
        """Present the newest of the revoked tokens once more: none may be accepted."""
        for name, token in self._ended[-ASKED_AGAIN:]:
            async with self._callers(token) as callers:
                for status in await self._asked(callers):
                    if status in (*DONE, FORBIDDEN):
                        text = f"{status} was answered to {name} long after its token was revoked"
                        self.improper.append(text)

    async def _take_away(self, removal: Removal, name: str, admins: "itertools.cycle[Way]") -> None:
        token = await self._given(removal, name, admins)
        async with self._callers(token) as callers:
            if not any(status in DONE for status in await self._asked(callers)):
                return
            if removal.revokes:
                if not await self._revoke(removal, name, token, next(admins)):
                    return  # a clock jumped between the two
            else:
                await self._done(next(admins), "DELETE", f"{removal.collection}/{name}")
            for status in await self._asked(callers):
                if status in removal.wrong:
                    text = f"{status} was answered to {name} after its {removal.what} was removed"
                    self.improper.append(text)
            everywhere = [next(admins) for _ in self._urls]
            if removal.what == "binding":
                await self._review_rights(name, everywhere)
            else:
                await self._review_token(name, token, everywhere)
        self.removed[removal.what] += 1

    async def _revoke(self, removal: Removal, name: str, token: str, admin: Way) -> bool:
        """Revoke a token; say whether the revocation means this token."""
        body = {"metadata": {"name": name}, "spec": revoked(removal, name, token)}
        answer = await self._done(admin, "POST", removal.collection, body)
        self.revoked.add(answer["metadata"]["uid"])
        meant = covers(answer["spec"], token)
        if meant:
            self._ended.append((name, token))
        return meant

    async def _given(self, removal: Removal, name: str, admins: "itertools.cycle[Way]") -> str:
        """Make an account with a right, and give a token of it."""
        meta = {"metadata": {"name": name}}
        reference = {"apiGroup": "rbac.authorization.orch.io", "kind": "Role", "name": name}
        subject = {"kind": "ServiceAccount", "name": name, "namespace": NAMESPACE}
        bound = {"boundObjectRef": {"apiVersion": "v1", "kind": "Secret", "name": name}}
        for target, more in (
            (f"{CORE}/serviceaccounts", {}),
            (f"{CORE}/secrets", {}),
            (f"{RBAC}/roles", {"rules": [RULE]}),
            (f"{RBAC}/rolebindings", {"roleRef": reference, "subjects": [subject]}),
        ):
            await self._done(next(admins), "POST", target, {**meta, **more})
        spec = {"audiences": [], **(bound if removal.bound else {})}
        target = f"{CORE}/serviceaccounts/{name}/token"
        answer = await self._done(next(admins), "POST", target, {"spec": spec})
        token: str = answer["status"]["token"]
        return token

    async def _asked(self, callers: Sequence[Way]) -> list[int]:
        """The answer of each server; none for a server that does not answer."""
        asking = [caller.send("GET", ASKED) for caller in callers]
        answers = await asyncio.gather(*asking, return_exceptions=True)
        for answer in answers:
            if isinstance(answer, BaseException) and not isinstance(answer, Lost):
                raise answer
        return [self._judged(answer) for answer in answers if not isinstance(answer, BaseException)]

    async def _review_token(self, name: str, token: str, admins: Sequence[Way]) -> None:
        """Ask for others whether a token counts that rests on what is gone."""
        for admin in admins:
            with suppress(Lost, NotDone):
                answer = await self._done(admin, "POST", TOKEN_REVIEWS, {"spec": {"token": token}})
                if answer["status"].get("authenticated"):
                    self.improper.append(f"a review accepts the token of {name}")

    async def _review_rights(self, name: str, admins: Sequence[Way]) -> None:
        """Ask for others what an account may do that has lost its binding."""
        spec = {
            "user": f"system:serviceaccount:{NAMESPACE}:{name}",
            "resourceAttributes": {
                "verb": "list",
                "namespace": NAMESPACE,
                "resource": "serviceaccounts",
            },
        }
        for admin in admins:
            with suppress(Lost, NotDone):
                answer = await self._done(admin, "POST", REVIEWS, {"spec": spec})
                if answer["status"].get("allowed"):
                    self.improper.append(f"a review allows {name} what its binding had allowed")

    async def _done(self, way: Way, method: str, target: str, body: Any = None) -> Any:
        status, answer = await way.send(method, target, body)
        if self._judged((status, answer)) not in DONE:
            raise NotDone
        return answer

    def _judged(self, answer: tuple[int, Any]) -> int:
        status, said = answer
        if status not in (*DONE, *REFUSED, *OPEN, 401, FORBIDDEN):
            self.improper.append(f"{status} was answered: {said}")
        return status

    @asynccontextmanager
    async def _callers(self, token: str) -> AsyncIterator[list[Way]]:
        async with AsyncExitStack() as stack:
            ways = [OverTls(url, token) for url in self._urls]
            for way in ways:
                stack.push_async_callback(way.close)
            yield list(ways)


def covers(spec: dict[str, Any], token: str) -> bool:
    """Whether a revocation means a token; one of an account means what was issued until a time."""
    until = spec.get("account", {}).get("issuedBefore")
    return until is None or claims(token)["iat"] <= datetime.fromisoformat(until).timestamp()


def claims(token: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(base64.urlsafe_b64decode(token.split(".")[1] + "=="))
    return found


def revoked(removal: Removal, name: str, token: str) -> dict[str, Any]:
    """The spec of a revocation: of one token, or of all that its account has."""
    account = {"namespace": NAMESPACE, "name": name}
    if removal.what == "tokens":
        return {"account": account}
    return {"token": {"jti": claims(token)["jti"], **account}}
