# `make sweep` and `make test`: the two commands of the README. Both make the environment first.
.PHONY: sweep test venv bench lock

PYTHON ?= python3
DYNO = .venv/bin/dyno

sweep: venv
	@$(DYNO) sweep smoke

test: venv
	@.venv/bin/ruff check .
	@.venv/bin/ruff format --check .
	@.venv/bin/mypy
	@.venv/bin/pytest -q -n auto --dist loadfile

bench: venv
	@.venv/bin/pytest -q tests/bench --benchmark-enable --benchmark-only

venv:
	@$(PYTHON) scripts/environment.py

# After a change of pyproject.toml: resolves anew, with hashes and without any registry's name.
lock: venv
	@.venv/bin/pip install -q uv
	@.venv/bin/uv pip compile pyproject.toml --group dev --generate-hashes --universal --python-version 3.11 --no-emit-index-url --no-header -q -o requirements.lock
