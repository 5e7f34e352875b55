"""One DAG for each spec in the folder SYNTH_RELEASES: it releases when the spec's schedule says."""

from synth_airflow.series import scheduled_dags

globals().update(scheduled_dags())
