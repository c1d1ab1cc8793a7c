# The steps of `.ci/run` beside the README's test command: one function each, callable by name (`.ci/run lowest docs`).
# What this machine cannot do is skipped, and the reason printed; nothing else is.

ROOT=$PWD
PYTHON=${PYTHON:-$ROOT/.venv/bin/python}  # the environment of the README's test command
SCRATCH=$(mktemp -d "${TMPDIR:-/tmp}/hbench-ci.XXXXXX")
trap 'rm -rf "$SCRATCH"' EXIT

skipped() { printf 'SKIPPED %s: %s\n' "$1" "$2"; }
has_flag() { grep -qw -- "$1" /proc/cpuinfo 2>/dev/null; }

# tools: an environment beside the tests', for uv and for what checks packages and builds pages.
tools() {
    [ -x "$SCRATCH/tools/bin/uv" ] && return
    "$PYTHON" -m venv "$SCRATCH/tools"
    "$SCRATCH/tools/bin/pip" install -q uv
}
uv() { tools && "$SCRATCH/tools/bin/uv" -q "$@"; }

# ---------------------------------------------------------------- the code as it is written

lint() {
    "$PYTHON" -m ruff check .
    "$PYTHON" -m ruff format --check .
    "$PYTHON" -m mypy
    scripts
}

# scripts: the scripts and styles of pages, as `make format` writes them.
PRETTIER=prettier@3.6.2
scripts() {
    command -v npx >/dev/null || { skipped "scripts" "no npx here"; return 0; }
    git ls-files -z '*.js' '*.css' | xargs -0 npx --yes "$PRETTIER" --check --log-level warn
}

# site: the documentation as pages; a warning, as of a link that leads nowhere, is an error.
site() { NO_MKDOCS_2_WARNING=1 PYTHONPATH=$ROOT:$ROOT/pipelines "$PYTHON" -m mkdocs build --strict --site-dir "$SCRATCH/site"; }

# gallery: every command of docs/gallery.md, with trainings of two steps, draws a picture of the name and size that is kept.
gallery() { PYTHONPATH=$ROOT:$ROOT/pipelines "$PYTHON" docs/pictures/gallery.py --check >/dev/null; }

# ---------------------------------------------------------------- the same numbers on every processor

# Tests of values alone, without those that compile for other processors themselves or take long.
NUMERIC=(tests/metrics/test_metrics.py tests/metrics/test_name_columns.py tests/losses/test_golden.py tests/losses/test_rank_sums.py
         tests/engine/test_ranking.py tests/engine/test_radix_sort.py tests/engine/test_symmetric.py tests/evaluation/test_evaluation.py)
NOT_HERE='not just_compiled and not order_of_a_batch and not processor_without and not free_vectors and not command_line'

# Those of numpy's products alone: on a processor of this make nothing but OpenBLAS's kernel is another.
OF_PRODUCTS=(tests/engine/test_ranking.py tests/engine/test_symmetric.py tests/evaluation/test_evaluation.py)

# numeric NAME VARIABLE=VALUE…: the tests of `numbers`, under an environment, in a cache of their own.
numeric() {
    local name=$1
    shift
    printf '+ numeric tests: %s\n' "$name"
    env HBENCH_CACHE="$SCRATCH/cache" "$@" "$PYTHON" -m pytest -q -p no:cacheprovider "${numbers[@]}" -k "$NOT_HERE"
}

