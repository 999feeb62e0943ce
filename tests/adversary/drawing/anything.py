"""Operations on whatever exists, of any kind."""

import dataclasses

from tests.adversary.drawing.base import PROPAGATION, Drawing
from tests.adversary.kinds import KINDS
from tests.adversary.operations import Operation


class Anything(Drawing):
    """Every verb on every kind: objects get labels and owners, are deleted, applied and put."""

    def _object(self) -> tuple[str, str, str] | None:
        kind = self._chance.choice(list(KINDS))
        found = sorted(key for key in self._live.live if key[0] == kind)
        return self._chance.choice(found) if found else None

    def _patch_any(self) -> Operation | None:
        found = self._object()
        if found is None:
            return None
        kind, namespace, name = found
        actor = self._actor("patch", kind, name, namespace)
        owner = self._object() if self._chance.random() < 0.6 else None
        options = {"owner": list(owner)} if owner else {}
        return self._operation(actor, "patch", kind, name, namespace=namespace, **options)

    def _delete_any(self) -> Operation | None:
        found = self._object()
        if found is None:
            return None
        kind, namespace, name = found
        actor = self._actor("delete", kind, name, namespace)
        propagation = self._chance.choice(PROPAGATION)
        return self._operation(
            actor, "delete", kind, name, namespace=namespace, propagation=propagation
        )

    def _again(self) -> Operation | None:
        """An object that was deleted is created again, by anybody and as it was."""
        kind = self._chance.choice(list(KINDS))
        gone = sorted(key for key in self._live.gone.keys() - self._live.live if key[0] == kind)
        if not gone:
            return None
        kind, namespace, name = self._chance.choice(gone)
        actor = self._actor("create", kind, name, namespace)
        return self._operation(actor, "again", kind, name, namespace=namespace)

    def _otherwise(self, operation: Operation) -> Operation:
        """The same object by another verb: server-side apply, or put over one that exists."""
        if operation.act != "create" or self._chance.random() > 0.1:
            return operation
        name, kind, namespace = operation.name, operation.kind, operation.namespace
        act = self._chance.choice(("apply", "put"))
        there = [key[2] for key in self._live.live if key[:2] == (kind, namespace)]
        if there and (act == "put" or self._chance.random() < 0.5):
            name = self._chance.choice(sorted(there))
        actor = self._actor("update" if act == "put" else "patch", kind, name, namespace)
        return dataclasses.replace(operation, act=act, actor=actor, name=name)
