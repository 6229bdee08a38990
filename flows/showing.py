"""`dyno show`: one attempt, told from its evidence alone, in the order in which it happened."""

from __future__ import annotations

import json
import textwrap
import time
from typing import Any

import click

from flows.cli import here, terminal
from suites.errors import InputError
from suites.home import evidence_root
from tasks.plans import Plan
from warehouse.evidence import Bundle, CorruptBundle, Evidence
from warehouse.rows import JOURNALS

SHORT = 400
"""Characters of a text shown without --full."""


def show(attempt: str, full: bool) -> None:
    """Print what happened in an attempt.

    Raises:
        InputError: no attempt, or more than one, is meant.
    """
    evidence = Evidence(evidence_root())
    key = _key(evidence, attempt)
    printer = _Printer(full)
    tries = evidence.tries(key)
    published = evidence.published(key)
    click.echo(f"attempt {key}")
    for folder in tries:
        try:
            bundle = evidence.bundle(folder)
        except CorruptBundle as corrupt:
            printer.line(f"{folder.name}: {corrupt.reason}")
            continue
        if bundle is None:
            printer.line(f"{folder.name}: interrupted; it has no attempt.json and is never graded")
        elif published is None or bundle.folder == published.folder:
            _show_try(evidence, bundle, printer)
        else:
            why = (bundle.record["error"] or {}).get("class", bundle.record["ending"])
            printer.line(f"{folder.name}: {why}, tried again")
    for grade in evidence.grades(key):
        _show_grade(grade, printer)


def _key(evidence: Evidence, asked: str) -> str:
    known = evidence.keys() if len(asked) > 3 else ()
    found = {key for key in known if key.startswith(asked)}
    if len(found) == 1:
        return found.pop()
    if not found:
        planned = _by_task(evidence, asked)
        if len(planned) == 1:
            return next(iter(planned))
        if planned:
            lines = "\n".join(f"  {key[:12]}  {label}" for key, label in list(planned.items())[:20])
            raise InputError(f"{asked!r} has {len(planned)} attempts; which one?\n{lines}")
    if found:
        raise InputError(f"{len(found)} attempts begin with {asked!r}", mend="give more of the key")
    raise InputError(
        f"no attempt begins with {asked!r}, and no task with attempts has that id",
        mend='dyno sql "select attempt_key, task_id, harness, model, outcome from attempts"',
    )


def _by_task(evidence: Evidence, task_id: str) -> dict[str, str]:
    """Attempts of a task with evidence: key to a label, newest sweep first."""
    found: dict[str, str] = {}
    for path in sorted((evidence.root / "sweeps").glob("*.json"), reverse=True):
        try:
            manifest = json.loads(path.read_bytes())
        except ValueError:
            continue
        for planned in manifest["attempts"]:
            if planned["task_id"] == task_id and planned["key"] not in found:
                cell = manifest["cells"][planned["cell"]]
                label = f"{cell['harness']} · {cell['model']} · repeat {planned['repeat'] + 1}"
                if evidence.attempt_folder(planned["key"]).is_dir():
                    found[planned["key"]] = label
    return found


class _Printer:
    def __init__(self, full: bool) -> None:
        self.full = full
        self.width, self.colour = terminal()

    def title(self, text: str) -> None:
        click.echo("\n" + (click.style(text, bold=True) if self.colour else text))

    def line(self, text: str, indent: int = 2) -> None:
        click.echo(" " * indent + text)

    def text(self, text: str, indent: int = 4) -> None:
        """A longer text, wrapped; terminal escapes in it are shown, not obeyed."""
        safe = "".join(c if c.isprintable() or c in "\n\t" else repr(c)[1:-1] for c in text)
        if not self.full and len(safe) > SHORT:
            safe = f"{safe[:SHORT]} … ({len(safe) - SHORT} more characters: --full)"
        for paragraph in safe.splitlines() or [""]:
            for part in textwrap.wrap(paragraph, max(30, self.width - indent)) or [""]:
                click.echo(" " * indent + part)


