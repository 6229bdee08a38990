"""What a sweep needs that is not there yet, told without importing Prefect."""

from __future__ import annotations

import socket
from collections.abc import Iterable
from urllib.parse import urlsplit

from suites.errors import InputError
from suites.loading_suites import list_suites
from suites.schema import Model

CONNECT_SECONDS = 8.0
CONVERTIBLE = ("bfcl", "tau2")
"""The benchmarks that converters make suites of (`flows.convert.CONVERTERS`)."""


def benchmark_of(suite: str) -> str:
    """The benchmark whose converter makes a suite of that name; "" where none does."""
    return next((name for name in CONVERTIBLE if suite.startswith(f"{name}-")), "")


def missing_suites(suites: Iterable[str]) -> list[str]:
    """The suites among these that a converter makes and that are not there yet."""
    wanted = [name for name in suites if benchmark_of(name)]
    known = list_suites() if wanted else {}
    return [name for name in wanted if name not in known]


def check_reachable(models: Iterable[Model]) -> None:
    """Refuse a model whose endpoint nobody listens at, before hundreds of attempts find out.

    Raises:
        InputError: its host is not known, or refuses the connection.
    """
    for model in models:
        if not model.endpoint.startswith("http"):
            continue
        parts = urlsplit(model.endpoint)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        try:
            socket.create_connection((parts.hostname or "", port), CONNECT_SECONDS).close()
        except OSError as error:
            raise InputError(
                f"the endpoint of the model {model.name!r} is out of reach: {model.endpoint} "
                f"({error.strerror or error})",
                mend="start it, or correct `endpoint` in the model's file",
            ) from error