# openblas KERNEL FLAG VARIABLE=VALUE…: as on a processor whose OpenBLAS kernel is KERNEL; it needs the instructions FLAG.
openblas() {
    local kernel=$1 flag=$2 used
    shift 2
    has_flag "$flag" || { skipped "OPENBLAS_CORETYPE=$kernel" "this processor has no $flag"; return 0; }
    used=$(OPENBLAS_CORETYPE=$kernel "$PYTHON" -c 'import numpy, threadpoolctl
print(*{each.get("architecture") for each in threadpoolctl.threadpool_info()})')
    [[ ${used,,} == *"${kernel,,}"* ]] || { skipped "OPENBLAS_CORETYPE=$kernel" "numpy's OpenBLAS takes $used instead"; return 0; }
    numeric "OPENBLAS_CORETYPE=$kernel $*" OPENBLAS_CORETYPE="$kernel" "$@"
}

# processors: numpy, torch and compiled code each as on other processors; they do not meet, so one run tries all three.
processors() {
    local numbers=("${NUMERIC[@]}")
    local haswell=+sse3,+ssse3,+sse4.1,+sse4.2,+popcnt,+cx16,+movbe,+avx,+avx2,+fma,+f16c,+bmi,+bmi2,+lzcnt
    openblas Nehalem sse4_2 ATEN_CPU_CAPABILITY=default NUMBA_CPU_NAME=generic \
        NUMBA_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1
    openblas Haswell avx2 ATEN_CPU_CAPABILITY=avx2 NUMBA_CPU_NAME=haswell NUMBA_CPU_FEATURES=$haswell \
        NUMBA_NUM_THREADS=2 OPENBLAS_NUM_THREADS=2 OMP_NUM_THREADS=2
    numbers=("${OF_PRODUCTS[@]}")
    openblas Zen avx2
    openblas SkylakeX avx512f
}

# ---------------------------------------------------------------- the same behaviour in every environment

# smoke ENVIRONMENT [PYTEST OPTIONS]: what a user does first, with what is installed there, outside of the checkout.
smoke() {
    local environment=$1 folder
    shift
    folder=$(mktemp -d "$SCRATCH/smoke.XXXXXX")
    cp tests/test_packaging_smoke.py "$folder"
    (cd "$folder" && PYTHONPATH='' "$environment/bin/python" -m pytest -q -p no:cacheprovider --timeout=300 "$@" .)
}

# environment NAME PYTHON REQUIREMENT…: a fresh environment with these, and pytest.
environment() {
    local name=$1 python=$2
    shift 2
    uv venv --clear --python "$python" "$SCRATCH/$name"
    VIRTUAL_ENV="$SCRATCH/$name" uv pip install "$@" pytest pytest-timeout
}

# source_of NAME: a folder with the tracked files, for one package to be built in. Two builds in one folder fail: both write
# its build/, and pip builds in the checkout while these steps run.
source_of() {
    mkdir "$SCRATCH/source-$1"
    git ls-files -z | tar -c --null -T - | tar -x -C "$SCRATCH/source-$1"
    echo "$SCRATCH/source-$1"
}

# lowest: the lowest versions that pyproject allows.
lowest() {
    uv pip compile --resolution lowest-direct --extra look --no-annotate --no-header pyproject.toml -o "$SCRATCH/lowest.txt"
    environment lowest "$PYTHON" -r "$SCRATCH/lowest.txt"
    VIRTUAL_ENV="$SCRATCH/lowest" uv pip install --no-deps "$(source_of lowest)"
    cat "$SCRATCH/lowest.txt"
    smoke "$SCRATCH/lowest"
}

# core: without any extra. A verb whose extra is missing says so.
core() {
    environment core "$PYTHON" "$(source_of core)"
    printf 'core: %s MB\n' "$(du -sm "$SCRATCH/core" | cut -f1)"
    smoke "$SCRATCH/core"
}

# interpreter VERSION: where one is, on PATH or among pyenv's.
interpreter() {
    local each
    for each in "python$1" "${PYENV_ROOT:-$HOME/.pyenv}/versions/$1".*/bin/python; do
        "$each" -c '' 2>/dev/null && { command -v "$each"; return; }
    done
    return 1
}

# interpreters: every other Python that is installed here, with `look`.
interpreters() {
    local version python own
    own=$("$PYTHON" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    for version in 3.11 3.12 3.13 3.14; do
        [ "$version" = "$own" ] && continue
        python=$(interpreter "$version") || { skipped "Python $version" "no such interpreter is installed here"; continue; }
        printf '+ Python %s\n' "$version"
        environment "python$version" "$python" "$(source_of "python$version")[look]"
        smoke "$SCRATCH/python$version"
    done
}

# stranger: the way of somebody who has just heard of hbench, timed: clone, install, demo, own pictures, training, pages.
# The net begins from random weights, so that nothing but packages is fetched.
stranger() (
    local hbench="$SCRATCH/stranger/bin/hbench" python="$SCRATCH/stranger/bin/python" began=$SECONDS
    timed() { printf 'stranger: %3d s  %s\n' "$((SECONDS - began))" "$1" && began=$SECONDS; }
    git clone -q --depth 1 "file://$ROOT" "$SCRATCH/clone"
    timed "clone"
    uv venv --clear --python "$PYTHON" "$SCRATCH/stranger"
    VIRTUAL_ENV="$SCRATCH/stranger" uv pip install "$SCRATCH/clone[train]"
    timed "install [train], $(du -sm "$SCRATCH/stranger" | cut -f1) MB"
    mkdir "$SCRATCH/home" && cd "$SCRATCH/home"
    export HBENCH_HOME=$SCRATCH/home/hbench PYTHONPATH=
    "$hbench" -q demo >/dev/null
    timed "demo"
    sed -n '/^```python$/,/^```$/p' "$SCRATCH/clone/docs/own-pictures.md" | sed '/^```/d' | "$python" -
    "$hbench" -q build letters --from pictures --levels script,case,letter --split-by letter >/dev/null
    timed "dataset of own pictures"
    "$hbench" -q train own-data --set dataset=letters --set model.backbone=torchvision:resnet18 --set model.weights=random \
        --set epochs=2 --out runs/letters >/dev/null
    timed "training of two epochs"
    "$hbench" -q evaluate runs/letters/test.parquet --dataset letters --top-k 10 -o after.json >/dev/null
    timed "scores"
    "$hbench" -q report after.json --embeddings runs/letters/test.parquet -o pages >/dev/null
    timed "pages"
    ls "$SCRATCH/home/pages/index.html" "$SCRATCH/home/hbench-demo/pages/index.html"
)

# trackers: a training handed to the real W&B, without a server. It brings many packages, so it has an environment of its own,
# on top of the tests'.
trackers() {
    uv venv --clear --python "$PYTHON" "$SCRATCH/trackers"
    VIRTUAL_ENV="$SCRATCH/trackers" uv pip install wandb ||
        { skipped trackers "no W&B can be installed here"; return 0; }
    "$PYTHON" -c 'import sysconfig; print(sysconfig.get_path("purelib"))' \
        >"$(echo "$SCRATCH"/trackers/lib/python3*/site-packages)/tests.pth"
    (cd "$SCRATCH" && PYTHONPATH=$ROOT:$ROOT/pipelines WANDB_MODE=offline \
        "$SCRATCH/trackers/bin/python" -m hbench -q train glyphs-happier \
        --set epochs=1 --set steps_per_epoch=2 --set images.workers=0 --set log_every=1 --track wandb --out tracked)
    ls "$SCRATCH"/tracked/wandb/offline-run-*/*.wandb
}

# ---------------------------------------------------------------- the package

# package: sdist and wheel are built and checked; the wheel is used outside of the checkout, and quick tests of the sdist run.
# They stay in dist/. pyroma's last two points are for an address and a home page, which the owner adds before publishing.
package() {
    local source
    uv pip install --python "$SCRATCH/tools/bin/python" build twine check-wheel-contents pyroma setuptools
    rm -rf dist
    "$SCRATCH/tools/bin/python" -m build --outdir dist . >/dev/null
    "$SCRATCH/tools/bin/twine" check --strict dist/*
    "$SCRATCH/tools/bin/check-wheel-contents" dist/*.whl
    "$SCRATCH/tools/bin/pyroma" -n 8 dist/*.tar.gz
    environment wheel "$PYTHON" "$(echo "$ROOT"/dist/*.whl)[look]"
    smoke "$SCRATCH/wheel"
    tar xzf dist/*.tar.gz -C "$SCRATCH"
    source=$(echo "$SCRATCH"/hbench-*/)
    (cd "$source" && PYTHONPATH=$source "$PYTHON" -m pytest -q -p no:cacheprovider -m fast tests/core tests/tree tests/metrics)
}
