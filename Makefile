# Everything assumes the README's test command has made .venv.
PYTHON := .venv/bin/python

.PHONY: check lint test fast demo bench site fuzz format release
check:            ## all that CI does beside the tests (a quarter of an hour; `.ci/run site gallery` runs some of it)
	.ci/run steps

lint:             ## ruff, mypy, and the format of scripts
	.ci/run lint

test:             ## the whole suite
	$(PYTHON) -m pytest

demo:             ## the embedded benchmark, end to end
	.venv/bin/hbench demo

bench:            ## measure what docs/scale.md says, and write its tables (half an hour); QUICK=1 only tries it
	$(PYTHON) benchmarks/tables.py $(if $(QUICK),--quick)

site:             ## site/: the documentation as pages; index.html opens from the disk (installs what it needs first)
	test -x $(PYTHON) || python3 -m venv $(dir $(PYTHON))..
	$(PYTHON) -c "import mkdocs, material, mkdocstrings, torch, hbench" 2>/dev/null || $(PYTHON) -m pip install -q -e '.[all,docs]'
	NO_MKDOCS_2_WARNING=1 PYTHONPATH=.:pipelines $(PYTHON) -m mkdocs build --strict

fuzz:               ## damaged files of every format, ROUNDS=20000 of each from SEED=1; see SECURITY.md
	$(PYTHON) -m tests.hostile.campaign $(or $(ROUNDS),20000) $(or $(SEED),1)

fast:             ## the quick tests of every wing, in two minutes on two cores
	$(PYTHON) -m pytest -n 2 --dist loadfile $$(git grep -l pytest.mark.fast -- tests)

format:           ## Python by ruff, scripts and styles of pages by prettier (needs npx)
	.venv/bin/ruff format . && .venv/bin/ruff check --fix .
	git ls-files -z '*.js' '*.css' | xargs -0 npx --yes prettier@3.6.2 --write --log-level warn

release:          ## dist/: sdist and wheel, built and verified; publishing is the owner's (docs/releasing.md)
	.ci/run package
