"""Command line and environment of a helper process: one of our modules, run by our interpreter.

Every helper process is started with these two functions. `python -m` alone searches the working
directory first, so that a `json` module there would run with the rights of the server. `-P` omits
it; the environment does the same for processes that the helper itself starts.
"""

import os
import sys
from pathlib import Path
from typing import Final

# The working directory of a helper without files: only root can create files in it.
NEUTRAL_DIRECTORY: Final = "/"


def command(module: str, *arguments: str) -> list[str]:
    """The command line that runs a module of ours."""
    return [sys.executable, "-P", "-m", module, *arguments]


def environment() -> dict[str, str]:
    """Our environment, without entries of the module path that depend on the directory.

    An empty entry of PYTHONPATH (as in `PYTHONPATH=$PYTHONPATH:/opt/modules`) means the working
    directory, and is dropped.
    """
    inherited = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    variables = {**os.environ, "PYTHONSAFEPATH": "1"}
    variables["PYTHONPATH"] = os.pathsep.join(
        str(Path(each).absolute()) for each in inherited if each
    )
    return variables
