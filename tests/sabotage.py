"""Puts faults that the product once had back, one by one: `make sabotage` proves that the tests can fail.

A fault is a replacement of text, made in a copy of the repository, where the tests named beside it must turn
red. Red is a test that ran and failed; one that could not be found, collected or set up proves nothing.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FAILED = re.compile(r"^FAILED (.+?)(?: - .*)?$", re.MULTILINE)
KERNELS = "__pycache__/*.nb[ic]"
"""Machine code of numba: it takes minutes to make, and is valid while its source keeps time and size."""


@dataclass(frozen=True, slots=True)
class Fault:
    """What the product once did: a text that takes the place of today's, and the tests that must turn red.

    `more` has further files and texts, for a fault that takes several replacements.
    """

    name: str
    file: str
    before: str
    after: str
    tests: tuple[str, ...]
    more: tuple[tuple[str, str, str], ...] = ()

    @property
    def changes(self) -> tuple[tuple[str, str, str], ...]:
        """File, text before and text after of every replacement."""
        return ((self.file, self.before, self.after), *self.more)


@dataclass(frozen=True, slots=True)
class Outcome:
    """How the tests of one fault ended: pytest's exit code and output, and the first test that failed."""

    code: int
    failed: str
    seconds: float
    output: str

    @property
    def is_red(self) -> bool:
        """Whether a test ran and failed."""
        return self.code == 1 and bool(self.failed)

    @property
    def words(self) -> str:
        """The outcome as the table has it."""
        if self.is_red:
            return "red"
        return "GREEN" if self.code == 0 else f"NOT RUN (exit code {self.code})"


