#!/bin/sh
# Run the suite with every interpreter from 3.11 on that is found, each in an environment of its own.
set -eu
found=${PYTHONS:-}
if [ -z "$found" ]; then
    for version in 3.11 3.12 3.13 3.14; do
        # A name may be on the path without being usable (version managers do that).
        if "python$version" -c "" 2>/dev/null; then found="$found python$version"; fi
    done
fi
[ -n "$found" ] || { echo "no Python from 3.11 on was found; name them: PYTHONS=..."; exit 1; }
for python in $found; do
    version=$("$python" -c "import sys; print('%d.%d' % sys.version_info[:2])")
    venv=.venv-py$version
    echo "== Python $version"
    "$python" -m venv "$venv"
    "$venv/bin/python" -m pip --disable-pip-version-check --quiet install \
        --constraint constraints.txt --editable '.[dev]'
    env $ONE_THREAD "$venv/bin/python" -m pytest -q -n "$JOBS" -m 'not network'
done
