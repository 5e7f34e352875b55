"""The release pipeline as an Airflow DAG: a form, a task for each step, addresses between them.

The tasks hold no logic of their own: what they do is `synth_core.steps`, which the command line runs too.
All that is heavy is imported inside the tasks, so that this file parses in milliseconds.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog
from airflow.sdk import Asset, Context, Param, chain, dag, get_current_context, task
from airflow.sdk.exceptions import AirflowFailException

from synth_core.synthesizers.methods import METHODS

if TYPE_CHECKING:
    from synth_core.privacy.ledger import Runner

log = structlog.get_logger("census_release")

EXTRACT = Asset(name="synthetic_census_extract", uri="synth://census/extract")
"""Updated by every published release; the event says which release and where its manifest is."""

NAME = "[a-z0-9][a-z0-9._-]{0,99}"
MORE = "More settings"

FORM = {
    "dataset": Param(
        "fictional-census",
        type="string",
        pattern=f"^{NAME}$",
        title="Data set",
        description_md="The **ledger account** that pays, declared once with `synth ledger account`.",
    ),
    "source": Param(
        "example/data/people.csv",
        type="string",
        minLength=1,
        title="Source",
        description_md="CSV or Parquet file, or a glob such as `intake/2026/*.parquet`. "
        "A relative path starts at the workspace.",
    ),
    "schema": Param(
        "example/schema.yaml",
        type="string",
        minLength=1,
        title="Schema",
        description_md="The **public** declaration of the columns. Categories and bins come from here, "
        "never from the data.",
    ),
    "method": Param(
        "privmrf",
        type="string",
        enum=list(METHODS),
        title="Method",
        description_md="\n".join(f"- **{name}**: {method.summary}" for name, method in METHODS.items()),
    ),
    "preset": Param(
        "default",
        type="string",
        enum=sorted({preset for method in METHODS.values() for preset in method.presets}),
        title="Preset",
        description_md="The method's named set of constants. Every method has `default`, the recommended one.",
    ),
    "epsilon": Param(
        1.0,
        type="number",
        exclusiveMinimum=0,
        maximum=100,
        title="Privacy loss ε",
        description_md="What this release **spends** from the account. Smaller is more private and less "
        "accurate: below 0.1 is very strict, 0.5 to 2 is usual for an extract, above 8 protects little.",
    ),
    "delta": Param(
        1e-6,
        type="number",
        exclusiveMinimum=0,
        maximum=1e-3,
        title="Failure probability δ",
        description_md="Must be the **account's own δ**, which is fixed for its whole life: "
        "at most 1 / (10 × the largest possible number of records).",
    ),
    "rows": Param(
        None,
        type=["null", "integer"],
        minimum=1,
        maximum=10_000_000_000,
        title="Rows",
        description_md="Number of synthetic records. Leave it **empty** to use the noisy number of records; "
        "a number given here is public.",
    ),
    "shards": Param(
        4,
        type="integer",
        minimum=1,
        maximum=1000,
        title="Shards",
        description_md="Files of the extract; each is sampled by a task of its own, in parallel.",
    ),
    "release": Param(
        None,
        type=["null", "string"],
        pattern=f"^({NAME})?$",
        title="Release name",
        description_md="Leave it **empty** for a new release, named after this run. The name of an earlier "
        "release **resumes** it: stored answers are used again and nothing is spent twice.",
    ),
    "quality_share": Param(
        0,
        type="number",
        minimum=0,
        maximum=0.5,
        title="Share for published quality",
        description_md="Part of ε that buys noisy true errors for the **public** report; 0 buys none.",
        section=MORE,
    ),
    "unit": Param(
        "person",
        type="string",
        minLength=1,
        title="Unit of privacy",
        description_md="Whom one record belongs to, as the account declares it.",
        section=MORE,
    ),
    "seed": Param(
        0,
        type="integer",
        minimum=0,
        maximum=2**53 - 1,  # the largest integer that a browser keeps exactly
        title="Sampling seed",
        description_md="Seed of the row sampler, which is post-processing. **Privacy noise has no seed.**",
        section=MORE,
    ),
    "options": Param(
        None,
        type=["null", "object"],
        title="Options",
        description_md="Overrides of the preset's constants, as JSON.",
        section=MORE,
    ),
    "workspace": Param(
        None,
        type=["null", "string"],
        title="Workspace",
        description_md="Folder with the zones `confidential/` and `public/`. "
        "Leave it empty for the server's own (`SYNTH_WORKSPACE`).",
        section=MORE,
    ),
}


def release_name(dataset: str, run_id: str) -> str:
    """A name that belongs to this run alone and stays the same when its tasks are retried or cleared."""
    return f"{dataset}-{re.sub(r'[^a-z0-9.]+', '-', run_id.lower())}"[-100:].strip("-.")


def release_spec(params: Mapping[str, Any], *, run_id: str) -> tuple[dict[str, Any], str]:
    """What the form asks for as a release spec, and the workspace to run it in."""
    from synth_core.errors import SpecError

    spec = {key: value for key, value in params.items() if value not in (None, "")}
    workspace = spec.pop("workspace", None) or os.environ.get("SYNTH_WORKSPACE")
    if not workspace:
        raise SpecError("no workspace: set SYNTH_WORKSPACE for Airflow, or name a folder in the form")
    for key in ("source", "schema"):
        if "://" not in spec[key]:
            spec[key] = os.path.join(workspace, spec[key])  # noqa: PTH118 — a glob is not a path
    spec.setdefault("release", release_name(spec["dataset"], run_id))
    return spec, workspace


@contextmanager
def refusals_are_final() -> Iterator[None]:
    """Fail at once with the refusal's own line: asking again would not change it, and might spend more.

    A lost cluster comes back, so that failure alone is left to the task's retries.
    """
    from synth_core.errors import ClusterError, SynthError

    try:
        yield
    except ClusterError:
        raise
    except SynthError as refusal:
        raise AirflowFailException(str(refusal)) from None


def run_step(name: str) -> str:
    """Run one step of this run's release and return the address of what it wrote."""
    from synth_core import steps

    context = get_current_context()
    address, who = release_address(context), runner(context)
    with refusals_are_final():
        return steps.run_step(name, address, cluster=cluster(), runner=who, progress=log.info)


