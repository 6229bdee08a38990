"""τ²-bench's own evaluator, run unchanged over the trajectory that the journals hold.

Claim: the reward is upstream's `evaluate_simulation` on the task as it stands in the package's file: its
replay, its comparison with gold, its assertions, its rule for a conversation that did not end by a stop
(0). This adapter rebuilds the trajectory (`tau2_trajectory.py`), gives the evaluator worlds that cost
what was touched in them (`tau2_worlds.py`), and carries out every part it looked at as a check
(`tau2_checks.py`).

A recorded result that the replay does not come to is no failure of the agent's: the evidence and the
package disagree, so there is no grade. Where the reward needs a judge model and none is configured,
there is none either.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bridges import tau2_package
from bridges.tau2_package import PACKAGE, NoJudge
from bridges.texts import fit
from suites.errors import InputError
from tasks.convert.fetch import package_folder
from tasks.grade.jobs import Check, Job, Verdict, grader_error
from tasks.grade.recorded import Recorded
from tasks.grade.tau2_checks import checks_of
from tasks.grade.tau2_judge import Judge, JudgeFailed
from tasks.grade.tau2_trajectory import Ending, ending_of, messages_of
from tasks.grade.tau2_worlds import World, Worlds

REVISION = "1"
"""Of this adapter: raised when the same journals and the same upstream may get another verdict."""
PARTS = ("DB", "ENV_ASSERTION", "NL_ASSERTION", "ACTION", "COMMUNICATE")
"""What upstream's rewards are products of."""
STOPS = ("agent_stop", "user_stop")
"""Endings after which upstream looks at the work."""
NEITHER = "agent_error"
"""What an ending is called to an upstream that has no word for it: any that is not a stop scores 0."""
FRAMES = 10_000
"""How deep this process may recurse: upstream copies messages, and arguments that a world could take in
(some 800 levels) take many times as many frames to copy."""


def version(dataset: str) -> str:
    """`grader_version` of grades made with that package: upstream's version and this adapter's."""
    return f"{dataset}+{REVISION}"


def validate_spec(spec: dict[str, Any], tools: Mapping[str, str] | None = None) -> None:
    """Refuse a spec this grader cannot judge by.

    Args:
        spec: `grade.spec`.
        tools: of the task; not looked at, as upstream judges unknown names.

    Raises:
        InputError: `where` is the key inside `grade.spec`.
    """
    for key, kind in {"domain": str, "task": dict}.items():
        if not isinstance(spec.get(key), kind):
            raise InputError(
                f"needs a {kind.__name__} and has {spec.get(key)!r:.60}",
                where=key,
                mend="τ² tasks are made by `dyno convert tau2`, not by hand",
            )
    for key in spec.keys() - {"domain", "task"}:
        raise InputError("is not a key of a τ² grade", where=key)
    task = spec["task"]
    if not isinstance(task.get("id"), str):
        raise InputError(f"is upstream's name of the task: {task.get('id')!r:.60}", where="task.id")
    criteria = task.get("evaluation_criteria")
    if criteria is None:
        return
    if not isinstance(criteria, dict):
        raise InputError(f"is no object: {criteria!r:.60}", where="task.evaluation_criteria")
    basis = criteria.get("reward_basis", [])
    unknown = [part for part in basis if part not in PARTS] if isinstance(basis, list) else [basis]
    if unknown:
        raise InputError(
            f"{unknown[0]!r:.60} is no part of a reward",
            where="task.evaluation_criteria.reward_basis",
            mend=f"a list of {', '.join(PARTS)}",
        )
    for key in ("actions", "env_assertions", "communicate_info", "nl_assertions"):
        if not isinstance(criteria.get(key), list | None):
            raise InputError(
                f"is no list: {criteria[key]!r:.60}", where=f"task.evaluation_criteria.{key}"
            )


def needs_judge(spec: dict[str, Any]) -> bool:
    """True where upstream asks a model: the reward rests on assertions in natural language."""
    criteria = criteria_of(spec)
    return "NL_ASSERTION" in criteria.get("reward_basis", ()) and bool(
        criteria.get("nl_assertions")
    )


