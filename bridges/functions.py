"""The environment kind `functions`: tools that are declared, each with a fixed result or code.

A fixed result is answered on the spot, with no process at all: that is all a benchmark of single
calls needs, and it costs microseconds. A tool with `run: file.py:function` is called in the
environment's worker process, with the arguments by name; what it returns is the result (text as it
is, all else as JSON), what it raises is a tool error. The functions keep no state that an agent may
count on: a worker that was killed is followed by a fresh one.
"""

from __future__ import annotations

from bridges.environments import Answer
from bridges.texts import fit
from bridges.workers import Worker, WorkerCrashed, WorkerTimeout
from suites.schema import Functions, Tool


class FunctionTools:
    """Answers the accepted calls of one `functions` environment.

    Args:
        spec: the tools as the task declares them.
        worker: where code runs; only touched by tools that have any.
        seconds: longest single call.
    """

    judges_calls = False

    def __init__(self, spec: Functions, worker: Worker, seconds: float) -> None:
        self.tools = spec.tools
        self._spec = spec
        self._worker = worker
        self._seconds = seconds

    def warm(self) -> None:
        """Have the worker ready before the first call, where there will be one."""
        if any(tool.run is not None and tool.result is None for tool in self.tools):
            self._worker.warm()

    async def call(self, tool: Tool, arguments: str | None) -> Answer:
        """The answer to one accepted call; `arguments` is their raw JSON text."""
        if tool.result is not None:
            return _fixed(tool.result)
        if tool.run is not None:
            return await self._run(tool.run, arguments)
        if self._spec.result is not None:
            return _fixed(self._spec.result)
        return Answer("tool_error", f"{tool.name} has neither a result nor code in this suite.")

    async def _run(self, run: str, arguments: str | None) -> Answer:
        request = {"call": run, "root": self._spec.root or "", "arguments": arguments}
        try:
            reply = await self._worker.ask(request, self._seconds)
        except WorkerTimeout:
            return Answer("timeout", f"The tool did not answer within {self._seconds:g} seconds.")
        except WorkerCrashed as crash:
            return Answer("crashed", f"The tool crashed: {crash}.")
        return Answer(reply["status"], reply["text"], reply["cut"])


def _fixed(text: str) -> Answer:
    return Answer("ok", *fit(text))
