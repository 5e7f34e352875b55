"""Part of `make check`: every DAG file imports, in an Airflow home that is thrown away."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from infra.local.site import REPOSITORY, Site


def main() -> int:
    """Parse dags/ as Airflow does and show what went wrong."""
    with tempfile.TemporaryDirectory() as scratch:
        site = Site(home=Path(scratch) / "airflow", workspace=Path(scratch) / "workspace")
        os.environ.update(site.environment(port=0))
        from airflow.dag_processing.dagbag import BundleDagBag  # Airflow reads the environment when imported

        bag = BundleDagBag(REPOSITORY / "dags", bundle_path=REPOSITORY / "dags", bundle_name="dags-folder")
    for file, error in bag.import_errors.items():
        sys.stderr.write(f"{file}:\n{error}\n")
    sys.stdout.write(f"DAGs that import: {', '.join(sorted(bag.dags)) or 'none'}\n")
    return 1 if bag.import_errors or not bag.dags else 0


if __name__ == "__main__":
    sys.exit(main())