def grade(job: Job, recorded: Recorded) -> Verdict:
    """Judge one try."""
    try:
        evaluator = _evaluator(job.dataset)
        worlds = evaluator.worlds(job.spec["domain"])
    except InputError as error:
        return grader_error("grader_missing", str(error))
    ending = ending_of(recorded)
    if ending.reason not in STOPS:
        return evaluator.ended_early(job.spec, ending)
    initial = job.spec["task"].get("initial_state") or {}
    messages = messages_of(recorded, job.spec["domain"], initial.get("message_history"))
    try:
        return evaluator.judge(job.spec, worlds, messages, str(ending.reason), job.judge)
    except ReplayMismatch as error:
        return grader_error("replay_mismatch", str(error))
    except Unanswerable as error:
        if "ENV_ASSERTION" not in criteria_of(job.spec).get("reward_basis", ()):
            return grader_error("grader_raised", str(error))
        return Verdict(
            False,
            0.0,
            (Check("ENV_ASSERTION", False, str(error), error_type="tau2:ENV_ASSERTION"),),
        )
    except JudgeFailed as error:
        return grader_error("judge_failed", f"the judge model gave no judgement: {error}")
    except NoJudge:
        return grader_error(
            "judge_missing",
            f"task {job.spec['task']['id']} is judged by natural-language assertions, which needs a"
            " judge model: write `judge: MODEL` in the sweep, or name one now: dyno regrade --judge MODEL",
        )


def criteria_of(spec: dict[str, Any]) -> dict[str, Any]:
    """What upstream judges the task by; empty where it judges nothing."""
    criteria: dict[str, Any] = spec["task"].get("evaluation_criteria") or {}
    return criteria


class Unanswerable(Exception):  # noqa: N818 - the condition
    """An assertion that upstream's own code cannot answer in the world that the attempt left.

    It asks after something that only the work would have made (mock's `task_2`), and upstream raises. A
    reward is a product, and this factor of it is not 1: to leave the attempt out would take those who
    did nothing out of the denominator.
    """


class ReplayMismatch(Exception):  # noqa: N818 - the condition
    """Upstream's world does not come to what the evidence says it answered."""


class Evaluator:
    """Upstream's evaluator in this process.

    Args:
        folder: of the package.

    Raises:
        ImportError, AttributeError, …: upstream's code is not what it was.
    """

    def __init__(self, folder: Path) -> None:
        sys.setrecursionlimit(max(FRAMES, sys.getrecursionlimit()))
        self._tau2 = tau2_package.load(folder)
        evaluation = self._tau2.module("evaluator.evaluator")
        simulation = self._tau2.module("data_model.simulation")
        self._evaluate = evaluation.evaluate_simulation
        self._types = evaluation.EvaluationType
        self._reasons = {reason.value: reason for reason in simulation.TerminationReason}
        self._simulation = simulation.SimulationRun
        self._message = self._tau2.module("data_model.message").AssistantMessage
        self._task = self._tau2.module("data_model.tasks").Task
        self._is_successful = self._tau2.module("metrics.agent_metrics").is_successful
        self._worlds: dict[str, Worlds] = {}
        self._made: list[World] = []
        self._making: Worlds | None = None
        tau2_package.constructor_for(self._make)
        tau2_package.judged_by(None)

    def worlds(self, domain: str) -> Worlds:
        """The domain's, its databases parsed when it is first asked for.

        Raises:
            InputError: this version has no such domain.
        """
        if domain not in self._worlds:
            if not self._tau2.has_domain(domain):
                raise InputError(f"there is no domain {domain!r} in {self._tau2.folder}")
            self._worlds[domain] = Worlds(self._tau2, domain)
        return self._worlds[domain]

    def judge(
        self,
        spec: dict[str, Any],
        worlds: Worlds,
        messages: list[dict[str, Any]],
        reason: str,
        line: dict[str, Any] | None = None,
    ) -> Verdict:
        """The verdict on a conversation that ended by a stop.

        Args:
            line: to the judge model (`Job.judge`).

        Raises:
            ReplayMismatch: see there.
            JudgeFailed: see there.
            NoJudge: a model has to judge, and there is none.
        """
        worlds.begin()
        self._making, self._made = worlds, []
        judge = Judge(line, self._message) if line else None
        tau2_package.judged_by(judge)
        try:
            simulation, reward = self._rewarded(spec, messages, reason)
            account = judge.account if judge else None
            if account is not None:
                _check_judgement(spec, reward)
            named = account["model"] if account else None
            checks = checks_of(reward, simulation.messages, self._made, named)
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            if judge is None or judge.account is None:
                raise
            raise JudgeFailed(f"upstream cannot read its answer: {error!r}") from error
        finally:
            self._making, self._made = None, []
            tau2_package.judged_by(None)
        solved = bool(self._is_successful(reward.reward))
        return Verdict(solved, float(reward.reward), checks, judge=account)

    def ended_early(self, spec: dict[str, Any], ending: Ending) -> Verdict:
        """Upstream's verdict on a conversation that did not end by a stop; nothing is replayed."""
        known = ending.reason in self._reasons
        reason = ending.reason if known and ending.reason else NEITHER
        _, reward = self._rewarded(spec, [], reason)
        finding = (
            f"The conversation ended {ending.detail}, not by a stop; upstream scores that"
            f" {reward.reward:g}."
        )
        if ending.reason and not known:
            finding += f" (This version of upstream has no name for it; it was told {NEITHER}.)"
        check = Check("termination", False, finding, error_type=f"tau2:{ending.reason or NEITHER}")
        return Verdict(bool(self._is_successful(reward.reward)), float(reward.reward), (check,))

    def _rewarded(
        self, spec: dict[str, Any], messages: list[dict[str, Any]], reason: str
    ) -> tuple[Any, Any]:
        """Upstream's simulation and its reward."""
        task = self._task.model_validate(spec["task"])
        simulation = self._simulation(
            id="dyno",
            task_id=task.id,
            start_time="",
            end_time="",
            duration=0.0,
            termination_reason=self._reasons[reason],
            messages=messages,
        )
        criteria = task.evaluation_criteria
        judged = criteria is not None and "NL_ASSERTION" in criteria.reward_basis
        how = self._types.ALL_WITH_NL_ASSERTIONS if judged else self._types.ALL
        reward = self._evaluate(
            simulation=simulation,
            task=task,
            evaluation_type=how,
            solo_mode=False,
            domain=spec["domain"],
        )
        return simulation, reward

    def _make(self, domain: str, **arguments: Any) -> Any:
        """What the evaluator builds its environments with: the attempt's first, then gold's."""
        assert self._making is not None
        world = self._making.make(**arguments)
        self._made.append(world)
        if len(self._made) == 1:
            _watch_replay(world.environment)
            _watch_assertions(world.environment)
        return world.environment


