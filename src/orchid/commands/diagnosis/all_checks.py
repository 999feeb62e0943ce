"""Every check of `orchid doctor`: those of this folder, and those that features bring."""

import importlib

from orchid.assembly.features import FEATURES
from orchid.commands.diagnosis.file_checks import FILE_CHECKS
from orchid.commands.diagnosis.other_key_checks import OTHER_KEY_CHECKS
from orchid.commands.diagnosis.outside_checks import OUTSIDE_CHECKS
from orchid.commands.diagnosis.server_checks import SERVER_CHECKS
from orchid.kernel.terminal.findings import Check


def all_checks() -> dict[str, Check]:
    """The checks by name, in the order of the report."""
    checks = {**FILE_CHECKS, **SERVER_CHECKS}
    for feature in FEATURES:
        if feature.checks:
            checks |= importlib.import_module(feature.checks).CHECKS
    return {**checks, **OTHER_KEY_CHECKS, **OUTSIDE_CHECKS}