def _show_try(evidence: Evidence, bundle: Bundle, out: _Printer) -> None:
    record = bundle.record
    stamp, task, times = record["stamp"], record["task"], record["timings"]
    out.line(
        f"{task['suite']} {task['suite_version']} · {task['task_id']} · repeat {task['repeat'] + 1}"
    )
    out.line(_who(stamp))
    if record.get("imported"):
        for line in _imported_lines(record["imported"]):
            out.line(line)
    out.line(here(bundle.folder))
    _show_messages(evidence, bundle, out)
    out.title("what happened")
    try:
        rows = sorted([row for name in JOURNALS for row in bundle.rows(name)], key=_seq)
    except CorruptBundle as error:
        out.line(f"the evidence is corrupt: {error.reason}")
        rows = []
    for row in rows:
        _show_row(row, times["started_at"], out)
    if bundle.text("stdout").strip():
        out.title("standard output")
        out.text(bundle.text("stdout").strip())
    if bundle.text("answer").strip():
        out.title("its answer")
        out.text(bundle.text("answer").strip())
    if bundle.text("stderr").strip():
        out.title("standard error")
        out.text(bundle.text("stderr").strip())
    out.title("ending")
    out.line(f"{record['ending']}: {record['detail']}")
    talk = (record.get("host") or {}).get("conversation")
    if talk:
        out.line(_talk_line(talk))
    if record["error"]:
        out.line(f"infrastructure error {record['error']['class']}: {record['error']['message']}")
    out.line(_time_line(times))
    out.line(_usage_line(record))


def _who(stamp: dict[str, Any]) -> str:
    """What was run, in a line."""
    parts = [f"{stamp['harness']} {stamp['harness_version']} ({stamp['mode']})", stamp["model"]]
    if stamp.get("user_model"):
        parts[1] += f" ⇄ {stamp['user_model']}"
    if stamp.get("seed") is not None:
        parts.append(f"seed {stamp['seed']}")
    if stamp.get("origin") != "imported":
        parts.append(f"{stamp['isolation']}{'' if stamp['sealed'] else ', unsealed'}")
    return " · ".join(parts)


def _imported_lines(said: dict[str, Any]) -> list[str]:
    """Where an imported attempt comes from, and how its task is known."""
    task = (
        f"its task is known by {said['mapped_by']}"
        if said["mapped_by"]
        else f"its task is not known: {said['unmapped_because']}"
    )
    return [
        f"imported: simulation {said['simulation']} of {said['file']}, which names task {said['named']}",
        task,
    ]


def _talk_line(talk: dict[str, Any]) -> str:
    blame = f", by the {talk['blame']}" if talk.get("blame") else ""
    return (
        f"conversation ended by {talk['ended']}{blame}: {talk['turns']} turns of the user, "
        f"{talk['steps']} steps, {talk['errors']} failed calls"
    )


def _seq(row: dict[str, Any]) -> int:
    return row["seq"]


def _show_messages(evidence: Evidence, bundle: Bundle, out: _Printer) -> None:
    try:
        plan = Plan.read(evidence, bundle.record["sweep_id"])
        task = plan.task(plan.by_key[bundle.key])
    except (InputError, KeyError):
        return  # evidence without its sweep's manifest: the rest can still be told
    out.title("asked")
    if task.user is not None:
        out.line("a simulated user with a scenario of its own:")
        out.text(task.user.script.opening if task.user.script else task.user.scenario)
    for message in () if task.user is not None else task.messages:
        out.line(f"{message.role}:")
        out.text(message.content)
    names = [tool.name for environment in task.environments for tool in environment.tools]
    out.line(f"tools: {', '.join(names) or 'none'}")


