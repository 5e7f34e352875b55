#!/bin/sh
# Settings whose names end in _FILE are read from that file, so that a secret is no part of the environment of a container.
set -eu
for name in SYNTH_LEDGER_URL SYNTH_NOTIFY_WEBHOOK; do
    eval "file=\${${name}_FILE:-}"
    if [ -n "$file" ]; then
        value=$(cat "$file")
        export "$name=$value"
        unset "${name}_FILE"
    fi
done
exec "$@"
