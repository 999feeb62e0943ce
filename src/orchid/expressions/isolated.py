"""Evaluate an expression in a process of its own, within limits of time and memory.

Start with `holds`. Most expressions are cheap and are evaluated where they are (`Expression.cost`
tells); one that may be slow would keep everybody waiting, since the library can be neither
interrupted nor run beside other threads. It goes to a new process, which ends with it or is ended.
Run as a program this module is that process: it reads one question, answers and ends.
"""

import asyncio
import json
import resource
import subprocess
import sys
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from orchid import helper_process
from orchid.expressions.cel import NOW, Compiler, Expression, ExpressionInput, Failed

CHEAP: Final = 1 << 23  # characters moved; a few milliseconds
SECONDS: Final = 5.0  # from the start of the process to its answer
PROCESSOR_SECONDS: Final = 2
MEMORY: Final = 1 << 30
AT_ONCE: Final = 2


class Overrun(Failed):
    """The evaluation was ended, because it took too much time or memory."""


class Evaluator:
    """Evaluates conditions about requests: at once if that is cheap, else in another process."""

    def __init__(self, sample: Mapping[str, Any], seconds: float = SECONDS) -> None:
        self._sample = sample
        self._seconds = seconds
        self._turns = asyncio.Semaphore(AT_ONCE)

    async def holds(self, expression: Expression, given: ExpressionInput) -> bool | None:
        """Whether it holds, None if that is no boolean; raises Failed, or Overrun."""
        await asyncio.sleep(0)  # a policy may have many rules, and there may be many policies
        if expression.cost(given) <= CHEAP:
            return expression.holds(given)
        question = json.dumps(
            {
                "source": expression.source,
                "sample": self._sample,
                "given": {**given.value, NOW: given.value[NOW].isoformat()},
            }
        )
        async with self._turns:
            answer = await asyncio.to_thread(_ask, question, self._seconds)
        if answer is None:
            raise Overrun(f"expression '{expression.source}' took too much time or memory")
        if "failed" in answer:
            raise Failed(answer["failed"])
        found: bool | None = answer["holds"]
        return found


def _ask(question: str, seconds: float) -> dict[str, Any] | None:
    """Start the process and wait for what it says; None if it had to be ended or broke."""
    try:
        done = subprocess.run(  # noqa: S603 - our own module, by the interpreter that runs us
            helper_process.command(__name__),
            env=helper_process.environment(),
            cwd=helper_process.NEUTRAL_DIRECTORY,
            input=question.encode(),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=seconds,
            check=True,
        )
    except (subprocess.TimeoutExpired, subprocess.CalledProcessError):
        return None
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _answer(question: Mapping[str, Any]) -> dict[str, Any]:
    given = {**question["given"], NOW: datetime.fromisoformat(question["given"][NOW])}
    expression = Compiler().signing_condition(question["source"], question["sample"])
    try:
        return {"holds": expression.holds(ExpressionInput(given))}
    except Failed as failed:
        return {"failed": str(failed)}


def main() -> None:
    """Answer one question within limits that the system enforces."""
    resource.setrlimit(resource.RLIMIT_CPU, (PROCESSOR_SECONDS, PROCESSOR_SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sys.stdout.write(json.dumps(_answer(json.load(sys.stdin))))


if __name__ == "__main__":
    main()
