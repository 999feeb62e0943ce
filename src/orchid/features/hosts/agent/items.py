"""The items that an agent keeps fresh: the identity of the host, and each output.

An item has a status, a schedule, and `refresh`, which brings it up to date or raises. Files of an
output change only as a whole, not within a minute after the last change, and a reload is on record
before they do.
"""

import logging
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from orchid.features.hosts.agent.calls import Clocks
from orchid.features.hosts.agent.configuration import Output
from orchid.features.hosts.agent.generations import (
    CURRENT,
    OutputFile,
    OutputRefused,
    Permissions,
    read_current,
    write_generation,
)
from orchid.features.hosts.agent.held_certificate import local_renewal_time
from orchid.features.hosts.agent.host_identity import ITEM, HostIdentity
from orchid.features.hosts.agent.outputs.bundle import BundleContent
from orchid.features.hosts.agent.outputs.certificate import CertificateContent
from orchid.features.hosts.agent.outputs.content import Content, Files, Life, Round
from orchid.features.hosts.agent.outputs.kubeconfig import KubeconfigContent
from orchid.features.hosts.agent.outputs.token import TokenContent
from orchid.features.hosts.agent.running.reloads import (
    RETRY_SECONDS,
    Alive,
    ReloadFailed,
    run_reload,
)
from orchid.features.hosts.agent.running.schedule import AFTER_SWAP, CheckSchedule
from orchid.features.hosts.agent.running.status import FRESH, ItemStatus
from orchid.features.hosts.agent.state_directory import SavedReload, StateDirectory
from orchid.kernel.base.clock import Monotonic
from orchid.kernel.credentials.refusals import Refusal

log = logging.getLogger(__name__)


