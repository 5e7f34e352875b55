#!/bin/sh
# Draws every secret that compose.yaml needs into secrets/, once; what is there already stays.
set -eu
cd "$(dirname "$0")"
umask 077
mkdir -p secrets
random() { python3 -c 'import secrets; print(secrets.token_urlsafe(32), end="")'; }
keep() {
    if [ ! -e "secrets/$1" ]; then
        printf '%s' "$2" >"secrets/$1"
    fi
}
keep postgres_password "$(random)"
keep admin_password "$(random)"
keep session_key "$(random)"
keep jwt_secret "$(random)"
keep fernet_key "$(python3 -c 'import base64, secrets; print(base64.urlsafe_b64encode(secrets.token_bytes(32)).decode(), end="")')"
keep grafana_password "$(random)"
password=$(cat secrets/postgres_password)
keep airflow_database "postgresql+psycopg2://synth:$password@postgres/airflow"
keep ledger_url "postgresql+psycopg2://synth:$password@postgres/ledger"
chmod 0644 secrets/*  # read inside the containers by user 50000; the folder itself is closed
