"""Revocations of every target, and their deletion."""

from typing import Any

from tests.adversary.drawing.base import Drawing
from tests.adversary.operations import Operation
from tests.adversary.rights import ACCOUNTS, CLIENTS, SIGNERS, TEAM, USERS

REVOCATIONS = tuple(f"stolen-{number}" for number in range(8))


class RevocationOperations(Drawing):
    """Sometimes under a name that somebody else may need."""

    def _revoke_key(self) -> Operation | None:
        key = self._key()
        if key is None or key["metadata"]["name"] == "cluster-1":
            return None
        name = key["metadata"]["name"]
        able = [
            user for user in USERS if self._attack.rights.may(user, "revoke", "signingkeys", name)
        ]
        actor = (
            self._chance.choice(able) if able else self._actor("create", "credentialrevocations")
        )
        target = {"key": {"name": name}}
        return self._revocation(actor, target)

    def _revocation(self, actor: str, target: dict[str, Any]) -> Operation:
        taken = self._named("credentialrevocations")
        free = [name for name in REVOCATIONS if name not in taken]
        name = self._chance.choice(free or REVOCATIONS)
        tokens = [label for label in self._attack.credentials if label.startswith("token:")]
        if tokens and self._chance.random() < 0.15:
            name = f"@{self._chance.choice(tokens)}"  # the name that somebody else may need
        reason = "certificateHold" if self._chance.random() < 0.15 else "keyCompromise"
        return self._operation(
            actor, "create", "credentialrevocations", name, target=target, reason=reason
        )

    def _lift(self) -> Operation | None:
        names = self._named("credentialrevocations")
        if not names:
            return None
        name = self._chance.choice(names)
        actor = self._actor("delete", "credentialrevocations", name)
        return self._operation(actor, "delete", "credentialrevocations", name)

    def _revoke(self) -> Operation | None:
        labels = self._stolen
        draw, target = self._chance.random(), {}
        if draw < 0.45 and labels:
            label = self._chance.choice(labels)
            target = {"of": label}
            if not label.startswith("token:") and self._chance.random() < 0.7:
                return self._revocation(f"thief with {label}", target)  # the own certificate
        elif draw < 0.75:
            target = {"account": {"namespace": TEAM, "name": self._chance.choice(ACCOUNTS)}}
        elif draw < 0.85:
            target = {"authority": {"signerName": self._chance.choice((*SIGNERS, CLIENTS))}}
        elif draw < 0.93:
            target = {"user": {"username": self._chance.choice(USERS)}}
        else:
            return self._revoke_key()
        return self._revocation(self._revoker(target), target)

    def _revoker(self, target: dict[str, Any]) -> str:
        rights = self._attack.rights
        able = [
            user
            for user in USERS
            if rights.may(user, "create", "credentialrevocations")
            and (
                ("account" in target and rights.may(user, "revoke", "serviceaccounts", "", TEAM))
                or ("authority" in target)
                or ("user" in target)
                or ("of" in target)
            )
        ]
        return self._chance.choice(able or USERS)

    def _give_back(self) -> Operation | None:
        tokens = [label for label in self._attack.credentials if label.startswith("token:")]
        if not tokens:
            return None
        label = self._chance.choice(tokens[-4:])
        return self._operation(f"the holder of {label}", "give-back", of=label)
