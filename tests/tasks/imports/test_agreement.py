from __future__ import annotations

from collections import Counter

from tasks.imports.agreement import Agreement


def test_what_could_not_be_compared_for_one_reason_is_one_line() -> None:
    unknown = (
        "simulation 0, task 5 (aa): grader_missing: it is not there",
        "simulation 1, task 7 (bb): no reward was published",
        "simulation 2, task 9 (cc): grader_missing: it is not there",
    )
    told = Agreement("f.json", Counter(), (), unknown, 0).lines()
    assert told[1:] == [
        "  simulation 0, task 5 (aa) and 1 more: grader_missing: it is not there",
        "  simulation 1, task 7 (bb): no reward was published",
    ]