# fmt: off
FAULTS = (
    Fault("promise 1: a stray quote swallows the lines after it", "synth_core/storage/sources.py",
        "if table is None or table.num_rows != lines + 2:", "if table is None:",
        ("tests/storage/test_csv_lines.py", "tests/storage/test_record_wise.py"),
        more=(("synth_core/storage/sources.py", "(guard + text + guard, names", "(guard + text, names"),)),
    Fault("numbers: bounds of a rule cross by a rounding and run away", "synth_core/schema/value_rules.py",
        "np.where(np.isnan(total), high[name], np.maximum(new, low[name]))",
        "np.where(np.isnan(total), high[name], new)",
        ("tests/schema/test_value_rules.py",),
        more=(("synth_core/schema/value_rules.py",
            "np.where(np.isnan(total), low[name], np.minimum(new, high[name]))",
            "np.where(np.isnan(total), low[name], new)"),)),
    Fault("numbers: rules are silent where another column of theirs is missing", "synth_core/schema/value_rules.py",
        "if c.size > c.declared else []", "if False else []",
        ("tests/schema/test_value_rules.py",)),
    Fault("numbers: the open edge of a bin is taken for the next bin", "synth_core/schema/value_rules.py",
        "if c.step else _below(c)", "if c.step else np.nextafter(edges[1:], -np.inf)",
        ("tests/schema/test_value_rules.py",)),
    Fault("numbers: sums are asked for with a budget that cannot be drawn", "synth_core/steps/preparation.py",
        "        require_answerable(columns, divide_budget(spec, rows_per_unit=rows_per_unit).moments)\n",
        "        pass\n",
        ("tests/steps/test_moments.py",)),
    Fault("cost: triples make the tree of their pairs many times as large", "synth_core/synthesizers/correlation.py",
        "tree.domain, TriangulatedGraph.of_tree(tree)", "tree.domain, graph_with(tree.domain, tree.cliques)",
        ("tests/synthesizers/test_absyn_selection.py",)),
    Fault("answers: a rounded share of a rare code is below none", "synth_core/inference/replicates.py",
        "tuple(map(_lawful, shares, model.groups, model.shares))", "tuple(shares)",
        ("tests/inference/test_uncertain.py",)),
    Fault("messages: a file without a header has its first row quoted", "synth_core/schema/codec.py",
        'f" (column {others[near[0]]} of the source has nearly its name)"', 'f" (did you mean {near[0]!r}?)"',
        ("tests/schema/test_codec.py",)),
    Fault("promise 2: a cell's code depends on the other cells of its column", "synth_core/schema/cells.py",
        "        return _object_cells(series, numbers=numbers, source=source)\n",
        "        try:\n"
        "            return pa.array(series, from_pandas=True)\n"
        "        except (pa.ArrowInvalid, pa.ArrowTypeError):\n"
        "            return pa.array([None if pd.isna(x) else str(x) for x in series], pa.string())\n",
        ("tests/schema/test_frame_cells.py",)),
    Fault("promise 3: a file named twice is counted twice", "synth_core/storage/locations.py",
        "named.setdefault(_identity(address), address)", "named[len(named)] = address",
        ("tests/storage/test_locations.py",)),
    Fault("promise 4: an account is stated as of a release's beginning", "synth_core/release/certificate.py",
        '"account": _account(seen),',
        '"account": _account([*(record for record in seen if record.id < own[0].id), *own]),',
        ("tests/steps/test_published_numbers.py",)),
    Fault("promise 5: a digest of the source is published", "synth_core/steps/publish.py",
        "        built, public=paths.draft,",
        '        {**built, "source_digest": run.snapshot.digest}, public=paths.draft,',
        ("tests/steps/test_published_numbers.py"
         "::test_nothing_published_tells_whether_two_releases_had_the_same_rows",)),
    Fault("promise 6: synthesize ignores the unit column", "synth_core/api.py",
        "bound = bound_for(schema, account, secrets.token_bytes(32))", "bound = None",
        ("tests/test_api.py",)),
    Fault("promise 7: strata of two snapshots compose in parallel", "synth_core/privacy/accounts.py",
        "self.parts[snapshot, stratum.partition]", 'self.parts["", stratum.partition]',
        ("tests/privacy/test_composition.py",),
        more=(("synth_core/privacy/accounts.py",
               "self.parts.get((snapshot, stratum.partition)", 'self.parts.get(("", stratum.partition)'),
              ("synth_core/privacy/accounts.py",
               "dearest[snapshot, stratum.partition]", 'dearest["", stratum.partition]'))),
    Fault("promise 8a: worker threads may spill", "synth_core/cluster.py",
        "n_workers=1, **IN_MEMORY, **HERE_ONLY", "n_workers=1, **HERE_ONLY",
        ("tests/test_cluster.py::test_worker_threads_pause_rather_than_spill",)),
    Fault("promise 8b: worker processes that were started again may spill", "synth_core/cluster.py",
        "    return LocalCluster(threads_per_worker=1, security=True, **IN_MEMORY, **HERE_ONLY)\n",
        "    with _settings(NO_SPILLING):\n"
        "        return LocalCluster(threads_per_worker=1, security=True, **HERE_ONLY)\n",
        ("tests/test_cluster.py"
         "::test_worker_processes_pause_rather_than_spill_also_after_they_were_started_again",)),
    Fault("promise 9a: the headline is what a run happened to spend", "synth_core/release/certificate.py",
        '"epsilon": round_up(max(asked, epsilon_of(promised, account.delta)), DIGITS),',
        '"epsilon": round_up(epsilon_of(spent, account.delta), DIGITS),',
        ("tests/steps/test_published_numbers.py"
         "::test_the_headline_is_what_was_asked_for_and_not_what_a_run_happened_to_spend",),
        more=(("synth_core/release/certificate.py",
               '"epsilon": max(guarantee["epsilon_spent"], guarantee["epsilon_asked"]),',
               '"epsilon": guarantee["epsilon_spent"],'),)),
    Fault("promise 9b: losses are rounded to nearest", "synth_core/privacy/budget.py",
        "return _rounded(value, digits, ROUND_CEILING)", "return round(value, digits)",
        ("tests/privacy/test_wording.py", "tests/steps/test_published_numbers.py")),
    Fault("promise 10: another question gets the answer that is stored", "synth_core/privacy/accounts.py",
        "            *([self.form.fingerprint] if self.form else []),\n", "",
        ("tests/privacy/test_fingerprints.py",)),
    Fault("promise 11a: true errors can be read by all", "synth_core/cli/evaluate.py",
        "            temporary.touch(mode=0o600)\n", "",
        ("tests/cli/test_true_errors.py",)),
    Fault("promise 11b: a run prints true errors", "synth_core/steps/publish.py",
        '"quality": _quality_in_words(manifest["quality"]),',
        '"quality": {f"{errors[\'alpha\']}-way TVD": f"{errors[\'tvd\'][\'mean\']:.4f}"\n'
        '                    for errors in json.loads(paths.evaluation.read_text())["marginals"]},',
        ("tests/cli/test_true_errors.py",)),
    Fault("promise 11c: worker processes serve everybody", "synth_core/cluster.py",
        "threads_per_worker=1, security=True, **IN_MEMORY", "threads_per_worker=1, **IN_MEMORY",
        ("tests/test_cluster.py::test_a_process_without_credentials_cannot_use_a_cluster_of_processes",)),
    Fault("promise 12a: CSV files may change after approval", "synth_core/steps/approval.py",
        'if step != "publish" for path in paths]',
        'if step != "publish" for path in paths if path.suffix != ".csv"]',
        ("tests/steps/test_approved_bytes.py",)),
    Fault("promise 12b: files of strata may change after approval", "synth_core/steps/approval.py",
        'if step != "publish" for path in paths]',
        'if step != "publish" for path in paths if "strata" not in path.parts]',
        ("tests/steps/test_approved_bytes.py",)),
    Fault("promise 13a: a ledger that nobody checked agrees", "synth_core/release/verify.py",
        'and SYNTH_LEDGER_URL names no ledger"\n        return Check("ledger", says, checked=False)',
        'and SYNTH_LEDGER_URL names no ledger"\n        return Check("ledger", says)',
        ("tests/steps/test_verify.py",)),
    Fault("promise 13b: a ledger outside of the workspace agrees unread", "synth_core/release/verify.py",
        "    url = ledger_url(workspace or folder, None)\n",
        "    url = ledger_url(workspace or folder, None)\n"
        '    if not (folder.resolve().parents[1] / "ledger.sqlite").exists() and url.startswith("sqlite"):\n'
        '        return Check("ledger", "manifest, files and ledger agree")\n',
        ("tests/steps/test_verify.py",)),
    Fault("promise 14: a marginal is guessed from the answer's length", "synth_core/ledger/answers.py",
        "TABLES = (AnswerKind.MARGINAL, AnswerKind.MERGED)", "TABLES = (AnswerKind.MARGINAL, AnswerKind.STRATEGY)",
        ("tests/steps/test_stored_answers.py::test_square_strategies_do_not_pass_as_marginals",
         "tests/steps/test_stored_answers.py::test_every_marginal_is_compared_also_one_of_merged_codes")),
    Fault("promise 15a: ledger and head rolled back together spend", "synth_core/ledger/chain.py",
        "heads = published_heads(self.workspace) if self.workspace else {}",
        "heads: dict[str, Head] = {}",
        ("tests/ledger/test_rollback.py",)),
    Fault("promise 15b: a ledger without its head spends", "synth_core/ledger/chain.py",
        "            return []\n        return problems\n", "            return []\n        return []\n",
        ("tests/ledger/test_rollback.py",)),
    Fault("promise 16a: a manifest without a signature is published", "synth_core/release/paths.py",
        "return (self.public / MANIFEST).exists() and (self.public / SIGNATURE).exists()",
        "return (self.public / MANIFEST).exists()",
        ("tests/steps/test_publication.py::test_a_manifest_without_a_signature_is_not_a_finished_release",)),
    Fault("promise 16b: a release is published file by file", "synth_core/steps/publish.py",
        "        paths.draft.rename(paths.public)\n",
        "        paths.public.mkdir()\n"
        "        for path in sorted(paths.draft.iterdir()):\n"
        "            path.rename(paths.public / path.name)\n"
        "        paths.draft.rmdir()\n",
        ("tests/steps/test_publication.py"
         "::test_a_release_killed_at_any_change_of_the_file_system_is_a_draft_or_published",)),
    Fault("promise 17a: a refused ingest keeps its hold", "synth_core/privacy/reading.py",
        "    ledger.close(dataset, release, reason=reason, runner=runner, only_unmeasured=True)\n", "",
        ("tests/steps/test_refused_ingest.py", "tests/ledger/test_ledger_reading.py")),
    Fault("promise 17b: a higher cap is proposed while others hold", "synth_core/ledger/refusals.py",
        "    if not held:\n", "    if True:\n",
        ("tests/ledger/test_ledger_reading.py::test_a_hold_that_is_open_is_named_and_no_higher_cap_proposed",
         "tests/steps/test_refused_ingest.py")),
    Fault("promise 18: two accounts measure the same rows", "synth_core/ledger/refusals.py",
        "    if owner is not None:\n", "    if False:\n",
        ("tests/ledger/test_ledger_sharing.py",)),
    Fault("promise 19: refusals are not counted", "synth_core/privacy/reading.py",
        "left = ledger.refuse(dataset, release, step=step, runner=runner)", "left = 0",
        ("tests/ledger/test_ledger_reading.py",)),
    Fault("promise 20: a delta above a tenth of 1/n is accepted", "synth_core/privacy/budget.py",
        "    if delta > most:\n", "    if False:\n",
        ("tests/privacy/test_wording.py",)),
    Fault("promise 21: units 7, 007 and 7.0 are three", "synth_core/storage/contribution.py",
        '    if bound.kind == "text":\n', "    if True:\n",
        ("tests/storage/test_contribution.py",)),
    Fault("promise 22a: a fork is noticed by its process number alone", "synth_core/privacy/entropy.py",
        "if self._owner != (os.getpid(), _forks) or", "if self._owner[0] != os.getpid() or",
        ("tests/privacy/test_noise_entropy.py",)),
    Fault("promise 22b: a fork is not noticed", "synth_core/privacy/entropy.py",
        "if self._owner != (os.getpid(), _forks) or", "if",
        ("tests/privacy/test_noise_entropy.py",)),
    Fault("green 1: the weight of the entropy jumps at a threshold", "synth_core/models/maximum_entropy.py",
        "return self.ridge * 2 ** (0.5 - past)", "return self.ridge",
        ("tests/models/test_estimators.py",)),
    Fault("green 2: raking ends after some rounds with what it has", "synth_core/synthesizers/consistency.py",
        "return _moved_to_rows(found, rows)", "return found",
        ("tests/synthesizers/test_levels.py",)),
    Fault("green 4: the noise of tests has no seed", "tests/support/seeding.py",
        "    entropy.SystemEntropy._rekey = _rekey\n", "    pass\n",
        ("tests/test_seeding.py",)),
    Fault("edge 2: a large budget buys less noise than can be drawn", "synth_core/privacy/budget.py",
        "scale = max((sensitivity * MARGIN) ** 2 * total / mu2, LEAST_VARIANCE * max(weights or (1,)))",
        "scale = (sensitivity * MARGIN) ** 2 * total / mu2",
        ("tests/steps/test_extreme_budgets.py",)),
    Fault("edge 3: a key is written under its own name", "synth_core/files.py",
        "    temporary = temporary_beside(path)\n    try:\n        with os.fdopen",
        "    temporary = path\n    try:\n        with os.fdopen",
        ("tests/steps/test_full_disk.py",)),
    Fault("edge 4a: a name may end with a line break", "synth_core/names.py",
        "NAME.fullmatch(text)", "re.match(NAME.pattern + '$', text)",
        ("tests/release/test_names.py",)),
    Fault("edge 4b: a release may have the name of a key", "synth_core/names.py",
        "if text in RESERVED:", "if not text:",
        ("tests/release/test_names.py",)),
    Fault("edge 5: a single record cannot be judged", "synth_core/evaluation/classification.py",
        "    rest = rest if len(rest) else held_out\n", "",
        ("tests/steps/test_few_rows.py",)),
    Fault("edge 6a: what killed steps left stays", "synth_core/files.py",
        "                _remove_temporary(folder)\n", "                pass\n",
        ("tests/steps/test_left_files.py",)),
    Fault("edge 6b: steps remove what others are writing", "synth_core/files.py",
        "fcntl.LOCK_EX | fcntl.LOCK_NB", "fcntl.LOCK_SH",
        ("tests/steps/test_left_files.py",)),
    Fault("edge 6c: SIGTERM leaves temporary files", "synth_core/__main__.py",
        "    signal.signal(signal.SIGTERM, _end)\n", "",
        ("tests/steps/test_left_files.py",)),
    Fault("edge 7a: a device is read as a schema", "synth_core/files.py",
        "    if not stat.S_ISREG(os.stat(path).st_mode):", "    if not os.path.exists(path):",
        ("tests/release/test_documents.py::test_a_file_that_never_ends_is_not_read",
         "tests/steps/test_hostile_folder.py::test_a_document_is_refused_before_a_device_is_opened")),
    Fault("edge 7b: aliases stand for any number of values", "synth_core/documents.py",
        "            total += values[event.anchor]\n", "            total += 1\n",
        ("tests/release/test_documents.py",)),
    Fault("edge 7c: a full disk is a traceback", "synth_core/steps/__init__.py",
        "    with one_thread, naming_files(), opened as run, run.record_outcome(name), naming_files():",
        "    with one_thread, opened as run, run.record_outcome(name):",
        ("tests/steps/test_full_disk.py",)),
    Fault("edge 8a: a line has no end", "synth_core/storage/sources.py",
        "        if size > MAX_LINE_BYTES:\n", "        if size < 0:\n",
        ("tests/storage/test_long_lines.py::test_a_long_line_is_refused_wherever_it_stands",),
        more=(
            ("synth_core/storage/sources.py",
            "        if end < 0:\n            raise _too_long()\n", "        if end < 0:\n            return text\n"),
        )),
    Fault("edge 8b: each label is searched among all values", "synth_core/schema/columns/categorical.py",
        "        declared = set(self.values)\n        for value in values:",
        "        declared = self.values\n        for value in values:",
        ("tests/schema/test_many_values.py",)),
    Fault("edge 9: pages read every record each time", "synth_core/events/office.py",
        "if ledger is not self.ledger or not self._goes_on(seen):", "if True:",
        ("tests/web/test_incremental_reading.py::"
         "test_a_page_decodes_the_records_that_are_new_or_shown_however_long_the_ledger_is",)),
    Fault("edge 9b: the file for a spreadsheet is made of all records at once", "synth_core/web/records.py",
        "    records = office.ledger.standing_from(1, most=PORTION)\n",
        "    records = office.ledger.standing_from(1, most=10**9)\n",
        ("tests/web/test_incremental_reading.py::"
         "test_a_page_decodes_the_records_that_are_new_or_shown_however_long_the_ledger_is",)),
    Fault("edge 7d: a table of a schema may be a device", "synth_core/schema/attached.py",
        "text = read_document(path)", "text = path.open().read(10**7)",
        ("tests/schema/test_attached.py",)),
    Fault("edge 7e: the word table changes how a schema is read", "synth_core/schema/schema.py",
        "    raw = _parsed(text)\n    inline_tables", "    raw = parse_document(text)\n    inline_tables",
        ("tests/schema/test_attached.py",)),
    Fault("edge 7f: a step waits for ever for workers", "synth_core/cluster.py",
        "time.monotonic() - seen > EMPTY_SECONDS:", "time.monotonic() - seen > 5000:",
        ("tests/steps/test_lost_cluster.py",)),
    Fault("edge 7g: a damaged ledger is a traceback", "synth_core/ledger/database.py",
        "        except UnicodeDecodeError:\n            raise _damaged() from None\n\n    def write",
        "        except MemoryError:\n            raise _damaged() from None\n\n    def write",
        ("tests/test_fuzz_corpus.py::test_inputs_that_failed_once_are_refused",)),
    Fault("edge 2b: a lookup is drawn that no column can hold", "synth_core/schema/attached.py",
        "if isinstance(value, int) and not -(2**63) <= value < 2**63:", "if False:",
        ("tests/schema/test_attached.py",)),
    Fault("edge 10a: an archive cannot be verified", "synth_core/ledger/database.py",
        "        if self._archived:\n", "        if False:\n",
        ("tests/ledger/test_archived_ledger.py",)),
    Fault("edge 10b: a zone may be a symbolic link", "synth_core/release/paths.py",
        "                if zone.is_symlink():\n", "                if False:\n",
        ("tests/steps/test_zones.py",)),
    Fault("edge 10c: everybody may write to what is published", "synth_core/files.py",
        "    if mode & stat.S_IWOTH:\n", "    if False:\n",
        ("tests/steps/test_zones.py",)),
    Fault("edge 7h: a kept speed may be nested without end", "synth_core/release/estimate.py",
        "kept = parse_json(read_document(cache))", "kept = __import__('json').loads(cache.read_text())",
        ("tests/release/test_estimate.py::test_a_machine_that_was_busy_once_is_not_slow_for_ever",)),
    Fault("edge 7i: a damaged file of a draft is a traceback", "synth_core/steps/publish.py",
        "PublicQuality.from_json(run.paths.quality.read_bytes())",
        "PublicQuality.from_json(run.paths.quality.read_text(encoding='utf-8'))",
        ("tests/steps/test_removed_workspace.py",)),
    Fault("edge 8c: a plan does not count the records", "synth_core/release/estimate.py",
        "shape) for term in STEP_TERMS[name])", "shape) for term in STEP_TERMS[name][:1])",
        ("tests/release/test_estimate.py",)),
    Fault("edge 9c: a list of more releases than a page has is a traceback", "synth_core/web/pages.py",
        "def address(page: str, /, **query: object)", "def address(page: str, **query: object)",
        ("tests/web/test_budget_pages.py::test_every_release_is_reached_by_the_links_older_and_newer",)),
    Fault("edge 10d: formulas are written as they are", "synth_core/steps/sample.py",
        "_escaped(rows) if recipe.escape_formulas else rows", "rows",
        ("tests/steps/test_formulas.py",)),
    Fault("edge 10e: a long name is echoed whole", "synth_core/errors.py",
        "return text if len(text) <= MAX_LETTERS else cut", "return text",
        ("tests/test_errors.py",)),
    Fault("edge 10f: a full disk is told as a matter of permission", "synth_core/files.py",
        "    errno.ENOSPC: \"the disk is full;", "    errno.ENOSPC: \"permission is denied;",
        ("tests/steps/test_full_disk.py",)),
    Fault("edge 11a: a file of a download is read however large it is", "synth_core/files.py",
        "    if len(content) > limit:\n", "    if False:\n",
        ("tests/steps/test_hostile_folder.py"
         "::test_what_never_ends_is_not_read_when_a_download_is_verified",)),
    Fault("edge 11b: a stored model may unpack to any size", "synth_core/models/stored.py",
        "if any(part.compress_type != ZIP_STORED for part in archive.infolist()):", "if False:",
        ("tests/steps/test_hostile_folder.py::test_a_part_that_is_larger_than_its_file_is_not_unpacked",)),
    Fault("edge 11c: replicates that fit no model are asked", "synth_core/inference/replicates.py",
        "if not all(map(_are_records, (*found.values(), np.array(dependence)))) or dependence < 0:", "if False:",
        ("tests/steps/test_hostile_folder.py::test_replicates_that_do_not_fit_are_refused",)),
    Fault("edge 11d: a schema publishes any table of the machine", "synth_core/schema/attached.py",
        "if not path.is_relative_to(folder.resolve()):", "if False:",
        ("tests/schema/test_attached.py::test_a_table_outside_of_the_schemas_folder_is_not_read",)),
    Fault("edge 11e: rows of replicate tables are counted as synthetic records", "synth_core/events/office.py",
        'if name.startswith("extract/") and name.endswith(".parquet"))', 'if name.endswith(".parquet"))',
        ("tests/steps/test_hostile_folder.py::test_pages_count_the_rows_of_the_extract_alone",)),
    Fault("edge 11f: a damaged release before ends the next one", "synth_core/release/manifest.py",
        "            if not is_signed_by(content, signed, pem):\n", "            if False:\n",
        ("tests/release/test_manifest.py::test_a_manifest_that_was_changed_or_lies_elsewhere_is_no_yardstick",)),
    Fault("edge 11g: a share that half precision cannot tell is below 0", "synth_core/inference/replicates.py",
        "    kept = np.maximum(share, 0.0)\n", "    kept = share\n",
        ("tests/inference/test_uncertain.py::test_a_share_that_half_precision_cannot_tell_is_not_below_0",)),
    Fault("edge 11h: noise that cannot be drawn is charged", "synth_core/privacy/curator.py",
        '        if mechanism.name != "discrete_laplace":  #', "        if False:  #",
        ("tests/privacy/test_curator.py::test_noise_that_cannot_be_drawn_is_refused_before_it_is_charged",)),
    Fault("edge 11i: a release whose model has no replicates has no end", "synth_core/release/spec.py",
        'REDRAWN = ("replicates",)\n', "REDRAWN = ()\n",
        ("tests/steps/test_replicate_tables.py"
         "::test_a_release_whose_model_has_no_replicates_goes_on_without_their_tables",)),
    Fault("edge 11j: each file of all tables is a task of Airflow", "synth_core/release/spec.py",
        "        return min(self.table_files, MAX_TASKS)\n", "        return self.table_files\n",
        ("tests/steps/test_sample_shards.py::test_many_files_are_shared_by_few_tasks",)),
    Fault("edge 12a: OTHER of numbers is refused in the extract", "synth_core/schema/columns/base.py",
        "if self.null_code is None and self._is_decoded and self.has_missing:", "if False:",
        ("tests/schema/test_codec.py", "tests/steps/test_paid_and_published.py")),
    Fault("edge 12b: options by which something is divided", "synth_core/synthesizers/base.py",
        "    if not least <= number <= most:\n", "    if False:\n",
        ("tests/synthesizers/test_methods.py",)),
    Fault("edge 12c: rules that no household keeps end a release", "synth_core/models/households.py",
        "            if not self.people.cliques:  # nothing is known\n", "            if True:\n",
        ("tests/test_linked_tables.py",)),
    Fault("edge 12d: presets without replicates are not known", "synth_core/synthesizers/base.py",
        "return not isinstance(method, MayRefit) or method.can_refit(domain)", "return True",
        ("tests/steps/test_replicate_tables.py",)),
    Fault("edge 12e: a model of any number of cells is asked", "synth_core/models/stored.py",
        "junction_tree(domain, cliques, limit_cells=MAX_TREE_CELLS)", "junction_tree(domain, cliques)",
        ("tests/steps/test_hostile_folder.py::test_a_small_model_of_any_number_of_cells_is_not_asked",)),
    Fault("edge 12f: a label gives orders to a terminal", "synth_core/schema/columns/categorical.py",
        "labels: dict[Value, Words] = Field", "labels: dict[Value, str] = Field",
        ("tests/steps/test_hostile_folder.py::test_a_download_writes_no_control_characters_to_a_terminal",)),
    Fault("edge 1: a restored ledger forgets what was lost", "synth_core/ledger/restore.py",
        "        ledger.begin(ledger.reserve(request))\n", "        pass\n",
        ("tests/ledger/test_restore.py",)),
    Fault("edge 1b: a restoration that was killed charges twice", "synth_core/ledger/restore.py",
        "if not (ledger.head() in kept_heads(heads)[0] and _has_charged(ledger, since)):", "if True:",
        ("tests/ledger/test_restore_postgres.py",)),
    Fault("households: weights of tuples that do not sum to 1", "synth_core/models/tuples.py",
        "else math.perm(size, used))", "else max(1, used))",
        ("tests/privacy/test_tuple_sensitivities.py",)),
    Fault("households: noise in units of the usual grid on counts of a finer one", "synth_core/privacy/noise.py",
        "discrete_gaussian(variance * scale**2,", "discrete_gaussian(variance * GRID**2,",
        ("tests/privacy/test_tuple_sensitivities.py",)),
    Fault("households: what becomes of a household depends on others", "synth_core/storage/households.py",
        "whole = (number == 1) & (living > 0)", "whole = (number >= number.min()) & (living > 0)",
        ("tests/storage/test_households.py",)),
    Fault("households: everybody in a partition counts as a household", "synth_core/storage/household_partitions.py",
        "astype(np.int64) * (scale // size)", "astype(np.int64) * scale",
        ("tests/storage/test_household_partitions.py",)),
    Fault("households: a retry draws others between two rounds", "synth_core/synthesizers/companions.py",
        "rng = np.random.default_rng(number)", "rng = np.random.default_rng()",
        ("tests/steps/test_linked_release.py::test_a_fit_killed_among_pairs_goes_on_with_the_same_questions",)),
    Fault("households: one person is promised what a household is", "synth_core/release/manifest.py",
        "epsilon_of(4 * mu2_of(", "epsilon_of(mu2_of(",
        ("tests/steps/test_linked_release.py::test_manifest_and_certificate_say_what_it_is",)),
)
# fmt: on


