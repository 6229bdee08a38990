"""The environment kind `tau2`: one stateful world of an attempt, with a door for each of its sides.

    agent ──► Endpoint ──► Door("assistant") ─┐
                                              ├─► World ──► worker process (tau2_world.py)
    user ───► Endpoint ──► Door("user") ──────┘

Invariants. Calls are carried out one after another in the order in which they came, whoever made
them: the order of the journal. A call is part of the world exactly if it was answered: one that
hung, crashed or was cancelled takes its process with it, and the next call finds a world rebuilt
from the setup and the answered calls. A rebuilt world that answers otherwise than the first did is
no longer the attempt's: it is `lost`, and says so to every further call.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal, NamedTuple

from bridges.environments import Answer
from bridges.tau2_package import PACKAGE
from bridges.workers import Worker, WorkerCrashed, WorkerTimeout, Zygote, ZygoteFailed
from suites.home import dyno_home
from suites.schema import Tau2World, Tool

BUILD_SECONDS = 60.0
"""How long the setup may take to apply; the longest history takes milliseconds."""
STATE_SECONDS = 60.0
"""How long the hashes of the databases may take; the largest one's takes a tenth of a second."""

Side = Literal["assistant", "user"]
"""Who calls, in upstream's words."""


class WorldFailed(Exception):  # noqa: N818 - the condition
    """The world cannot be made; the message says why."""


class Worlds:
    """The zygotes of a host, one for each domain of each version of the package, made when needed."""

    def __init__(self) -> None:
        self._zygotes: dict[tuple[Path, str], Zygote] = {}

    @property
    def living(self) -> int:
        """How many worlds there are."""
        return sum(zygote.living for zygote in self._zygotes.values())

    def prepare(self, specs: Iterable[Tau2World]) -> None:
        """Begin to load what these need, waiting for nothing; what cannot be is told by `world`."""
        for spec in specs:
            if _folder(spec).is_dir():
                self._zygote(spec).start()

    async def world(self, spec: Tau2World, setup: dict[str, Any] | None, seconds: float) -> World:
        """A new world, in the state that the setup describes.

        Raises:
            WorldFailed: its package is not there, does not load, or refuses the setup.
        """
        folder = _folder(spec)
        if not folder.is_dir():
            raise WorldFailed(
                f"the world of {spec.domain} needs {folder}, which is not there;"
                " `dyno convert tau2` fetches it"
            )
        world = World(self._zygote(spec), setup, seconds)
        try:
            await world.build()
        except BaseException as error:
            await world.close()
            if isinstance(error, WorldFailed):
                raise WorldFailed(f"the world of {spec.domain} cannot be made: {error}") from None
            raise
        return world

    def _zygote(self, spec: Tau2World) -> Zygote:
        key = (_folder(spec), spec.domain)
        if key not in self._zygotes:
            argument = {"folder": str(key[0]), "domain": key[1]}
            self._zygotes[key] = Zygote(("bridges.tau2_world", argument))
        return self._zygotes[key]


def _folder(spec: Tau2World) -> Path:
    """Where the converter leaves that version (tasks/convert/fetch.py)."""
    return dyno_home() / "downloads" / f"{PACKAGE}-{spec.package}"


class _Done(NamedTuple):
    """A call that is part of the world, and what it was answered."""

    request: dict[str, Any]
    answer: bytes


class World:
    """One attempt's world.

    Args:
        zygote: has its domain loaded.
        setup: the task's: upstream's `initialization_data`, `initialization_actions` and
            `message_history`.
        seconds: longest single call.

    Attributes:
        lost: why the world is not the attempt's any more; None while it is.
    """

    def __init__(self, zygote: Zygote, setup: dict[str, Any] | None, seconds: float) -> None:
        self.lost: str | None = None
        self._zygote = zygote
        self._setup = setup
        self._seconds = seconds
        self._worker = Worker(zygote)
        self._built = False
        self._done: list[_Done] = []
        self._turn = asyncio.Lock()

    async def call(self, side: Side, name: str, arguments: str | None) -> Answer:
        """Carry out a call when its turn comes.

        Args:
            side: whose tool it is to be.
            name: the tool's; an unknown one is answered by upstream, as wrong arguments are.
            arguments: JSON text of an object; None is an empty one.
        """
        request = {"call": name, "arguments": arguments or "{}", "requestor": side}
        async with self._turn:
            if not await self._stands():
                return Answer("crashed", f"The environment is lost: {self.lost}.")
            try:
                reply = await self._worker.ask(request, self._seconds)
            except WorkerTimeout:
                return Answer(
                    "timeout", f"The tool did not answer within {self._seconds:g} seconds."
                )
            except WorkerCrashed as crash:
                return Answer("crashed", f"The tool crashed: {crash}.")
            if "broken" in reply:
                self.lost = f"after a call of {name} upstream's own code failed: {reply['broken']}"
                return Answer("crashed", f"The environment is lost: {self.lost}.")
            self._done.append(_Done(request, _digest(reply)))
            return Answer(reply["status"], reply["text"], reply["cut"])

    async def state(self) -> dict[str, str | None]:
        """`agent_db_hash` and `user_db_hash`, by upstream's own functions (airline: 0.1 s).

        Raises:
            WorldFailed: there is no world to look at.
        """
        async with self._turn:
            if not await self._stands():
                raise WorldFailed(f"the world is lost: {self.lost}")
            try:
                return await self._worker.ask({"state": None}, STATE_SECONDS)
            except (WorkerTimeout, WorkerCrashed) as error:
                raise WorldFailed(f"its state cannot be read: {error}") from None

    async def build(self) -> None:
        """Have a process that is where the setup and the calls so far lead to.

        Raises:
            WorldFailed: it cannot be made, or does not come to the same.
        """
        self._built = False
        try:
            await self._zygote.ready()
            opened = await self._worker.ask({"open": self._setup}, BUILD_SECONDS)
            if opened["problem"] is not None:
                raise WorldFailed(opened["problem"])
            for done in self._done:
                if _digest(await self._worker.ask(done.request, self._seconds)) != done.answer:
                    raise WorldFailed(
                        f"a call of {done.request['call']} was answered otherwise than at first"
                    )
        except (ZygoteFailed, WorkerTimeout, WorkerCrashed, OSError) as error:
            raise WorldFailed(str(error)) from None
        self._built = True

    async def close(self) -> None:
        """End its process. Never hangs."""
        await self._worker.close()

    async def _stands(self) -> bool:
        """True where the world can be asked, rebuilt if it has to be; else it is lost."""
        if self.lost is None and not (self._built and self._worker.alive):
            try:
                await self.build()
            except WorldFailed as failed:
                self.lost = f"it could not be rebuilt: {failed}"
        return self.lost is None


class Door:
    """One side's way into a world, as its endpoint knows it.

    Args:
        world: behind it.
        side: whose it is.
        tools: what is listed there.
    """

    judges_calls = True

    def __init__(self, world: World, side: Side, tools: tuple[Tool, ...]) -> None:
        self.tools = tools
        self._world = world
        self._side: Side = side

    async def call(self, tool: Tool, arguments: str | None) -> Answer:
        """The world's answer; see `World.call`."""
        return await self._world.call(self._side, tool.native_name or tool.name, arguments)


def _digest(reply: dict[str, Any]) -> bytes:
    return hashlib.sha256(f"{reply.get('status')} {reply.get('text')}".encode()).digest()
