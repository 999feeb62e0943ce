"""The kubeconfig of a command, and whether it can be trusted.

Searched in this order: --kubeconfig, $KUBECONFIG (several files, joined by colons),
./orchid-data/admin.kubeconfig, ~/.kube/config. `find` selects, `load` reads it.

A file in the current directory was not chosen by the user: it is only used if it belongs to the
user, others can neither read nor change it, and it names no file outside of its directory.
"""

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from orchid.kernel.credentials.files import refuse_exposed
from orchid.kernel.credentials.refusals import Refusal
from orchid.kernel.outbound import exec_plugin, kubeconfig
from orchid.kernel.outbound.kubeconfig import ServerAccess, UnusableKubeconfig
from orchid.kernel.terminal import times
from orchid.kernel.terminal.output import USAGE, Complaint
from orchid.kernel.wire.naming import CLIENT_CONFIG

BESIDE = Path("orchid-data") / "admin.kubeconfig"
FLAG, ENVIRONMENT, FOUND, HOME = "--kubeconfig", "$KUBECONFIG", "found there", "of your home"
SERVER_FLAG = "--server"  # without a file


class FoundKubeconfig(msgspec.Struct, frozen=True):
    """The selected files, and the reason."""

    paths: tuple[Path, ...]
    why: str

    def __str__(self) -> str:
        files = ":".join(map(str, self.paths))
        return f"{files} ({self.why})" if files else self.why

    @property
    def is_ambient(self) -> bool:
        """Whether the user did not name it, so that it may be meant for another server."""
        return self.why in (ENVIRONMENT, HOME)


def find(
    path_of_flag: Path | None, environ: Mapping[str, str], here: Path | None = None
) -> FoundKubeconfig:
    """Select the file; the error lists all searched paths."""
    if path_of_flag is not None:
        if not path_of_flag.is_file():
            raise Complaint(f"--kubeconfig: there is no file {path_of_flag}", USAGE)
        return FoundKubeconfig((path_of_flag,), FLAG)
    listed = [Path(part) for part in environ.get("KUBECONFIG", "").split(os.pathsep) if part]
    if listed:
        existing = tuple(path for path in listed if path.is_file())
        if not existing:
            named = os.pathsep.join(map(str, listed))
            raise Complaint(f"$KUBECONFIG names {named}, and there is no such file", USAGE)
        return FoundKubeconfig(existing, ENVIRONMENT)
    beside = here / BESIDE if here else BESIDE
    at_home = Path(environ.get("HOME") or "~").expanduser().joinpath(*CLIENT_CONFIG)
    for path, why in ((beside, FOUND), (at_home, HOME)):
        if os.path.lexists(path):
            return FoundKubeconfig((path,), why)
    raise Complaint(
        f"no kubeconfig: neither --kubeconfig nor $KUBECONFIG is given, and there is no {beside} "
        f"and no {at_home}. Start a server here with: orchid serve",
        USAGE,
    )


def load(located: FoundKubeconfig, context: str = "", *, runs_plugin: bool = True) -> ServerAccess:
    """The access of the chosen context, or the current one, with the credential of its plugin."""
    inside = None
    if located.why == FOUND:
        (path,) = located.paths
        inside = path.parent
        _refuse_planted(path)
    try:
        access = kubeconfig.read(located.paths, context, inside=inside, plugins=inside is None)
        return exec_plugin.logged_in(access, times.now()) if runs_plugin else access
    except UnusableKubeconfig as problem:
        raise Complaint(f"{problem} ({located.why})", USAGE) from None


def _refuse_planted(path: Path) -> None:
    """A data directory, its kubeconfig and links to them must belong to the user."""
    try:
        for each in (path.parent, path):
            refuse_exposed(each, each.lstat())
            refuse_exposed(each, each.stat())
    except Refusal as refusal:
        raise Complaint(
            f"{path} is not taken: {refusal}. If you mean it all the same: --kubeconfig {path}",
            USAGE,
        ) from None
    except OSError as error:
        raise Complaint(f"cannot read {path}: {error.strerror}", USAGE) from None
