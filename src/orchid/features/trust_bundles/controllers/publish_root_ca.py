"""Publish the CA of this server in a ConfigMap of every namespace.

Reads   namespaces; watches configmaps of that name
Writes  the ConfigMap: one key, `ca.crt`
Never   changes a description that a user wrote, as long as the data is right; or any map while the
        CA is unknown
"""

from collections.abc import AsyncIterator, Callable

from orchid.features.accounts.controllers.create_default_accounts import is_active, is_terminating
from orchid.features.objects.kinds.config_map import ConfigMap
from orchid.features.objects.kinds.namespace import Namespace
from orchid.kernel.base.clock import Clock
from orchid.kernel.client.client import LISTED, Client, ListSelection, WatchedChange
from orchid.kernel.runtime.context import ControllerContext
from orchid.kernel.runtime.corrections import Corrections
from orchid.kernel.runtime.declaration import ControllerDeclaration
from orchid.kernel.runtime.events import EventRecorder
from orchid.kernel.runtime.loop import Controller, Key, Running, Trigger
from orchid.kernel.wire.errors import AlreadyExists, Forbidden, NotFound
from orchid.kernel.wire.meta import Object, ObjectMeta
from orchid.kernel.wire.naming import Naming
from orchid.kernel.wire.policy_rules import CORE, READ, may_record_events, rule
from orchid.kernel.wire.struct import replace

KEY = "ca.crt"


class PublishRootCA(Controller[Namespace]):
    name = "root-ca-certificate-publisher"

    def __init__(
        self, client: Client, bundle: Callable[[], str], naming: Naming, clock: Clock
    ) -> None:
        super().__init__(client, ListSelection(Namespace))
        self._bundle = bundle
        self._corrections: Corrections[tuple[str, str]] = Corrections(clock)
        self._name = naming.root_ca_config_map
        self._annotation = naming.description_annotation
        self._description = naming.root_ca_description
        maps = ListSelection(
            ConfigMap, fields=f"metadata.name={self._name}", existing=False, read_as=Object
        )
        self.triggers = (Trigger(maps, namespace_of),)

    def rests_on(self) -> object:
        return self._bundle()

    async def reconcile(self, namespace: Namespace) -> float | None:
        text = self._bundle()
        if not is_active(namespace) or not text:
            return None
        config_map = await self._client.find(ConfigMap, self._name, namespace.name)
        if config_map is not None and self._is_right(config_map, text):
            return None
        # Others may change it in a loop; another CA never waits.
        if pause := self._corrections.wait_for((namespace.metadata.uid, text)):
            return pause
        try:
            await self._write(config_map, namespace.name, text)
        except (AlreadyExists, NotFound):
            return None  # another client was faster; its change triggers this again
        except Forbidden as refusal:
            if not is_terminating(refusal):
                raise
        return None

    def _is_right(self, there: ConfigMap, text: str) -> bool:
        is_described = bool(there.metadata.annotations.get(self._annotation))
        return there.data == {KEY: text} and not there.binary_data and is_described

    async def _write(self, existing: ConfigMap | None, namespace: str, text: str) -> None:
        marks = {self._annotation: self._description}
        if existing is None:
            meta = ObjectMeta(name=self._name, namespace=namespace, annotations=marks)
            await self._client.create(ConfigMap(metadata=meta, data={KEY: text}))
            return
        right = existing.with_meta(annotations={**existing.metadata.annotations, **marks})
        await self._client.update(replace(right, data={KEY: text}, binary_data={}))


async def namespace_of(event: WatchedChange[ConfigMap]) -> AsyncIterator[Key]:
    if event.type != LISTED:
        yield ("", event.object.namespace)


def build(client: Client, context: ControllerContext, events: EventRecorder) -> Running | None:
    if not context.root_ca():
        return None
    return PublishRootCA(client, context.root_ca, context.naming, context.clock)


CONTROLLER = ControllerDeclaration(
    name="root-ca-certificate-publisher",
    long_name="root-ca-certificate-publisher-controller",
    other_names=("root-ca-cert-publisher",),
    account="root-ca-cert-publisher",
    rights=lambda naming: (
        rule(READ, CORE, ("namespaces",)),
        rule(("create", "update", *READ), CORE, ("configmaps",)),
        may_record_events(naming),
    ),
    build=build,
)
