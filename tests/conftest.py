"""Setup of all tests: tests of missing system packages are skipped, and the skips are counted.

A test that needs a program of the operating system says so with
`@pytest.mark.system_package("etcd")`, or, within a fixture, by calling `require_program("etcd")`
from tests/system_packages.py.
"""

import gc
import os
import platform
import sys
from collections.abc import Generator

import hypothesis
import pytest

from tests.starting import Starting
from tests.system_packages import MISSING, require_program
from tests.time_limit import limited

# No time limits on examples: they would make results depend on how busy the machine is.
# The same examples on every run, so that a change fails for what it changed. New ones are searched
# for with ORCHID_HYPOTHESIS=search; what that finds becomes a test of its own.
hypothesis.settings.register_profile("orchid", deadline=None, derandomize=True)
hypothesis.settings.register_profile("quick", deadline=None, derandomize=True, max_examples=10)
hypothesis.settings.register_profile("search", deadline=None, max_examples=1000)
hypothesis.settings.load_profile(os.environ.get("ORCHID_HYPOTHESIS", "orchid"))

if platform.machine() == "aarch64":
    os.environ.setdefault(
        "ETCD_UNSUPPORTED_ARCH", "arm64"
    )  # Debian's etcd refuses to start without


_GARBAGE_COLLECTION = gc.get_threshold()


def pytest_runtest_teardown() -> None:
    """Collect garbage as before: a server or an agent of a test has disabled it for its process.

    Without this, a process that had run `orchid serve` once grew to gigabytes.
    """
    if not gc.isenabled() or gc.get_freeze_count() or gc.get_threshold() != _GARBAGE_COLLECTION:
        gc.unfreeze()
        gc.set_threshold(*_GARBAGE_COLLECTION)
        gc.enable()


def pytest_configure(config: pytest.Config) -> None:
    starting = Starting(config)
    config.pluginmanager.register(starting)
    sys.addaudithook(starting.notice)


def pytest_runtest_setup(item: pytest.Item) -> None:
    for marker in item.iter_markers("system_package"):
        for program in marker.args:
            require_program(program)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, None, None]:
    """Fail a test that hangs."""
    with limited():
        return (yield)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    missing: dict[str, int] = {}
    for report in terminalreporter.getreports("skipped"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        if MISSING in reason:
            program = reason.partition(MISSING)[2].split()[0]
            missing[program] = missing.get(program, 0) + 1
    if missing:
        named = ", ".join(f"{program} ({count})" for program, count in sorted(missing.items()))
        terminalreporter.write_line(
            f"{sum(missing.values())} tests skipped for want of a package: {named}; "
            "scripts/system-packages installs those of the system"
        )
