"""Who acts, and what exists, for the operations of every theme."""

import random
from typing import Any

from tests.adversary.acts import Attack
from tests.adversary.operations import Operation
from tests.adversary.rights import REGISTRAR, USERS

AUTHORITIES = ("web", "mail")
PROPAGATION = ("Orphan", "Orphan", "Background", "Foreground")


class Drawing:
    """What all themes share: the chance, what exists, and who may do what."""

    def __init__(self, attack: Attack, chance: random.Random) -> None:
        self._attack, self._chance = attack, chance
        self._live = attack.observer
        self._number = 0
        self._authority = AUTHORITIES[0]  # the one that the current theme is about

    def _actor(self, verb: str, kind: str, name: str = "", namespace: str = "", **more: Any) -> str:
        """Mostly somebody with the right, and with the verbs on a signer in `more`."""
        thief = self._thief()
        if thief:
            return thief
        rights = self._attack.rights
        signer, verbs = more.get("signer", ""), more.get("verbs", ())
        able = [
            user
            for user in (*USERS, REGISTRAR)
            if rights.may(user, verb, kind, name, namespace)
            and all(rights.may_signer(user, one, signer) for one in verbs)
            and all(rights.may(user, one, kind, name, namespace) for one in more.get("also", ()))
        ]
        return self._chance.choice(able if able and self._chance.random() < 0.9 else USERS)

    def _thief(self) -> str:
        labels = self._stolen
        if labels and self._chance.random() < 0.1:
            return f"thief with {self._chance.choice(labels)}"
        return ""

    @property
    def _stolen(self) -> list[str]:
        """Credentials with which the API can be called."""
        return [label for label in self._attack.credentials if not label.startswith("acme:")]

    def _labels_of(self, user: str) -> list[str]:
        return [label for label in self._stolen if self._attack.credentials[label].user == user]

    def _operation(
        self, actor: str, act: str, kind: str = "", name: str = "", **more: Any
    ) -> Operation:
        namespace, waits = more.pop("namespace", ""), more.pop("waits", self._chance.random() < 0.7)
        return Operation(self._number + 1, actor, act, kind, name, namespace, more, waits)

    def _named(self, kind: str) -> list[str]:
        return sorted(document["metadata"]["name"] for document in self._live.of(kind))

    def _label(self, what: str) -> str:
        return f"{what} of op {self._number + 1}"

    def _keys(self) -> list[dict[str, Any]]:
        """The keys of the authority that it is about, sometimes those of tokens."""
        about = "" if self._chance.random() < 0.15 else self._authority
        keys = self._live.of("signingkeys")
        return [key for key in keys if key["spec"].get("authority", "") == about]

    def _key(self) -> dict[str, Any] | None:
        keys = self._keys()
        return self._chance.choice(keys) if keys else None