class TooSoon(Exception):
    """The files changed less than a minute ago; `seconds` remain."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"the files changed a moment ago; the new ones follow in {seconds:.0f} s")
        self.seconds = seconds


class Item(Protocol):
    """Something that is kept fresh."""

    status: ItemStatus
    schedule: CheckSchedule

    @property
    def request(self) -> str:
        """The name of its certificate request in the state directory."""

    def refresh(self, current: Round) -> Life:
        """Bring it up to date, or raise."""


class HostItem:
    """The identity of the host."""

    request = ITEM

    def __init__(
        self, identity: HostIdentity, state: StateDirectory, schedule: CheckSchedule
    ) -> None:
        self.identity = identity
        self.schedule = schedule
        self.status = ItemStatus(name="host", directory=str(state.identity))
        self._state = state
        self.look()
        if identity.is_usable() and identity.join_file is None:
            self.status.change(FRESH, "", identity.clocks.local())
            schedule.fresh(None)

    def look(self) -> None:
        """Set the status from the present files."""
        held = self.identity.held
        self.status.exists = self.identity.is_usable()
        self.status.expires = held.end if held is not None else None

    def refresh(self, current: Round) -> Life:
        identity = self.identity
        renews = identity.renewal_time(current.calls)
        is_due = renews is not None and renews <= current.clocks.now()
        if is_due or (renews is not None and self._state.request(ITEM) is not None):
            identity.renew(current.calls)
            renews = local_renewal_time(identity.held) if identity.held is not None else None
        identity.follow_authority(current.anchors(current.calls.naming.server_serving_signer))
        self.look()
        return Life(self.status.expires, renews)


class OutputItem:
    """One output: its content, its files and its reloads."""

    def __init__(
        self, configured: Output, state: StateDirectory, clocks: Clocks, schedule: CheckSchedule
    ) -> None:
        self.configured = configured
        self.schedule = schedule
        self.status = ItemStatus(name=configured.name, directory=configured.directory)
        self.reload_due: float | None = None  # by the monotonic clock
        self._state, self._clocks = state, clocks
        self._content = content_of(configured)
        self._directory = Path(configured.directory)
        self._permissions = Permissions(
            configured.owner_id, configured.group_id, int(configured.mode, 8)
        )
        life = self.look()
        if (pending := state.reload(configured.name)) is not None:
            self.reload_due = 0.0
            self.status.reload = pending.message or "pending since the last run"
        now = clocks.now()
        if life is not None and not life.is_due(now) and state.request(configured.name) is None:
            self.status.change(FRESH, "", clocks.local())
            left = (life.renews - now).total_seconds() if life.renews is not None else None
            schedule.fresh(left)

    @property
    def request(self) -> str:
        return self.configured.name

    def look(self) -> Life | None:
        """Set the status from the present files."""
        life = self._content.life(self._files())
        self.status.exists = life is not None
        self.status.expires, self.status.renews = life or Life()
        return life

    def refresh(self, current: Round) -> Life:
        files = self._files()
        fresh = self._content.refresh(self.configured.name, files, current)
        if not self._is_written(fresh.files, files):
            self._write(fresh.files)
        self._state.drop_request(self.configured.name)
        self.look()
        return fresh.life

    # -- files -------------------------------------------------------------------------------

    def _files(self) -> Files:
        """The present files; none if one cannot be read, so that all are written again."""
        try:
            return read_current(self._directory)
        except (OSError, Refusal):
            return {}

    def _is_written(self, wanted: Sequence[OutputFile], files: Files) -> bool:
        if {file.name: file.data for file in wanted} != dict(files):
            return False
        return all(self._is_permitted(file) for file in wanted)

    def _is_permitted(self, file: OutputFile) -> bool:
        """Whether a file has the owner and the mode of the configuration."""
        try:
            status = (self._directory / file.name).stat()
        except OSError:
            return False
        permissions = self._permissions
        is_owned = permissions.owner in (-1, status.st_uid) and permissions.group in (
            -1,
            status.st_gid,
        )
        return is_owned and (
            not file.is_secret or status.st_mode & 0o777 == permissions.secret_mode
        )

    def _write(self, files: Sequence[OutputFile]) -> None:
        remaining = self._seconds_to_wait()
        if remaining > 0:
            raise TooSoon(remaining)
        try:
            self._directory.mkdir(mode=0o755, parents=True, exist_ok=True)
        except OSError as error:
            raise OutputRefused(f"cannot create {self._directory}: {error.strerror}") from None
        if self.configured.reload:
            actions = tuple(map(str, self.configured.reload))
            self._state.save_reload(self.configured.name, SavedReload(actions=actions))
        write_generation(self._directory, files, self._permissions, self._clocks.local())
        log.info("wrote %s: %s", self._directory, ", ".join(file.name for file in files))
        if self.configured.reload:
            self.reload_due = 0.0

    def _seconds_to_wait(self) -> float:
        """A program may still be between two reads of the last change."""
        try:
            changed = (self._directory / CURRENT).lstat().st_mtime
        except OSError:
            return 0.0
        age = self._clocks.local().timestamp() - changed
        return AFTER_SWAP - age if 0 <= age < AFTER_SWAP else 0.0

    # -- reloads -----------------------------------------------------------------------------

    def reload(self, monotonic: Monotonic, counts: Counter[str], is_alive: Alive) -> None:
        """Run the reloads that are due; those that fail stay pending."""
        if self.reload_due is None or monotonic() < self.reload_due:
            return
        name = self.configured.name
        pending = self._state.reload(name) or SavedReload(actions=())
        failed, reasons = [], []
        for action in self.configured.reload:
            if str(action) not in pending.actions:
                continue
            try:
                run_reload(action, self.configured, is_alive)
            except ReloadFailed as problem:
                counts["failed"] += 1
                failed.append(str(action))
                reasons.append(f"{action}: {problem}")
            else:
                counts["succeeded"] += 1
                log.info("%s: reloaded by %s", name, action)
        if not failed:
            self._state.drop_reload(name)
            self.reload_due, self.status.reload = None, ""
            return
        self.status.reload = "; ".join(reasons)
        log.error("%s: reload failed: %s", name, self.status.reload)
        failures = pending.failures + 1
        left = SavedReload(actions=tuple(failed), failures=failures, message=self.status.reload)
        self._state.save_reload(name, left)
        pause = RETRY_SECONDS[failures - 1] if failures <= len(RETRY_SECONDS) else None
        self.reload_due = self.schedule.due if pause is None else monotonic() + pause


def content_of(configured: Output) -> Content:
    """The content of an output; the configuration has exactly one."""
    if configured.certificate is not None:
        return CertificateContent(configured.certificate)
    if configured.token is not None:
        return TokenContent(configured.token)
    if configured.bundle is not None:
        return BundleContent(configured.bundle)
    assert configured.kubeconfig is not None
    return KubeconfigContent(configured.kubeconfig)
