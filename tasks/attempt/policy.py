"""What each way to end means: the one table that decides retries, grading, counting and blame.

Two kinds of row. An **ending** is how a harness run came to its end; its attempt has a result and is
graded. An **error class** is a failure of what surrounds the harness; the attempt has no result, is
tried again where that can help, and is reported as `infra_error`: never as 0, never dropped.

Whom a row blames is what the table can know. One end is known better: a conversation that is cut off
(`budget`) may be the user's doing, if it would not let go, and its attempt then says so.

The rule behind the table: whatever the agent could have done differently counts against it; whatever
it could not, does not.
"""

from __future__ import annotations

from dataclasses import dataclass

from suites.schema import Blame, Ending


@dataclass(frozen=True)
class Rule:
    """One row.

    Attributes:
        retry: another try is made, with backoff, up to the sweep's limit.
        grade: what was recorded is graded.
        counts: the attempt is in the denominator.
        blame: whom the table blames; None where there is nothing to blame.
        stops: what need not be tried any more: the "cell", the "sweep", or nothing.
        says: what a person should read.
    """

    retry: bool
    grade: bool
    counts: bool
    blame: Blame | None
    says: str
    stops: str | None = None


ENDINGS: dict[Ending, Rule] = {
    "clean": Rule(False, True, True, None, "the harness ended by itself"),
    "budget": Rule(False, True, True, "agent", "the attempt's budget was spent"),
    "timeout": Rule(False, True, True, "agent", "the deadline passed; the harness was stopped"),
    "refused": Rule(False, True, True, "agent", "the harness said that it could not do the task"),
    "crashed": Rule(False, True, True, "harness", "the harness failed"),
    "killed": Rule(True, False, False, "infra", "the harness was killed from outside"),
    "interrupted": Rule(True, False, False, "infra", "the try was not brought to its end"),
}

ERRORS: dict[str, Rule] = {
    "host_lost": Rule(True, False, False, "infra", "the host of bridges and gateway died"),
    "launcher_lost": Rule(True, False, False, "infra", "the process that starts harnesses died"),
    "harness_killed": Rule(True, False, False, "infra", "the harness was killed from outside"),
    "harness_infra": Rule(
        True, False, False, "infra", "the harness reported that a server it needs was out of reach"
    ),
    "bridge_unlisted": Rule(
        True, False, False, "harness", "the harness never asked the bridge for its tools"
    ),
    "environment_failed": Rule(
        True, False, False, "environment", "an environment did not start, or was lost"
    ),
    "user_failed": Rule(True, False, False, "user", "the simulated user could not go on"),
    "upstream_unreachable": Rule(True, False, False, "infra", "the model endpoint was unreachable"),
    "upstream_error": Rule(True, False, False, "model", "the model endpoint failed"),
    "upstream_auth": Rule(
        False, False, False, "infra", "the model endpoint refused the key", stops="cell"
    ),
    "harness_missing": Rule(
        False, False, False, "harness", "the harness is not on this machine", stops="cell"
    ),
    "harness_config": Rule(
        False, False, False, "harness", "the harness refused its configuration", stops="cell"
    ),
    "evidence_lost": Rule(True, False, False, "infra", "the journal could not be written"),
    "disk_full": Rule(False, False, False, "infra", "the disk is full", stops="sweep"),
    "cancelled": Rule(False, False, False, None, "the sweep was stopped"),
    "internal": Rule(True, False, False, "infra", "dyno itself failed"),
}


def rule_of_error(error_class: str) -> Rule:
    """The row of an error class; an unknown one is treated as `internal`."""
    return ERRORS.get(error_class, ERRORS["internal"])


class InfrastructureError(Exception):
    """A try that has no result, and why.

    Attributes:
        error_class: a key of `ERRORS`.
        message: what happened, in words.
    """

    def __init__(self, error_class: str, message: str) -> None:
        self.error_class = error_class
        self.message = message
        super().__init__(f"{error_class}: {message}")

    @property
    def rule(self) -> Rule:
        """Its row of the table."""
        return rule_of_error(self.error_class)