def _check_judgement(spec: dict[str, Any], reward: Any) -> None:
    """Upstream takes an answer that leaves assertions out for one that holds them met; this does not."""
    asked = len(spec["task"]["evaluation_criteria"]["nl_assertions"])
    given = len(reward.nl_assertions or ())
    if given != asked:
        raise JudgeFailed(f"it judged {given} assertions, and was asked about {asked}")


def _watch_replay(environment: Any) -> None:
    """Tell what goes wrong while the recorded trajectory replays from every other mistake.

    What the replay answers is bounded as what the agent was given was: an agent could have left any
    attempt ungraded by a call whose result is too long to be kept whole, or holds what no wire carries.
    """
    set_state, get_response = environment.set_state, environment.get_response

    def watched(*arguments: Any, **named: Any) -> Any:
        try:
            return set_state(*arguments, **named)
        except Exception as error:
            raise ReplayMismatch(f"the trajectory does not replay: {error}") from error

    def bounded(call: Any) -> Any:
        response = get_response(call)
        response.content = fit(response.content)[0]
        return response

    environment.set_state, environment.get_response = watched, bounded


def _watch_assertions(environment: Any) -> None:
    """Tell an assertion that raises from every other mistake."""
    run = environment.run_env_assertion

    def watched(assertion: Any, *arguments: Any, **named: Any) -> Any:
        try:
            return run(assertion, *arguments, **named)
        except Exception as error:
            told = ", ".join(f"{k}={json.dumps(v)}" for k, v in assertion.arguments.items())
            raise Unanswerable(
                f"{assertion.func_name}({told}) cannot hold in the world that the attempt left: {error}"
            ) from error

    environment.run_env_assertion = watched


_evaluators: dict[str, Evaluator] = {}


def _evaluator(dataset: str) -> Evaluator:
    """The evaluator of one version of the package; a process holds one version only.

    Raises:
        InputError: the package is not in the cache, or does not load.
    """
    if dataset not in _evaluators:
        if _evaluators:
            raise InputError(f"this worker judges with {next(iter(_evaluators))}, not {dataset}")
        folder = package_folder(PACKAGE, dataset)
        if not folder.is_dir():
            raise InputError(
                f"the grader's package {PACKAGE} {dataset} is not in {folder.parent}",
                mend="run `dyno convert tau2` (with the --source it was converted from, if any)",
            )
        sys.pycache_prefix = str(folder.parent / ".pycache")  # not in the package that was fetched
        try:
            _evaluators[dataset] = Evaluator(folder)
        except (ImportError, AttributeError, SyntaxError, OSError) as error:
            raise InputError(
                f"its evaluator does not load: {error!r}", where=str(folder)
            ) from error
    return _evaluators[dataset]
