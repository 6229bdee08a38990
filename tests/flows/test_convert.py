from __future__ import annotations

import os
from pathlib import Path

import pytest

from flows.needs import CONVERTIBLE, benchmark_of, missing_suites
from tasks.convert.tau2 import fetch_tau2
from tests.flows.conftest import Dyno
from tests.tasks.tau2_sources import make_checkout


@pytest.fixture(scope="session")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """τ²-bench as it is unpacked; from DYNO_TEST_CACHE where that is kept."""
    kept = os.environ.get("DYNO_TEST_CACHE")
    home = Path(kept).absolute() if kept else tmp_path_factory.mktemp("tau2-home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DYNO_HOME", str(home))
        return fetch_tau2().folder


def test_every_convertible_benchmark_has_a_converter() -> None:
    from flows.convert import CONVERTERS

    assert set(CONVERTERS) == set(CONVERTIBLE)


def test_what_is_missing_is_known_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DYNO_HOME", str(tmp_path))
    assert benchmark_of("tau2-airline") == "tau2"
    assert benchmark_of("tau2x") == ""
    names = ["tau2-airline", "hello-tools", "bfcl-multiple", "mine"]
    assert missing_suites(names) == ["tau2-airline", "bfcl-multiple"]
    (tmp_path / "suites" / "tau2-airline").mkdir(parents=True)
    (tmp_path / "suites" / "tau2-airline" / "suite.yaml").write_text("")
    assert missing_suites(names) == ["bfcl-multiple"]


def test_a_source_is_converted_by_suite_and_named_by_its_own_version(
    dyno: Dyno, package: Path, tmp_path: Path
) -> None:
    checkout = make_checkout(package, tmp_path / "tau2-bench")
    said = dyno.run("convert", "tau2", "mock", "tau2-airline", "--source", str(checkout))
    assert (
        "tau2-mock: 9 tasks; gold fails upstream's own grader in update_task_with_history" in said
    )
    assert "tau2-airline: 50 tasks" in said
    assert sorted(p.name for p in (dyno.home / "suites").iterdir()) == ["tau2-airline", "tau2-mock"]
    shown = dyno.run("suite", "check", "tau2-airline")
    assert "tau2-airline 1.0.1+source." in shown
    assert "50 tasks; it can be run" in shown


def test_a_domain_that_cannot_be_loaded_is_told_and_the_others_are_there(
    dyno: Dyno, package: Path, tmp_path: Path
) -> None:
    checkout = make_checkout(package, tmp_path / "tau2-bench")
    domains = checkout / "src" / "tau2" / "domains"
    for name in ("retail", "telecom", "airline"):
        (domains / name / "tools.py").write_text("import a_library_nobody_has\n")
    said = dyno.run("convert", "tau2", "--source", str(checkout))
    assert "tau2-retail: not converted: " in said
    assert "a_library_nobody_has" in said
    assert [p.name for p in (dyno.home / "suites").iterdir()] == ["tau2-mock"]
    refused = dyno.run("convert", "tau2", "retail", "--source", str(checkout), code=2)
    assert "a_library_nobody_has" in refused


def test_mistakes_in_names_and_sources_are_refused(dyno: Dyno, tmp_path: Path) -> None:
    assert "known: bfcl, tau2" in dyno.run("convert", "tau3", code=2)
    assert "airline" in dyno.run("convert", "tau2", "airlin", code=2)
    said = dyno.run("convert", "tau2", "--source", str(tmp_path), code=2)
    assert "no tau2/ with its data" in said


def test_a_sweep_converts_only_the_suite_it_names(dyno: Dyno, package: Path) -> None:
    (dyno.home / "downloads").mkdir()
    (dyno.home / "downloads" / package.name).symlink_to(package)
    file = dyno.sweep_file("true", suites=["tau2-mock"], only=None, repeats=1, user="scripted")
    said = dyno.run("sweep", str(file), code=None)
    assert "converting τ²-bench (tau2-mock)" in said
    assert [p.name for p in (dyno.home / "suites").iterdir()] == ["tau2-mock"]