def _show_row(row: dict[str, Any], started: float | None, out: _Printer) -> None:
    known = row["at"] is not None and started is not None
    at = f"{row['seq']:>3}  " + (f"+{max(0.0, row['at'] - started):.3f} s " if known else "")
    event, whose = row["event"], "user's " if row.get("requestor") == "user" else ""
    if event == "message":
        who = "user" if row["role"] == "user" else "agent"
        out.line(f"{at}{who}{' (opening)' if row.get('opening') else ''}:")
        out.text(row.get("content") or "", indent=20)
    elif event == "end":
        out.line(f"{at}the conversation is over: {row['reason']}")
    elif event == "list":
        out.line(f"{at} tools/list → {len(row['tools'])} tools ({row.get('protocol')})")
    elif event == "call":
        native = f" ({row['native']})" if row.get("native") not in (None, row["tool"]) else ""
        out.line(f"{at} {whose}call {row['tool']}{native}")
        out.text(row.get("arguments") or "(no arguments)", indent=20)
    elif event == "result":
        took = "" if row["ms"] is None else f", {row['ms']:.1f} ms"
        out.line(f"{at} result of {row['call']}: {row['status']}{took}")
        out.text(row.get("text") or "", indent=20)
    elif event == "request":
        edits = f", edits: {', '.join(row['edits'])}" if row.get("edits") else ""
        stream = ", streamed" if row.get("stream") else ""
        out.line(f"{at} {whose}model call to {row.get('model')}{stream}{edits}")
    elif event == "response":
        out.line(f"{at} model answer to {row['call']}: {_answer_line(row)}")


def _answer_line(row: dict[str, Any]) -> str:
    usage = row.get("usage")
    tokens = (
        f"{usage['input']} in + {usage['cache_read'] or 0} cached, {usage['output']} out"
        if usage
        else "tokens not measured"
    )
    cost = "cost not known" if row.get("cost") is None else f"${row['cost']:.6f}"
    calls = f", {row['tool_calls']} tool call(s)" if row.get("tool_calls") else ""
    error = f", {row['error']}" if row.get("error") else ""
    return f"{row['status']}, {tokens}, {cost}{calls}{error}"


def _time_line(times: dict[str, Any]) -> str:
    if times["wall_s"] is None or times["ended_at"] is None:
        return "nobody says how long it took"
    text = f"{times['wall_s']:.3f} s"
    if times["startup_s"] is not None:
        text += f", {times['startup_s']:.3f} s of it before it first touched bridge or model"
    if times.get("waited_s"):
        text += f", {times['waited_s']:.1f} s waiting for a rate limit"
    ended = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(times["ended_at"]))
    return f"{text}; ended {ended}"


def _usage_line(record: dict[str, Any]) -> str:
    host = record["host"]
    usage = host.get("usage")
    tokens = f"{usage['input']} in, {usage['output']} out" if usage else "tokens not measured"
    cost = host.get("cost")
    calls = host.get("model_calls", 0)
    reported = (record.get("reported") or {}).get("cost")
    return (
        f"{host.get('tool_calls', 0)} tool calls ({host.get('tool_errors', 0)} errors), "
        f"{'model calls not counted' if calls is None else f'{calls} model calls'}, {tokens}, "
        + ("cost not measured" if cost is None else f"${cost:.6f}")
        + ("" if reported is None else f" (reported: ${reported:.6f})")
    )


def _show_grade(grade: dict[str, Any], out: _Printer) -> None:
    verdict = {True: "solved", False: "failed", None: "grader error"}[grade["solved"]]
    out.title(
        f"grade: {verdict}, by {grade['grader']} {grade['grader_version']} ({grade['graded_at']})"
    )
    if grade.get("error"):
        out.line(f"{grade['error']['type']}: {grade['error']['message']}")
    for check in grade["checks"]:
        mark = {True: "held", False: "did not hold", None: "unknown"}[check["passed"]]
        head = " (headline)" if check.get("headline") else ""
        out.line(f"{check['name']}{head}: {mark}")
        kind = f"{check['error_type']}: " if check.get("error_type") else ""
        if check.get("finding"):
            out.text(f"{kind}{check['finding']}", indent=6)
