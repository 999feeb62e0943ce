"""Evaluate an expression in a process of its own, with limits of time and memory.

Start with `Evaluator`. Most expressions are cheap (`Expression.cost`) and are evaluated in this
process. The others would block the event loop, since the library can be neither interrupted nor run
in parallel to other threads. All slow expressions of one policy share one new process and its
limits. Run as a program, this module is that process.
"""

import asyncio
import json
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from orchid.kernel.base import helper_process
from orchid.kernel.expressions.cel import NOW, Compiler, Expression, ExpressionInput, Failed

CHEAP: Final = 1 << 23  # characters moved; a few milliseconds
SECONDS: Final = 10.0  # from the start of the process to its result
PROCESSOR_SECONDS: Final = 2
MEMORY: Final = 1 << 30
AT_ONCE: Final = 2
STOPPED: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # by a person, not by a limit

Result = bool | None | Failed  # None: not a boolean


class Overrun(Failed):
    """The expressions exceeded their processor time or memory."""


class NotEvaluated(Failed):
    """The process did not end in time, within its processor time: the machine was busy."""


class Evaluator:
    """Evaluates conditions about requests: here if they are cheap, else in another process."""

    def __init__(self, sample: Mapping[str, Any], seconds: float = SECONDS) -> None:
        self._sample = sample
        self._seconds = seconds
        self._turns = asyncio.Semaphore(AT_ONCE)

    def is_cheap(self, expression: Expression, input_: ExpressionInput) -> bool:
        """Whether `here` may evaluate the expression."""
        try:
            return expression.cost(input_) <= CHEAP
        except Failed:
            return True  # it fails the same way when it is evaluated

    def here(self, expression: Expression, input_: ExpressionInput) -> Result:
        """The result of a cheap expression."""
        try:
            return expression.holds(input_)
        except Failed as failed:
            return failed

    async def elsewhere(
        self, expressions: Sequence[Expression], input_: ExpressionInput
    ) -> list[Result]:
        """The results of expressions that share one process and its limits.

        Raises Overrun or NotEvaluated.
        """
        question = json.dumps(
            {
                "sources": [expression.source for expression in expressions],
                "sample": self._sample,
                "given": {**input_.value, NOW: input_.value[NOW].isoformat()},
            }
        )
        async with self._turns:
            answers = await asyncio.to_thread(_ask, question, self._seconds)
        return [
            Failed(expression["failed"]) if "failed" in expression else expression["holds"]
            for expression in answers
        ]


def _ask(question: str, seconds: float) -> list[dict[str, Any]]:
    """Start the process and wait for its results; raises Overrun or NotEvaluated."""
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
    except subprocess.CalledProcessError as ended:
        if -ended.returncode in STOPPED:
            raise NotEvaluated("the evaluation of its rules was stopped") from None
        raise Overrun(
            f"its rules took more than {PROCESSOR_SECONDS} seconds of processor time or "
            f"{MEMORY >> 30} GiB of memory for one request"
        ) from None
    except subprocess.TimeoutExpired:
        raise NotEvaluated(f"its rules were not evaluated within {seconds:g} seconds") from None
    answers: list[dict[str, Any]] = json.loads(done.stdout)
    return answers


def _answers(question: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    input_ = {**question["given"], NOW: datetime.fromisoformat(question["given"][NOW])}
    compiler = Compiler()
    for source in question["sources"]:
        expression = compiler.signing_condition(source, question["sample"])
        try:
            yield {"holds": expression.holds(ExpressionInput(input_))}
        except Failed as failed:
            yield {"failed": str(failed)}


def main() -> None:
    """Evaluate one input within limits that the system enforces."""
    resource.setrlimit(resource.RLIMIT_CPU, (PROCESSOR_SECONDS, PROCESSOR_SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sys.stdout.write(json.dumps([*_answers(json.load(sys.stdin))]))


if __name__ == "__main__":
    main()
