"""Releases in Airflow: the DAGs, their operators and gate, schedules, listeners, and the pages of the budget."""

from __future__ import annotations

from typing import Any

RELEASE_TAG = "privacy"
"""Tag of the DAGs that release data; other DAGs are left alone."""


def is_release(owner: Any) -> bool:
    """Returns whether the DAG of a task or of a run releases data."""
    dag = getattr(owner, "dag", None)
    return RELEASE_TAG in (getattr(dag, "tags", None) or ())
