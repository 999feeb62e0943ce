"""The list of all controllers, their selection and their execution.

Start with `CONTROLLERS` and `run_controllers`. `--controllers` selects (`chosen`); each controller
has a client of its own and acts under its own name with its own permissions; one leader at a time
runs them all. A controller that fails is logged with a traceback and restarted after a pause; the
others continue.
"""

import asyncio
from collections.abc import Callable, Iterable

from orchid.assembly.features import CONTROLLERS
from orchid.features.objects.event_writer import EventWriter
from orchid.features.objects.leader import Leader
from orchid.kernel.client.client import Client
from orchid.kernel.runtime.context import ControllerContext
from orchid.kernel.runtime.events import EventRecorder
from orchid.kernel.runtime.loop import Running, keep_running
from orchid.kernel.server.in_process.clients import EVENTS, LEADER

ClientOf = Callable[[str], Client]


class UnknownController(ValueError):
    """A word of --controllers that names no controller."""


def chosen(words: Iterable[str]) -> frozenset[str]:
    """The selected controllers: `*`, `name`, `-name`. Exclusions win."""
    selected: set[str] = set()
    unwanted: set[str] = set()
    for word in words:
        if word == "*":
            selected.update(controller.name for controller in CONTROLLERS)
            continue
        name = _name_of(word.removeprefix("-"))
        if name is None:
            names = ", ".join(controller.name for controller in CONTROLLERS)
            raise UnknownController(f"{word!r} is no controller; there are {names}")
        (unwanted if word.startswith("-") else selected).add(name)
    return frozenset(selected - unwanted)


def _name_of(word: str) -> str | None:
    """The name of a controller by any of its names."""
    for controller in CONTROLLERS:
        # One of them has the name of the server's program in front.
        names = (controller.name, controller.long_name, *controller.other_names)
        if word in names or word.endswith(f"-serving-{controller.long_name}"):
            return controller.name
    return None


async def run_controllers(
    selected: frozenset[str], client_of: ClientOf, context: ControllerContext
) -> None:
    """Run these controllers whenever this process leads, until cancelled."""
    if not selected:
        return
    naming = context.naming
    leader = Leader(
        client_of(LEADER),
        context.clock,
        namespace=naming.system_namespace,
        name=naming.controller_lease,
        identity=context.identity,
    )

    async def work() -> None:
        events = EventWriter(client_of(EVENTS), context.clock)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(events.run())
            for controller in build(selected, client_of, context, events):
                tasks.create_task(keep_running(controller))

    await leader.run(work)


def build(
    selected: frozenset[str],
    client_of: ClientOf,
    context: ControllerContext,
    events: EventRecorder,
) -> list[Running]:
    """Build the selected controllers, except those without a purpose here."""
    built = (
        declaration.build(client_of(declaration.name), context, events)
        for declaration in CONTROLLERS
        if declaration.name in selected
    )
    return [controller for controller in built if controller is not None]
