"""Operations on accounts and their tokens."""

from tests.adversary.drawing.base import Drawing
from tests.adversary.operations import Operation
from tests.adversary.rights import ACCOUNTS, TEAM


class Tokens(Drawing):
    """Accounts are deleted and created again; thieves use what they copied."""

    def _account(self) -> Operation | None:
        kind, name = "serviceaccounts", self._chance.choice(ACCOUNTS)
        act = "create"
        if self._live.named(kind, name, TEAM):
            if self._chance.random() < 0.6:
                return None
            act = "delete"
        actor = self._actor(act, kind, name, TEAM)
        return self._operation(actor, act, kind, name, namespace=TEAM)

    def _token(self) -> Operation | None:
        kind, name = "serviceaccounts", self._chance.choice(ACCOUNTS)
        if not self._live.named(kind, name, TEAM):
            return self._account()
        actor = self._actor("create", f"{kind}/token", name, TEAM)
        return self._operation(actor, "token", kind, name, namespace=TEAM)

    def _use(self) -> Operation | None:
        labels = self._stolen
        if not labels:
            return None
        return self._operation(f"thief with {self._chance.choice(labels)}", "use")
