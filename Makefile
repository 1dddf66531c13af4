# make demo, make test, make test-all: each does all its set-up itself, into .venv. Killed at any moment, the next call goes on.
VENV ?= .venv
BIN := $(VENV)/bin
# The interpreter behind an activated environment: that of .venv cannot make .venv anew.
PYTHON ?= $(shell for python in python3.13 python3.12 python3.11 python3; do \
	$$python -c 'import sys; sys.version_info < (3, 11) and sys.exit(1); print(sys._base_executable)' 2>/dev/null && break; \
	done)
# A killed make takes what it started along: leftovers would write beside the next run.
TIED := exec $(shell command -v setpriv >/dev/null && echo setpriv --pdeathsig KILL --)
WORKERS ?= 2
SLURM_FAULTS := tests/system/slurm/test_slurm_faults.py
# Debian's packages of a whole cluster.
SLURM := slurmctld slurmd slurm-client slurm-wlm-basic-plugins munge
export PATH := $(abspath $(BIN)):$(PATH)
# Tests start hundreds of processes: bytecode is kept whatever the shell says, or each would compile all of MGG anew.
test test-all test-slurm test-faults test-gpu: export PYTHONDONTWRITEBYTECODE :=

.PHONY: help demo test test-all test-slurm slurm-packages test-faults test-gpu lint docs dist audit kernels schema constraints clean \
	distclean runtime-environment dev-environment docs-environment kernels-environment gpu-environment gpu

help:
	@echo "make demo         set up, then take small graphs through every stage: results/report/index.html"
	@echo "make test         set up, then run the quick tests (WORKERS=2 at once): minutes"
	@echo "make test-all     set up, then run all tests that need no GPU and no Slurm cluster"
	@echo "make test-slurm   set up, then run the workflow on a Slurm cluster of this machine (root; apt-get install $(SLURM))"
	@echo "make test-faults  set up, then break off the workflow in every way we know, 158 times (root for some)"
	@echo "make test-gpu     set up with the packages for GPUs, then run the tests that need GPUs; error 3 without one"
	@echo "make lint         set up, then run every linter"
	@echo "make docs         set up, then build the documentation site into build/site, links checked"
	@echo "make dist         build wheel and sdist into dist, and try each in a bare environment"
	@echo "make audit        ask PyPI for known vulnerabilities of the versions in constraints.txt"
	@echo "make kernels      set up with nvcc, then compile every CUDA kernel for all architectures (needs g++, no GPU)"
	@echo "make schema       write workflow/schemas/config.schema.yaml anew from mgg/config.py"
	@echo "make constraints  resolve constraints.txt anew from pyproject.toml"
	@echo "make clean        remove results and caches;  make distclean: the environment too"

demo: runtime-environment
	@$(TIED) snakemake --profile profiles/local

# Every module and every way of running something, few cases of each; CONTRIBUTING.md, Tests.
test: dev-environment
	@$(TIED) pytest -n $(WORKERS) --dist worksteal -m "not slow or sentinel"

test-all: dev-environment
	@$(TIED) pytest -n $(WORKERS) --dist worksteal --took .pytest_cache/took.json

# One test at a time: the cluster has the machine to itself. First the workflow, then what breaks it.
test-slurm: dev-environment
	@$(TIED) pytest tests/system/slurm --ignore=$(SLURM_FAULTS)
	@$(TIED) pytest $(SLURM_FAULTS)

# For .ci/run.
slurm-packages:
	@echo $(SLURM)

# All faults; make test-all and make test-slurm have a short form of them. What was measured, as a table.
test-faults: dev-environment
	@rm -f faults.jsonl
	@FAULTS=full FAULTS_RECORD=$(abspath faults.jsonl) $(TIED) pytest tests/system/fault $(SLURM_FAULTS)
	@PYTHONPATH=tests python -m support.workflow.faults faults.jsonl

# One test at a time: each takes all the GPUs it wants.
test-gpu: gpu-environment
	@$(TIED) pytest -m gpu tests/gpu

lint: dev-environment
	ruff check .
	ruff format --check .
	mypy
	lint-imports
	clang-format --dry-run --Werror $(wildcard kernels/*/*.cu kernels/include/mgg/*.cuh)
	snakefmt --check Snakefile workflow
	snakemake --lint
	pre-commit validate-config
	codespell --dictionary - --dictionary tools/prose.txt --regex "\\b(?:$$(sed 's/->.*//' tools/prose.txt | paste -sd '|'))\\b|[\\w'-]+" \
		*.md docs config examples mgg
	bandit --quiet --severity-level medium --configfile pyproject.toml --recursive mgg tools benchmarks

docs: docs-environment
	NO_MKDOCS_2_WARNING=1 mkdocs build --strict --quiet

dist:
	@$(PYTHON) tools/dist.py

audit:
	@$(PYTHON) tools/audit.py $(VENV).audit

kernels: kernels-environment
	@$(TIED) python -m mgg.kernel.compile

schema: dev-environment
	python workflow/schemas/generate.py

# uv resolves for all Python versions at once, as pip cannot; pyproject.toml, [tool.uv], says for which platform. Not gpu-cuda12:
# one version of cuda-bindings cannot be for CUDA 12 and 13.
constraints: dev-environment
	sed -n '/^#/p' constraints.txt > constraints.part
	python -m venv $(VENV).uv
	$(VENV).uv/bin/pip install --quiet uv
	$(VENV).uv/bin/uv pip compile --quiet --universal --python-version 3.11 \
		$(addprefix --extra ,counters dev docs gpu kernels networkx ogb tensorboard torch) --no-header --no-annotate \
		--no-emit-index-url --no-emit-find-links pyproject.toml | \
		sed -E -e "s/ and implementation_name.*//" -e "s/ (;|and) python_full_version < '3\.14'//" >> constraints.part
	mv constraints.part constraints.txt
	rm -rf $(VENV).uv

clean:
	rm -rf results .snakemake .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache build dist
	find . -name __pycache__ -not -path "./$(VENV)/*" -prune -exec rm -rf {} +

distclean: clean
	rm -rf $(VENV) $(VENV).lock $(VENV).uv $(VENV).audit

# Continuous integration leaves no test out: some need PyTorch, OGB or tensorboardX. It begins with the kernels, and installs once.
dev-environment: EXTRAS := dev $(if $(CI),torch ogb tensorboard docs)
kernels-environment: EXTRAS := kernels $(if $(CI),dev torch ogb tensorboard docs)
docs-environment: EXTRAS := docs
gpu-environment: EXTRAS := dev gpu $(if $(CI),torch)
gpu-environment: gpu

runtime-environment dev-environment docs-environment kernels-environment gpu-environment:
	@test -n "$(PYTHON)" || { echo "error: MGG needs Python 3.11 or newer (python3.13, python3.12, python3.11 or python3)"; exit 1; }
	@$(TIED) $(PYTHON) tools/venv.py $(VENV) $(EXTRAS)

gpu:
	@$(PYTHON) tools/gpus.py
