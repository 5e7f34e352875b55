"""The release form: a DAG that a person triggers, with a field for everything a release spec can say."""

from __future__ import annotations

from airflow.sdk import DAG, Param

from synth_airflow.pipeline import DEADLINE_HOURS, DEFAULTS, TAGS, deadline, release_tasks
from synth_core.synthesizers.methods import METHODS

NAME = "[a-z0-9][a-z0-9._-]{0,99}"
OUTPUT = "Output"
GUARD = "Quality and approval"
EXPERT = "For experts"


def release_form() -> DAG:
    """Returns the DAG `census_release`, which runs when a person has filled in its form."""
    with DAG(
        "census_release",
        dag_display_name="Census release",
        description="Publish a differentially private synthetic extract of a confidential table",
        doc_md=__doc__,
        schedule=None,
        catchup=False,
        is_paused_upon_creation=True,
        max_active_runs=4,
        params=form_fields(),
        tags=TAGS,
        default_args=DEFAULTS,
        deadline=deadline(DEADLINE_HOURS),
    ) as made:
        release_tasks(strata=True)
    return made


def form_fields() -> dict[str, Param]:
    """Returns the fields of the form, made anew: a run in this process changes the values of its DAG's."""
    return {
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
            examples=["example/data/people.csv", "intake/2026/*.parquet"],
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
        "release": Param(
            None,
            type=["null", "string"],
            pattern=f"^({NAME})?$",
            title="Release name",
            description_md="Leave it **empty** for a new release, named after this run. The name of an earlier "
            "release **resumes** it: stored answers are used again and nothing is spent twice.",
        ),
        "dry_run": Param(
            False,
            type="boolean",
            title="Dry run",
            description_md="Only **show the cost**: what the release would spend, how that is shared, what would be "
            "left. Nothing is set aside or read. The answer is in the log of the task *prepare*.",
        ),
        "strata": Param(
            None,
            type=["null", "string"],
            examples=["region", "district within state"],
            title="Strata",
            description_md="A categorical column, for **one model each of its values**: they are fitted in parallel, "
            "and together they cost what the dearest of them costs. **district within state** also keeps districts "
            "consistent with their state. Leave it **empty** for one model of all records.",
        ),
        "rows": Param(
            None,
            type=["null", "integer"],
            minimum=1,
            maximum=10_000_000_000,
            title="Rows",
            description_md="Number of synthetic records. Leave it **empty** to use the noisy number of records; "
            "a number given here is public.",
            section=OUTPUT,
        ),
        "shards": Param(
            4,
            type="integer",
            minimum=1,
            maximum=1000,
            title="Shards",
            description_md="Files of the extract; each is sampled by a task of its own, in parallel.",
            section=OUTPUT,
        ),
        "seed": Param(
            0,
            type="integer",
            minimum=0,
            maximum=2**53 - 1,  # the largest integer that a browser keeps exactly
            title="Sampling seed",
            description_md="Seed of the row sampler, which is post-processing. **Privacy noise has no seed.**",
            section=OUTPUT,
        ),
        "quality_share": Param(
            0,
            type="number",
            minimum=0,
            maximum=0.5,
            title="Share for published quality",
            description_md="Part of ε that buys noisy true errors for the **public** report; 0 buys none.",
            section=GUARD,
        ),
        "bins_share": Param(
            0,
            type="number",
            minimum=0,
            maximum=0.25,
            title="Share for bins",
            description_md="Part of ε that buys the bins of columns that declare `private_quantiles`; 0 if none does.",
            section=GUARD,
        ),
        "approval": Param(
            False,
            type="boolean",
            title="Approval",
            description_md="Whether a person must **approve** the release before it is published. The run then waits "
            "under *Required actions*, and the certificate is shown there.",
            section=GUARD,
        ),
        "preset": Param(
            "default",
            type="string",
            enum=sorted({preset for method in METHODS.values() for preset in method.presets}),
            title="Preset",
            description_md="The method's named set of constants. Every method has `default`, the recommended one.",
            section=EXPERT,
        ),
        "unit": Param(
            "person",
            type="string",
            minLength=1,
            title="Unit of privacy",
            description_md="Whom one record belongs to, as the account declares it.",
            section=EXPERT,
        ),
        "options": Param(
            None,
            type=["null", "object"],
            title="Options",
            description_md='Overrides of the preset\'s constants, as JSON such as `{"rounds": 8}`.',
            section=EXPERT,
        ),
        "workspace": Param(
            None,
            type=["null", "string"],
            title="Workspace",
            description_md="Folder with the zones *confidential* and *public*. "
            "Leave it **empty** for the server's own (SYNTH_WORKSPACE).",
            section=EXPERT,
        ),
    }
