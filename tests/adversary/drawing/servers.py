"""Operations on the system namespace and on the servers, and reading."""

from tests.adversary.drawing.base import Drawing
from tests.adversary.kinds import HOME, KINDS
from tests.adversary.operations import Operation
from tests.adversary.rights import TEAM, USERS


class Home(Drawing):
    """Stored revocation lists, restarts, backups and restores."""

    def _maps(self) -> list[str]:
        return [name for name in self._named("configmaps") if name.startswith("crl.")]

    def _write_back(self) -> Operation | None:
        names, kind = self._maps(), "configmaps"
        if not names:
            return None
        actor = self._actor("update", kind, "", HOME)
        name, back = self._chance.choice(names), self._chance.randint(1, 3)
        return self._operation(actor, "replace", kind, name, namespace=HOME, back=back)

    def _delete_map(self) -> Operation | None:
        names, kind = self._maps(), "configmaps"
        if not names:
            return None
        actor = self._actor("delete", kind, "", HOME)
        return self._operation(actor, "delete", kind, self._chance.choice(names), namespace=HOME)

    def _read(self) -> Operation | None:
        kind = KINDS[self._chance.choice(list(KINDS))]
        namespace = self._chance.choice((TEAM, HOME)) if kind.is_namespaced else ""
        actor = self._thief() or self._chance.choice(USERS)
        names = [
            document["metadata"]["name"]
            for document in self._live.of(kind.name)
            if document["metadata"].get("namespace", "") == namespace
        ]
        if names and self._chance.random() < 0.6:
            name = self._chance.choice(sorted(names))
            return self._operation(actor, "read", kind.name, name, namespace=namespace)
        return self._operation(actor, "list", kind.name, namespace=namespace)

    def _watch(self) -> Operation | None:
        kind = KINDS[self._chance.choice(list(KINDS))]
        namespace = self._chance.choice((TEAM, HOME, "")) if kind.is_namespaced else ""
        actor = self._thief() or self._chance.choice(USERS)
        return self._operation(actor, "watch", kind.name, namespace=namespace)

    def _fail_over(self) -> Operation | None:
        if self._attack.servers.store != "etcd":
            return self._restart()
        return self._operation("the operator", "fail-over")

    def _wait(self) -> Operation | None:
        return self._operation("time", "wait", seconds=self._chance.choice((1, 1, 5)))

    def _restart(self) -> Operation | None:
        return self._operation("the operator", "restart", kill=self._chance.random() < 0.5)

    def _backup(self) -> Operation | None:
        return self._operation("the operator", "backup")

    def _restore(self) -> Operation | None:
        return self._operation("the operator", "restore")
