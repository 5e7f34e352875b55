"""Releases in Airflow: the DAGs, their operators and gate, schedules, listeners, and the pages of the budget."""
