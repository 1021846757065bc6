#!/bin/sh
# Makes .venv and installs kube32 into it. Usage: scripts/venv.sh EXTRA...   (extras of pyproject.toml: demo, test)
set -eu
cd "$(dirname "$0")/.."

fits() { "$1" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }

find_python() {
    for candidate in ${PYTHON:-} python3 python3.14 python3.13 python3.12 python3.11; do
        if command -v "$candidate" >/dev/null 2>&1 && fits "$candidate"; then
            command -v "$candidate"
            return 0
        fi
    done
    return 1
}

if [ ! -x .venv/bin/python ] || ! .venv/bin/python -c '' 2>/dev/null; then
    if ! python=$(find_python); then
        if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
            echo "installing python3 and python3-venv from Debian"
            apt-get update -qq
            DEBIAN_FRONTEND=noninteractive apt-get install -y -qq python3 python3-venv >/dev/null
        fi
        python=$(find_python) || {
            echo "Kube32 needs Python 3.11 or newer with venv. Install it (Debian, Ubuntu: apt install python3 python3-venv; macOS: brew install python3) and run make again." >&2
            exit 2
        }
    fi
    rm -rf .venv
    "$python" -m venv .venv
fi

extras=$(echo "$*" | tr ' ' ',')
.venv/bin/python -m pip install --quiet --disable-pip-version-check -e ".${extras:+[$extras]}"