def misfits(faults: Sequence[Fault]) -> list[str]:
    """Returns a line for each replacement whose text is not in its file exactly once."""
    found = []
    for fault in faults:
        for file, before, _ in fault.changes:
            path = ROOT / file
            times = path.read_text(encoding="utf-8").count(before) if path.is_file() else 0
            if times != 1:
                found.append(f"{fault.name}: no longer fits the code: {file} has {before.strip()!r} {times} times")
    return found


def copy_repository(target: Path) -> None:
    """Copy what git tracks or would track, as it is now, and the kernels that are compiled already."""
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    names = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    kernels = [str(path.relative_to(ROOT)) for path in (ROOT / "synth_core").rglob(KERNELS)]
    for name in filter(None, [*names, *kernels]):
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)


def environment_of(copy: Path) -> dict[str, str]:
    """Returns the environment in which the copy's modules come before those of the installed product."""
    environment = os.environ | {"PYTHONPATH": str(copy)}
    command = [sys.executable, "-c", "import synth_core; print(synth_core.__file__)"]
    elsewhere = copy.parent  # where the current folder does not help
    found = subprocess.run(
        command, cwd=elsewhere, env=environment, capture_output=True, text=True, check=True
    ).stdout.strip()
    assert Path(found).is_relative_to(copy), f"tests would import {found}"
    return environment


