"""BFCL's own checkers, run unchanged over the calls a bridge recorded.

Claim: right and wrong are decided by upstream's files, loaded from the very package the suite was
converted from; this adapter only puts recorded calls into the form upstream expects and carries its
`error_type` and message out. Upstream's evaluation module imports every provider's SDK, numpy and
pandas for things that judging one entry never touches, so stand-ins are registered under those names
for the length of the import: what is judged with is `eval_runner._evaluate_single_ast_entry` and
`_evaluate_single_relevance_entry`, `ast_checker` and its converters, every line as upstream wrote it.

One thing upstream has no word for: its checkers raise on some malformed values (a list where its
answers hold dictionaries). No right answer does that, because every gold answer is run through them at
conversion, so what an agent sent then counts as wrong, and the finding names the exception.

Arguments are read with `json.loads`, as upstream reads a provider's: the last of two equal keys holds,
and NaN and Infinity are numbers.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from suites.errors import InputError
from tasks.convert.fetch import package_folder
from tasks.grade.calls import Call, calls_of, first_response
from tasks.grade.jobs import Check, Job, Verdict, grader_error
from tasks.grade.recorded import Recorded

REVISION = "1"
"""Of this adapter: raised when the same calls and the same upstream may get another verdict."""
MODEL = "dyno"
"""The model upstream believes it judges; one that answers with native names (dots and all)."""
LONGEST_FINDING = 4000

LANGUAGES = ("python", "java", "javascript")
RAISED = (ArithmeticError, AttributeError, LookupError, NotImplementedError, TypeError, ValueError)

STAND_INS = {
    "bfcl_eval.constants.model_config": "every provider's SDK",
    "bfcl_eval.eval_checker.agentic_eval.agentic_checker": "other categories",
    "bfcl_eval.eval_checker.eval_runner_helper": "numpy and pandas, for the leaderboard's tables",
    "bfcl_eval.eval_checker.multi_turn_eval.multi_turn_checker": "other categories",
    "bfcl_eval.eval_checker.multi_turn_eval.multi_turn_utils": "other categories",
    "bfcl_eval.model_handler.base_handler": "type annotations",
    "bfcl_eval.model_handler.utils": "tree-sitter, for prompted models",
    "dotenv": "the command line",
    "filelock": "result files",
    "tqdm": "progress bars",
}
"""Modules upstream names at import and never touches to judge one entry, with what they are for."""


def version(dataset: str) -> str:
    """`grader_version` of grades made with that package: upstream's version and this adapter's."""
    return f"{dataset}+{REVISION}"


def validate_spec(spec: dict[str, Any], tools: Mapping[str, str] | None = None) -> None:
    """Refuse a spec this grader cannot judge by.

    Args:
        spec: `grade.spec`.
        tools: of the task; not looked at, as upstream's documents name its functions.

    Raises:
        InputError: `where` is the key inside `grade.spec`.
    """
    expected = {"category": str, "language": str, "functions": list, "possible_answer": list}
    for key, kind in expected.items():
        if not isinstance(spec.get(key), kind):
            raise InputError(
                f"needs a {kind.__name__} and has {spec.get(key)!r:.60}",
                where=key,
                mend="BFCL tasks are made by `dyno convert bfcl`, not by hand",
            )
    for key in spec.keys() - expected.keys():
        raise InputError("is not a key of a BFCL grade", where=key)
    if spec["language"] not in LANGUAGES:
        raise InputError(
            f"{spec['language']!r} is not a language", where="language", mend=", ".join(LANGUAGES)
        )
    if not _is_relevance(spec) and not spec["possible_answer"]:
        raise InputError("is empty, and the category has gold calls", where="possible_answer")


def grade(job: Job, recorded: Recorded) -> Verdict:
    """Judge one try in all three scopes; the headline is `attempt`."""
    try:
        judge = _judge(job.dataset)
    except InputError as error:
        return grader_error("grader_missing", str(error))
    calls = calls_of(recorded.bridge, job.tools)
    judged: dict[tuple[int, ...], Judgement] = {}

    def check(scope: str, chosen: Sequence[Call]) -> Check:
        same = tuple(call.seq for call in chosen)  # most tries read alike in every scope
        if same not in judged:
            judged[same] = judge(job.spec, chosen)
        return _check(scope, judged[same])

    attempt = check("attempt", [call for call in calls if call.accepted])
    strict = check("attempt_strict", calls)
    first, unknown = first_response(calls, recorded.model)
    response = (
        Check("first_response", None, f"Not known: {unknown}.", 0.0, "first_response", False)
        if first is None
        else check("first_response", first)
    )
    solved = bool(attempt.passed)
    return Verdict(solved, float(solved), (attempt, strict, response))


Judgement = dict[str, Any]
Judge = Callable[[dict[str, Any], Sequence[Call]], Judgement]


def _is_relevance(spec: dict[str, Any]) -> bool:
    return "relevance" in spec["category"]  # "irrelevance" too


def _check(scope: str, judgement: Judgement) -> Check:
    headline = scope == "attempt"
    passed = bool(judgement["valid"])
    if passed:
        finding = "Upstream's checker accepts the calls."
    else:
        finding = "\n".join(_words(judgement.get("error", [])))[:LONGEST_FINDING]
    return Check(
        name=scope,
        passed=passed,
        finding=finding,
        weight=1.0 if headline else 0.0,
        scope=scope,
        headline=headline,
        error_type=None if passed else judgement.get("error_type"),
    )


def _words(errors: Any) -> Iterator[str]:
    """Upstream's messages as lines; its parallel checker nests one report a candidate in them."""
    for error in errors if isinstance(errors, list) else [errors]:
        if not isinstance(error, dict):
            yield str(error)
            continue
        for title, report in error.items():
            if isinstance(report, dict) and "sub_error" in report:
                said = " ".join(_words(report["sub_error"]))
                yield f"{title}: {said} ({report.get('sub_error_type')})"
            else:
                yield f"{title}: {report}"


