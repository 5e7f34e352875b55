"""The release form: a DAG that a person triggers, with a field for everything a release spec can say."""

from __future__ import annotations

from typing import Any

from airflow.sdk import DAG, Param

from synth_airflow.pipeline import DEADLINE_HOURS, DEFAULTS, TAGS, deadline, release_tasks
from synth_core.release.spec import ReleaseSpec
from synth_core.synthesizers.methods import METHODS

FIRST, OUTPUT, GUARD, EXPERT = None, "Output", "Quality and approval", "For experts"
SECTIONS = {
    **dict.fromkeys(
        ("dataset", "source", "schema", "method", "epsilon", "delta", "release", "dry_run", "strata"), FIRST
    ),
    **dict.fromkeys(
        ("rows", "shards", "csv", "escape_formulas", "publish_answers", "uncertainty", "replicates", "seed"), OUTPUT
    ),
    **dict.fromkeys(("quality_share", "bins_share", "moments_share", "pairs_share"), GUARD),
    **dict.fromkeys(("protect", "protect_share", "reuse", "prior", "evaluate", "approval"), GUARD),
    **dict.fromkeys(("preset", "unit", "options", "workspace"), EXPERT),
}
"""The section of each field, in the order of the form; what a spec says of its schedule is no part of it."""

BEGIN_WITH = {
    "dataset": "fictional-census",
    "source": "example/data/people.csv",
    "schema": "example/schema.yaml",
    "epsilon": 1.0,
    "delta": 1e-6,
    "release": None,
}
"""Values that the form begins with where the spec has no default: those of the example."""

NOTES = {
    "source": "In the form a relative path starts at the workspace, and linked tables are written in one line, "
    "`{household: households.csv, person: people.csv}`.",
    "schema": "In the form a relative path starts at the workspace.",
    "method": "\n" + "".join(f"\n- **{name}**: {method.summary}" for name, method in METHODS.items()),
    "release": "Leave it **empty** for a new release, named after this run.",
    "rows": "Leave it **empty** for `noisy`.",
    "approval": "The run then waits under *Required actions*.",
    "protect": "In the form **one table on each line**, its columns with commas between them; one alone in brackets.",
    "reuse": "In the form **one release on each line**.",
    "options": 'As JSON, such as `{"rounds": 8}`.',
}
"""What is different in a form."""

ABOUT_THE_RUN: dict[str, dict[str, Any]] = {
    "dry_run": {
        "default": False,
        "type": "boolean",
        "title": "Dry run",
        "description_md": "Only **show the cost**: what the release would spend, how that is shared, what would be "
        "left. Nothing is set aside or read. The answer is in the log of the task *prepare*.",
    },
    "workspace": {
        "default": None,
        "type": ["null", "string"],
        "title": "Workspace",
        "description_md": "Folder with the zones *confidential* and *public*. "
        "Leave it **empty** for the server's own (SYNTH_WORKSPACE).",
    },
}
"""Fields that are no keys of a spec."""

LIMITS = ("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum", "minLength")
LARGEST_EXACT = 2**53 - 1
"""The largest integer that a browser keeps exactly."""

JSON_TYPES = {"string": str, "integer": int, "number": float, "boolean": bool, "object": dict, "array": list}


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
        release_tasks()
    return made


def form_fields() -> dict[str, Param]:
    """Returns the fields of the form, made anew: a run in this process changes the values of its DAG's."""
    declared = ReleaseSpec.model_json_schema()["properties"]
    presets = sorted({preset for method in METHODS.values() for preset in method.presets})
    choices = {"method": list(METHODS), "preset": presets}
    fields = {}
    for name, section in SECTIONS.items():
        about = dict(ABOUT_THE_RUN[name]) if name in ABOUT_THE_RUN else _shown(name, declared[name])
        if name in choices:
            about["enum"] = choices[name]
        if section:
            about["section"] = section
        fields[name] = Param(**about)
    return fields


def _shown(name: str, declared: dict[str, Any]) -> dict[str, Any]:
    """Returns a field of the spec as a form shows it: of several kinds of values, the one that is typed in.

    A part of the spec with keys of its own has a short form of one line of text. What the spec says in another way,
    such as `noisy`, is left empty in a form.
    """
    kinds = [one for one in declared.get("anyOf", [declared]) if "const" not in one]
    found = {"type": "string"} if "$ref" in kinds[0] else kinds[0]
    shown = {key: value for key, value in found.items() if key in ("type", "pattern", *LIMITS)}
    if shown.get("exclusiveMaximum", 0) > LARGEST_EXACT:
        del shown["exclusiveMaximum"]
        shown["maximum"] = LARGEST_EXACT
    value = BEGIN_WITH.get(name, declared.get("default"))
    if not isinstance(value, JSON_TYPES[shown["type"]]):
        value = None
        shown["type"] = ["null", shown["type"]]
        if "pattern" in shown:
            shown["pattern"] = f"^$|{shown['pattern']}"
    if len(declared.get("examples", ())) > 1:
        shown["examples"] = [*([value] if value else []), *declared["examples"]]
    meaning = declared["description"]
    words = f"{meaning[0].upper()}{meaning[1:]}. {NOTES.get(name, '')}".strip()
    return {**shown, "default": value, "title": declared["title"], "description_md": words}
