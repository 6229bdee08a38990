"""A question sees the warehouse and nothing else, and a mistake in it is answered with what there is."""

from __future__ import annotations

import json
from pathlib import Path

import duckdb
import pytest
from made import NOISY, Maker, make_suite, run_all

from suites.errors import InputError
from warehouse.query import Answer, as_csv, as_json, as_table, connect, run_sql


@pytest.mark.parametrize(
    "sql",
    [
        "from scorecard",
        "with x as (select 1 as a) from x",
        "describe attempts",
        "show tables",
        "summarize tries",
        "explain from scorecard",
        "pivot endings on outcome using sum(attempts) group by harness",
        "values (1), (2);",
    ],
)
def test_questions_are_answered(con: duckdb.DuckDBPyConnection, sql: str) -> None:
    answer = run_sql(con, sql)
    assert answer.columns
    assert answer.rows


@pytest.mark.parametrize(
    ("sql", "says"),
    [
        ("from nothing", "nothing does not exist"),
        ("select nope from scorecard", '"nope" not found'),
        ("selec 1", "syntax error"),
        ("select 1; select 2", "2 statements"),
        ("", "0 statements"),
        ("-- nothing asked", "0 statements"),
        ("drop table tries", "drop is not a question"),
        ("insert into tries (try) values (1)", "insert is not a question"),
        ("create temp table x as select 1", "create is not a question"),
        ("update tries set try = 2", "update is not a question"),
        ("set threads = 9", "set is not a question"),
        ("pragma database_list", "pragma is not a question"),
        ("attach 'other.duckdb'", "attach is not a question"),
        ("copy tries to 'out.csv'", "copy is not a question"),
        ("install httpfs", "load is not a question"),
        ("explain analyze delete from tries", "read-only"),
    ],
)
def test_what_is_no_question_is_refused(
    con: duckdb.DuckDBPyConnection, sql: str, says: str
) -> None:
    with pytest.raises(InputError, match="(?i)" + says) as caught:
        run_sql(con, sql)
    assert caught.value.mend


@pytest.mark.parametrize(
    "sql",
    [
        "from read_csv('{file}')",
        "from read_text('{file}')",
        "from read_json('{file}')",
        "from read_parquet('{file}')",
        "from '{file}'",
        "from glob('{folder}/*')",
        "from read_csv('https://example.org/x.csv')",
        "select * from duckdb_secrets() where 1 = (select count(*) from read_text('{file}'))",
    ],
)
def test_no_file_and_no_network(con: duckdb.DuckDBPyConnection, tmp_path: Path, sql: str) -> None:
    file = tmp_path / "secret.csv"
    file.write_text("a\nhidden\n")
    with pytest.raises(InputError):
        run_sql(con, sql.format(file=file, folder=tmp_path))


def test_the_lock_cannot_be_taken_off(con: duckdb.DuckDBPyConnection) -> None:
    for setting in ("enable_external_access = true", "lock_configuration = false"):
        with pytest.raises(duckdb.Error, match="locked"):
            con.execute(f"set {setting}")


def test_an_unknown_name_is_answered_with_the_views(con: duckdb.DuckDBPyConnection) -> None:
    with pytest.raises(InputError) as caught:
        run_sql(con, "from scorcard")
    assert "scorecard, task_results, tool_error_rate" in str(caught.value.mend)


def test_no_warehouse_is_one_line_with_its_mend(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        connect(tmp_path / "warehouse.duckdb")
    assert str(caught.value).startswith(f"{tmp_path}/warehouse.duckdb: there is no warehouse yet")
    assert "dyno load" in str(caught.value.mend)


def test_a_file_that_is_no_warehouse_is_said_to_be_none(tmp_path: Path) -> None:
    for name, data in (("junk", b"junk" * 9999), ("empty", b"")):
        (tmp_path / name).write_bytes(data)
        with pytest.raises(InputError, match="cannot be read as a warehouse"):
            connect(tmp_path / name)
    duckdb.connect(str(tmp_path / "other.duckdb")).close()
    with pytest.raises(InputError, match="cannot be read as a warehouse"):
        connect(tmp_path / "other.duckdb")


def test_an_unknown_sweep_is_answered_with_the_newest(everything: Maker) -> None:
    with pytest.raises(InputError, match="no sweep 'lost'") as caught:
        connect(everything.warehouse, sweep_id="lost")
    assert "20260301T000000-unrun" in str(caught.value.mend)


def test_connections_of_one_process_do_not_disturb_each_other(everything: Maker) -> None:
    with (
        connect(everything.warehouse, sweep_id="20260301T000000-cut") as cut,
        connect(everything.warehouse) as whole,
    ):
        counts = [run_sql(con, "select count(*) from attempts").rows[0][0] for con in (cut, whole)]
    assert counts[0] == 5 < counts[1]


def test_the_published_warehouse_is_the_default(
    maker: Maker, loaded: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_all(maker, maker.sweep([make_suite()], [NOISY]))
    loaded(maker)  # type: ignore[operator]
    monkeypatch.setenv("DYNO_HOME", str(maker.warehouse.parent))
    with connect() as con:
        assert run_sql(con, "select count(*) from attempts").rows == ((4,),)


def test_csv_has_a_header_and_empty_fields_for_null(con: duckdb.DuckDBPyConnection) -> None:
    answer = run_sql(
        con, "select 1 as a, null as b, 'x,\"y\"' as c, [1, null] as d, map {'k': 2} as e"
    )
    assert as_csv(answer) == 'a,b,c,d,e\n1,,"x,""y""","[1, null]","{""k"": 2}"\n'


def test_json_is_valid_whatever_is_asked(con: duckdb.DuckDBPyConnection) -> None:
    sql = (
        "select null as a, 'nan'::double as b, 'inf'::double as c, 1.50::decimal(5, 2) as d,"
        " timestamp '2026-01-02 03:04:05' as e, 2::hugeint as f, '\\x41'::blob as g, interval 1 day as h"
    )
    [row] = json.loads(as_json(run_sql(con, sql)))
    assert row == {
        "a": None, "b": None, "c": None, "d": 1.5, "e": "2026-01-02T03:04:05", "f": 2, "g": "A",
        "h": "1 day, 0:00:00",
    }  # fmt: skip


def test_a_table_fits_the_terminal_and_shows_null(con: duckdb.DuckDBPyConnection) -> None:
    answer = Answer(("name", "figure"), (("x" * 90, None), ("[red]no markup[/red]", 1)))
    text = as_table(answer, 80, colour=False)
    assert max(len(line) for line in text.splitlines()) <= 80
    assert "NULL" in text
    assert "[red]no markup[/red]" in text
    assert "\x1b" not in text
    assert "\x1b" in as_table(answer, 80, colour=True)


def test_table_too_wide_for_the_terminal_becomes_a_block_a_row() -> None:
    names = ("attempt_key", "a", "b", "c", "d", "n")
    answer = Answer(names, (("k" * 64, 1, 2, 3, 4, None),))
    text = as_table(answer, 60, False)
    assert f"attempt_key  {'k' * 47}\n{' ' * 13}{'k' * 17}\n" in text
    assert "n            NULL\n" in text
    assert as_table(answer, 100, False).splitlines()[0].split() == list(names)
