"""The failure policy that a person reads in docs/sweeps.md is the one that runs."""

from __future__ import annotations

import pytest

from suites.home import PROJECT
from tasks.attempt.policy import ENDINGS, ERRORS, Rule

PAGE = PROJECT / "docs" / "sweeps.md"


def tables() -> dict[str, dict[str, dict[str, str]]]:
    """The tables of the section `Failure policy`: first heading → name → heading → cell."""
    section = PAGE.read_text("utf-8").split("\n## Failure policy\n")[1].split("\n## ")[0]
    found: dict[str, dict[str, dict[str, str]]] = {}
    heads: list[str] = []
    for line in section.splitlines():
        if not line.startswith("|"):
            heads = []
            continue
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not heads:
            heads = cells
            found[heads[0]] = {}
        elif set(cells[0]) != {"-"}:
            found[heads[0]][cells[0].strip("`")] = dict(zip(heads, cells, strict=True))
    return found


def told(rule: Rule, heads: list[str]) -> dict[str, str]:
    """A row of the policy as the page has it."""
    row = {
        "retried": "yes" if rule.retry else "no",
        "graded": "yes" if rule.grade else "no",
        "counts": "yes" if rule.counts else "no",
        "blame": rule.blame or "",
        "stops": rule.stops or "",
        "says": rule.says,
    }
    return {head: row[head] for head in heads}


@pytest.mark.parametrize(("kind", "rules"), [("ending", ENDINGS), ("error", ERRORS)])
def test_the_page_has_every_row_of_the_policy_as_it_is(kind: str, rules: dict[str, Rule]) -> None:
    shown = tables()[kind]
    assert list(shown) == list(rules)
    for name, row in shown.items():
        cells = {head: cell for head, cell in row.items() if head != kind}
        assert cells == told(rules[name], list(cells)), name


def test_what_the_page_says_of_all_errors_holds() -> None:
    assert not any(rule.grade or rule.counts for rule in ERRORS.values())
