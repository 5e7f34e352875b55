"""What all tests share: the reference data, quiet libraries, and nothing of the caller's own settings."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

REPOSITORY = Path(__file__).resolve().parents[1]
REFERENCE_DATA = REPOSITORY.parent / "shared" / "data"

os.environ["MPLBACKEND"] = "Agg"
for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")  # two test workers share the cores; more threads only get in their way
for name in [name for name in os.environ if name.startswith(("SYNTH_", "AIRFLOW_"))]:
    del os.environ[name]  # a test never touches the caller's workspace, ledger, cluster or Airflow home

# A loaded machine is slow, which is no fault of the code: laws are judged by their outcome, not by a clock.
settings.register_profile("laws", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("laws")


@pytest.fixture(scope="session")
def reference_data() -> Path:
    """Folder of the reference tables (nltcs, adult, ...), which live beside the repository."""
    if not REFERENCE_DATA.is_dir():
        pytest.skip(f"the reference tables are not at {REFERENCE_DATA.name}/ beside the repository")
    return REFERENCE_DATA
