#!/bin/sh
# Brings both databases up to date and creates the administrator; safe to run again.
set -eu
airflow db migrate
if ! airflow users list --output plain | grep -qw "$ADMIN_USER"; then
    airflow users create --role Admin --username "$ADMIN_USER" --email "$ADMIN_EMAIL" \
        --firstname Privacy --lastname Office --password "$(cat /run/secrets/admin_password)"
fi
synth ledger show --workspace /workspace
