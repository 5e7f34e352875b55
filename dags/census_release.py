"""The release form: a DAG that a person triggers, with a field for everything a release spec can say."""

from synth_airflow.form import release_form

census_release = release_form()
