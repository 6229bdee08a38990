from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from tasks.convert.fetch import Package
from tasks.grade.client import Grading
from tests.tasks.grade.tau2_conversations import failed, greeting, tasks_of

ASSERTIONS = ["The agent is kind.", "The agent is brief."]


class Endpoint(HTTPServer):
    """A chat endpoint that gives one answer, and keeps what it was asked."""

    content: str = ""
    status: int = 200
    asked: list[tuple[str | None, dict[str, Any]]]


class Handler(BaseHTTPRequestHandler):
    server: Endpoint

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.asked.append((self.headers["authorization"], json.loads(body)))
        answer = {
            "model": "judge-2026",
            "choices": [{"message": {"role": "assistant", "content": self.server.content}}],
            "usage": {"prompt_tokens": 11, "completion_tokens": 7},
        }
        self.send_response(self.server.status)
        self.end_headers()
        self.wfile.write(json.dumps(answer).encode())

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    server = Endpoint(("127.0.0.1", 0), Handler)
    server.asked = []
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def graded(tau2: Package, tau2_home: Path, endpoint: Endpoint, grading: Grading) -> Any:
    """Grades a conversation in which nothing happened, by these answers of the judge."""
    task = tasks_of(tau2_home, "airline")["0"]
    criteria = {"actions": [], "nl_assertions": ASSERTIONS, "reward_basis": ["DB", "NL_ASSERTION"]}
    rows = greeting("airline").says("user", "Hello.").ends()
    url = f"http://127.0.0.1:{endpoint.server_port}/m/x/v1"
    line = {"model_url": url, "token": "t", "model": "judge"}

    def grade(content: str, status: int = 200) -> dict[str, Any]:
        endpoint.content, endpoint.status = content, status
        job = rows.job({**task, "evaluation_criteria": criteria})
        return grading.grade(replace(job, judge=line))

    return grade


def judgement(*met: bool) -> str:
    results = [
        {"expectedOutcome": text, "reasoning": "So it was.", "metExpectation": said}
        for text, said in zip(ASSERTIONS, met, strict=False)
    ]
    return json.dumps({"results": results})


def test_a_judge_decides_its_part_and_is_stamped(graded: Any, endpoint: Endpoint) -> None:
    grade = graded(judgement(True, True))
    assert grade["solved"] is True
    assert grade["judge"]["model"] == "judge-2026"
    assert grade["judge"]["usage"]["prompt_tokens"] == 11
    ((token, asked),) = endpoint.asked
    assert token == "Bearer t"
    assert (asked["model"], asked["temperature"]) == ("judge", 0)
    assert "The agent is brief." in asked["messages"][1]["content"]
    grade = graded(judgement(True, False))
    assert grade["score"] == 0.0
    expected = "judge-2026 judged 'The agent is brief.': So it was."
    assert failed(grade) == {"NL_ASSERTION 2": expected}


@pytest.mark.parametrize(
    ("content", "status", "why"),
    [
        ('{"results": []}', 200, "judged 0 assertions"),
        (judgement(True), 200, "judged 1 assertions"),
        ("It was fine.", 200, "cannot read its answer"),
        ('{"results": [{"expectedOutcome": "x"}]}', 200, "cannot read its answer"),
        ("", 503, "status 503"),
    ],
)
def test_a_judge_without_a_judgement_passes_nothing(
    graded: Any, content: str, status: int, why: str
) -> None:
    grade = graded(content, status)
    assert (grade["solved"], grade["score"]) == (None, None)
    assert grade["error"]["type"] == "judge_failed"
    assert why in grade["error"]["message"]
