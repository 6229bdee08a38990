from __future__ import annotations

from typing import Any

import pytest

from tasks.grade.calls import EvidenceHole, calls_of, first_response, rows_of


class Tape:
    """The rows of one try, in one order over both files."""

    def __init__(self) -> None:
        self.bridge: list[dict[str, Any]] = []
        self.model: list[dict[str, Any]] = []
        self.seq = 0

    def call(self, tool: str = "f", status: str = "ok", **fields: Any) -> None:
        row = {"seq": self._next(), "event": "call", "requestor": "agent", "tool": tool}
        self.bridge.append({**row, "native": tool, "arguments": "{}", **fields})
        answer = {"seq": self._next(), "event": "result", "call": row["seq"], "status": status}
        self.bridge.append(answer)

    def request(self, requestor: str = "agent") -> int:
        seq = self._next()
        self.model.append({"seq": seq, "event": "request", "requestor": requestor})
        return seq

    def response(self, request: int, requestor: str = "agent") -> None:
        row = {"seq": self._next(), "event": "response", "call": request, "requestor": requestor}
        self.model.append(row)

    def turn(self) -> None:
        self.response(self.request())

    def first(self) -> list[str] | None:
        calls, _reason = first_response(calls_of(self.bridge, {}), self.model)
        return None if calls is None else [call.name for call in calls]

    def why(self) -> str:
        return first_response(calls_of(self.bridge, {}), self.model)[1]

    def _next(self) -> int:
        self.seq += 1
        return self.seq


def test_calls_carry_native_names_and_their_arguments_as_sent() -> None:
    tape = Tape()
    tape.call("math_sum", native="math.sum", arguments='{"a": 1}')
    tape.call("math.sum", native="math.sum", arguments=None)
    tape.call("unheard_of", status="unknown_tool", native=None)
    calls = calls_of(tape.bridge, {"math_sum": "math.sum"})
    assert [(c.name, c.arguments, c.accepted) for c in calls] == [
        ("math.sum", '{"a": 1}', True),
        ("math.sum", "{}", True),
        ("unheard_of", "{}", False),
    ]


@pytest.mark.parametrize("status", ["ok", "tool_error", "timeout", "crashed", "cancelled"])
def test_a_call_is_accepted_unless_it_was_sent_back(status: str) -> None:
    tape = Tape()
    tape.call(status=status)
    assert calls_of(tape.bridge, {})[0].accepted


def test_the_simulated_users_calls_are_not_the_agents() -> None:
    tape = Tape()
    tape.call(requestor="user")
    assert calls_of(tape.bridge, {}) == []


def test_a_call_without_a_result_is_a_hole_in_the_evidence() -> None:
    tape = Tape()
    tape.call()
    with pytest.raises(EvidenceHole, match="row 1"):
        calls_of(tape.bridge[:1], {})


def test_the_first_response_is_all_up_to_the_next_request() -> None:
    tape = Tape()
    tape.turn()
    tape.call("a")
    tape.call("b", status="refused")
    tape.turn()
    tape.call("c")
    assert tape.first() == ["a", "b"]


def test_responses_without_calls_come_before_the_first_that_led_to_some() -> None:
    tape = Tape()
    tape.turn()
    tape.turn()
    tape.call("a")
    assert tape.first() == ["a"]


def test_a_call_made_while_the_response_still_streams_belongs_to_it() -> None:
    tape = Tape()
    request = tape.request()
    tape.call("a")
    tape.response(request)
    tape.call("b")
    tape.turn()
    assert tape.first() == ["a", "b"]


def test_no_call_at_all_is_a_known_answer() -> None:
    tape = Tape()
    tape.turn()
    assert tape.first() == []


def test_overlapping_model_calls_leave_it_unknown() -> None:
    tape = Tape()
    one = tape.request()
    two = tape.request()
    tape.response(one)
    tape.response(two)
    tape.call("a")
    assert tape.first() is None
    assert "overlap" in tape.why()


def test_another_ones_model_calls_may_overlap() -> None:
    tape = Tape()
    request = tape.request()
    user = tape.request("user")
    tape.response(request)
    tape.call("a")
    tape.response(user, "user")
    assert tape.first() == ["a"]


def test_a_request_that_was_never_answered_leaves_it_unknown_unless_it_is_the_last() -> None:
    tape = Tape()
    tape.turn()
    tape.call("a")
    tape.request()
    assert tape.first() == ["a"]
    tape.turn()
    assert tape.first() is None


def test_without_model_rows_it_is_unknown() -> None:
    tape = Tape()
    tape.call("a")
    assert tape.first() is None
    assert tape.why() == "no model call was recorded"
    tape.turn()
    assert tape.why() == "the first tool call came before any model call"


def test_rows_of_made_calls_read_back_as_those_calls() -> None:
    calls = calls_of(rows_of([("f", {"a": "ü"}), ("g", {})]), {})
    assert [(call.name, call.arguments) for call in calls] == [("f", '{"a": "ü"}'), ("g", "{}")]