def release_address(context: Context) -> str:
    """Address of this run's release, as `prepare` returned it."""
    return context["ti"].xcom_pull(task_ids="prepare")


def cluster() -> str | None:
    """Address of the Dask scheduler; without one the steps use threads of the task's own process."""
    return os.environ.get("SYNTH_DASK_ADDRESS") or None


def runner(context: Context) -> Runner:
    """Who runs the step, for the ledger's records."""
    from synth_core.privacy.ledger import Runner

    instance = context["ti"]
    return Runner(
        dag=instance.dag_id,
        run=instance.run_id,
        task=instance.task_id,
        map_index=-1 if instance.map_index is None else instance.map_index,
        attempt=instance.try_number,
        actor=context["dag_run"].triggering_user_name or "",
    )


def give_back(context: Context) -> None:
    """After a final failure: free what the release had set aside and not spent. Charges stay."""
    from synth_core import steps

    if address := release_address(context):
        steps.cancel(address, reason=f"task {context['ti'].task_id} failed", runner=runner(context))


@dag(
    dag_id="census_release",
    dag_display_name="Census release",
    description="Publish a differentially private synthetic extract of a confidential table",
    doc_md=__doc__,
    schedule=None,
    catchup=False,
    is_paused_upon_creation=True,
    max_active_runs=4,
    params=FORM,
    tags=["census", "privacy", "release"],
    default_args={
        "owner": "statistics",
        "retries": 3,
        "retry_delay": timedelta(seconds=10),
        "retry_exponential_backoff": 2.0,
        "max_retry_delay": timedelta(minutes=5),
        "on_failure_callback": give_back,
    },
)
def census_release() -> None:
    """Seven steps from a confidential table to a published extract."""

    @task
    def prepare() -> str:
        """Check spec, schema, method and feasibility without reading data, and set the budget aside."""
        from synth_core import steps

        context = get_current_context()
        with refusals_are_final():
            spec, workspace = release_spec(context["params"], run_id=context["ti"].run_id)
            return steps.prepare(spec, workspace=Path(workspace), runner=runner(context))

    @task
    def ingest() -> str:
        """Encode the source by its schema into the confidential zone."""
        return run_step("ingest")

    @task
    def score() -> str:
        """Ask the curator, with noise, how strongly the attributes depend on each other."""
        return run_step("score")

    @task
    def select() -> str:
        """Choose the model's structure from the noisy scores."""
        return run_step("select")

    @task
    def fit() -> str:
        """Measure the chosen marginals with noise and fit the model to them."""
        return run_step("fit")

    @task
    def shards() -> list[int]:
        """List the shards of the extract, for one sampling task each."""
        from synth_core import steps

        return steps.shards(release_address(get_current_context()))

    @task(map_index_template="{{ shard_name }}", doc_md="Draw one shard from the model; spends nothing.")
    def sample(shard: int) -> str:
        """Draw one shard of synthetic records from the model."""
        from synth_core import steps

        context = get_current_context()
        context["shard_name"] = f"shard {shard}"
        with refusals_are_final():
            address = release_address(context)
            return steps.sample_shard(address, shard, cluster=cluster(), runner=runner(context))

    @task
    def evaluate() -> str:
        """Compare the extract with the confidential table, for the internal report."""
        return run_step("evaluate")

    @task(outlets=[EXTRACT])
    def publish() -> str:
        """Publish the extract with its manifest, if ledger, manifest and files agree."""
        context = get_current_context()
        manifest = run_step("publish")
        context["outlet_events"][EXTRACT].extra = {
            "release": Path(manifest).parent.name,
            "manifest": manifest,
        }
        return manifest

    parts = shards()
    chain(prepare(), ingest(), score(), select(), fit(), parts)
    chain(sample.expand(shard=parts), evaluate(), publish())


census_release()