# ---------------------------------------------------------------- upstream


class _Handler:
    """The neutral model handler: recorded calls into upstream's list of `{name: {parameter: value}}`."""

    def decode_ast(self, result: Any, language: Any, has_tool_call_tag: bool) -> list[Any]:
        """As upstream's handler of any tool-calling provider does it."""
        return [{name: json.loads(arguments)} for name, arguments in result]


_judges: dict[str, Judge] = {}


def _judge(dataset: str) -> Judge:
    """The checkers of one version of the package; a process holds one version only.

    Raises:
        InputError: the package is not in the cache, or its checkers do not load.
    """
    if dataset not in _judges:
        if _judges:
            raise InputError(f"this worker judges with {next(iter(_judges))}, not {dataset}")
        folder = package_folder("bfcl-eval", dataset)
        if not (folder / "bfcl_eval").is_dir():
            raise InputError(
                f"the grader's package bfcl-eval {dataset} is not in {folder.parent}",
                mend="run `dyno convert bfcl` (with the --source it was converted from, if any)",
            )
        _judges[dataset] = _load(folder)
    return _judges[dataset]


def _load(folder: Path) -> Judge:
    """Import upstream's evaluation from `folder` and wrap it."""
    try:
        runner, enums = _import_upstream(folder)
        evaluate_ast = runner._evaluate_single_ast_entry
        evaluate_relevance = runner._evaluate_single_relevance_entry
        languages = {language.value: language for language in enums.Language}
        formats = {form.value: form for form in enums.ReturnFormat}
    except (ImportError, AttributeError, SyntaxError) as error:
        raise InputError(f"its checkers do not load: {error!r}", where=str(folder)) from error
    handler = _Handler()

    def judge(spec: dict[str, Any], calls: Sequence[Call]) -> Judgement:
        result = [(call.name, call.arguments) for call in calls]
        category, language = spec["category"], spec["language"]
        prompt = {"function": spec["functions"]}
        try:
            if _is_relevance(spec):
                judged = evaluate_relevance(handler, "entry", result, prompt, MODEL, category)
            else:
                judged = evaluate_ast(
                    handler,
                    "entry",
                    result,
                    spec["possible_answer"],
                    prompt,
                    MODEL,
                    category,
                    languages[language],
                    formats[language],
                )
        except RAISED as error:
            said = f"Upstream's checker raised {error!r} on these calls; no right answer does."
            return {"valid": False, "error": [said], "error_type": "dyno:checker_raised"}
        return dict(judged)

    return judge


def _import_upstream(folder: Path) -> tuple[Any, Any]:
    """`eval_runner` and `enums`, with stand-ins for what they import and never use here."""
    stand_ins = {name: _StandIn(name) for name in STAND_INS if name not in sys.modules}
    config = stand_ins.get("bfcl_eval.constants.model_config")
    if config is not None:
        native = types.SimpleNamespace(underscore_to_dot=False)
        vars(config)["MODEL_CONFIG_MAPPING"] = {MODEL: native}
    cache, sys.pycache_prefix = sys.pycache_prefix, str(folder.parent / ".pycache")
    sys.path.insert(0, str(folder))
    sys.modules.update(stand_ins)
    try:
        # Upstream makes folders for results at import; they go where they are deleted again.
        with tempfile.TemporaryDirectory(prefix="dyno-bfcl-") as scratch:
            os.environ["BFCL_PROJECT_ROOT"] = scratch
            from bfcl_eval.constants import enums
            from bfcl_eval.eval_checker import eval_runner
    finally:
        sys.path.remove(str(folder))
        sys.pycache_prefix = cache
        for name in stand_ins:
            if not name.startswith("bfcl_eval."):
                sys.modules.pop(name, None)
    return eval_runner, enums


class _StandIn(types.ModuleType):
    """A module that has every name, none of which may be used."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)

        def unused(*_args: Any, **_keywords: Any) -> None:
            raise RuntimeError(f"{self.__name__}.{name} is a stand-in of dyno's")

        return unused
