"""Shows specs of the folder SYNTH_RELEASES that cannot run as an import error of Airflow; it has no DAG of its own."""

from __future__ import annotations

from release_pipeline.series import declared

if broken := declared()[1]:
    raise ImportError("release specs that are not scheduled until they are mended:\n" + "\n".join(broken))