@contextmanager
def put_back(fault: Fault, copy: Path) -> Iterator[None]:
    """Put a fault into the copy for a while; afterwards its files have their text and their time again."""
    files = {copy / file for file, *_ in fault.changes}
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in files}
    try:
        for file, text, other in fault.changes:
            path = copy / file
            path.write_text(path.read_text(encoding="utf-8").replace(text, other), encoding="utf-8")
        yield
    finally:
        for path, (content, changed) in before.items():
            path.write_bytes(content)
            os.utime(path, ns=(changed, changed))


def tried(fault: Fault, copy: Path, environment: dict[str, str]) -> Outcome:
    """Run the tests of a fault with the fault in the copy.

    Args:
        fault: what to put back.
        copy: a copy of the repository.
        environment: lets tests, and the processes they start, import the copy.

    Returns:
        How the tests ended.
    """
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-n", "0", *fault.tests]
    began = time.monotonic()
    with put_back(fault, copy):
        ended = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True, check=False)
    failed = FAILED.search(ended.stdout.rpartition("short test summary info")[2])
    return Outcome(
        code=ended.returncode,
        failed=failed[1] if failed else "",
        seconds=time.monotonic() - began,
        output=ended.stdout + ended.stderr,
    )


def main() -> int:
    """Print the table; 1 if a fault does not fit the code, or if its tests do not turn red."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="try those faults alone whose names have one of these words")
    parser.add_argument("--list", action="store_true", help="show the faults and their tests, and try none")
    given = parser.parse_args()
    faults = [fault for fault in FAULTS if not given.names or any(word in fault.name for word in given.names)]
    if given.list:
        print(*(f"{fault.name}: {' '.join(fault.tests)}" for fault in faults), sep="\n")
        return 0
    if not faults or (problems := misfits(faults)):
        print(*(problems if faults else ["no fault has such a name; see --list"]), sep="\n", file=sys.stderr)
        return 1
    print("| fault | outcome | first failing test | seconds |\n|---|---|---|---:|", flush=True)
    others = []
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch).resolve() / "copy"
        copy_repository(copy)
        environment = environment_of(copy)
        for fault in faults:
            outcome = tried(fault, copy, environment)
            print(f"| {fault.name} | {outcome.words} | {outcome.failed} | {outcome.seconds:.0f} |", flush=True)
            if not outcome.is_red:
                others.append(f"{fault.name}:\n{outcome.output[-5_000:]}")
    if others:
        print("", *others, sep="\n\n")
    return 1 if others else 0


if __name__ == "__main__":
    sys.exit(main())
