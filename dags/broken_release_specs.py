"""Shows specs of the folder SYNTH_RELEASES that cannot run as an import error; it has no DAG of its own."""

from synth_airflow.series import refuse_broken_specs

refuse_broken_specs()
