"""Fifty strata on two Dask workers, one of which is killed in the middle; writes strata.md.

OMP_NUM_THREADS=1 PYTHONPATH=tests python tests/benchmarks/strata.py [ROWS]
"""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml
from distributed import Client, LocalCluster
from support.strata_release import with_the_same_answers

from synth_core.ledger.book import charged_records
from synth_core.ledger.sql import SqlLedger, ledger_url
from synth_core.models.mixture import load_model
from synth_core.privacy.accounts import Account, State
from synth_core.privacy.budget import epsilon_of
from synth_core.release.paths import ReleasePaths
from synth_core.release.verify import verify_release
from synth_core.steps import STEPS, prepare, run_step

STATES, DISTRICTS = 10, 50
SIZES = {"age": 10, "sex": 2, "education": 6, "job": 8, "income": 8, "household": 5, "tenure": 3}
DELTA, EPSILON = 1e-6, 1.0
TRIPLES = [
    ("district", "age", "job"),
    ("district", "education", "income"),
    ("district", "household", "tenure"),
]
PAIRS = [("state", name) for name in SIZES]
PAGE = Path(__file__).with_suffix(".md")


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What one run showed."""

    rows: int
    seconds: dict[str, float]
    undisturbed: dict[str, float]
    done: int
    sound: bool
    same: bool
    free: bool
    facts: dict[str, Any]
    errors: dict[str, tuple[float, float]]


def population(rows: int) -> pd.DataFrame:
    """Columns that depend on each other and on the district; districts of very different sizes."""
    rng = np.random.default_rng(8)
    weights = rng.dirichlet(np.full(DISTRICTS, 2.0))
    district = rng.choice(DISTRICTS, rows, p=weights)
    frame = {"district": district, "state": district * STATES // DISTRICTS}
    before = district % 7
    for name, size in SIZES.items():
        copied = rng.random(rows) < 0.6
        before = np.where(copied, before, rng.integers(0, 1000, rows)) % size
        frame[name] = before
    return pd.DataFrame(frame)


def declare(folder: Path, frame: pd.DataFrame) -> None:
    """Schema, rows, and an account with room for everything here."""
    members = {str(s): [d for d in range(DISTRICTS) if d * STATES // DISTRICTS == s] for s in range(STATES)}
    sizes = {"district": DISTRICTS, "state": STATES, **SIZES}
    columns = [{"name": n, "kind": "categorical", "values": list(range(k))} for n, k in sizes.items()]
    columns[0]["hierarchy"] = members
    (folder / "schema.yaml").write_text(yaml.safe_dump({"columns": columns}))
    frame.to_csv(folder / "people.csv", index=False)
    (folder / "workspace").mkdir()
    ledger_in(folder).declare(Account(dataset="people", delta=DELTA, cap_epsilon=10.0), actor="benchmark")


def ledger_in(folder: Path) -> SqlLedger:
    return SqlLedger(ledger_url(folder / "workspace", None))


def spec_of(folder: Path, release: str, strata: str | None) -> dict:
    files = {"source": str(folder / "people.csv"), "schema": str(folder / "schema.yaml")}
    price = {"epsilon": EPSILON, "delta": DELTA}
    return {"release": release, "dataset": "people", "strata": strata, **files, **price}


def timed_steps(address: str, steps: tuple[str, ...], where: str) -> dict[str, float]:
    seconds = {}
    for step in steps:
        start = time.perf_counter()
        run_step(step, address, cluster=where)
        seconds[step] = time.perf_counter() - start
    return seconds


def fit_with_a_killed_worker(address: str, client: Client) -> tuple[float, int]:
    """Seconds of the step, and how many strata were fitted when the worker was killed."""
    paths = ReleasePaths.of_address(address)
    start = time.perf_counter()
    with ThreadPoolExecutor(1) as pool:
        fit = pool.submit(run_step, "fit", address, cluster=client.scheduler.address)
        while len(list(paths.home.glob("strata/*/model.npz"))) < DISTRICTS // 3:
            time.sleep(0.05)
        busy = next(worker for worker, tasks in client.processing().items() if tasks)
        done = len(list(paths.home.glob("strata/*/model.npz")))
        os.kill(client.run(os.getpid, workers=[busy])[busy], signal.SIGKILL)
        fit.result()
    return time.perf_counter() - start, done


def error(model: Any, frame: pd.DataFrame, cliques: list[tuple[str, ...]]) -> float:
    """Mean total variation distance of the model's marginals from the real ones."""
    found = []
    for clique in cliques:
        table = model.marginal(clique)
        counts = np.zeros(table.shape)
        np.add.at(counts, tuple(frame[name].to_numpy() for name in clique), 1)
        found.append(np.abs(table / table.sum() - counts / counts.sum()).sum() / 2)
    return float(np.mean(found))


def digest(paths: ReleasePaths, shards: int = 4) -> str:
    files = [paths.model, *(paths.shard(number) for number in range(shards))]
    return hashlib.sha256(b"".join(hashlib.sha256(f.read_bytes()).digest() for f in files)).hexdigest()[:16]


def ledger_facts(folder: Path, release: str) -> dict[str, Any]:
    """What the chain says: the price of each stratum alone, of all in a row, and what was charged."""
    records = ledger_in(folder).records(release=release)
    charged = charged_records(records)
    parts: dict[str, Fraction] = {}
    for record in charged:
        if record.stratum:
            parts[record.stratum.part] = parts.get(record.stratum.part, Fraction(0)) + record.mu2
    shared = sum((record.mu2 for record in charged if record.stratum is None), Fraction(0))
    answers = [record for record in records if record.state is State.MEASURED]
    return {
        "strata": len(parts),
        "shared": epsilon_of(shared, DELTA),
        "dearest": epsilon_of(max(parts.values()), DELTA),
        "charged": epsilon_of(ledger_in(folder).balance("people").charged_mu2, DELTA),
        "in a row": epsilon_of(shared + sum(parts.values()), DELTA),
        "answers": len(answers),
        "answered once": len({record.key for record in answers}) == len(answers),
        "given up": sum(record.state is State.FORFEITED for record in charged),
    }


def main(rows: int) -> None:
    """Run everything once and write the page."""
    frame = population(rows)
    folder = Path(tempfile.mkdtemp(prefix="strata-"))
    declare(folder, frame)
    local = LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None)
    with suppress(TimeoutError), local, Client(local) as client:  # busy workers are slow to end
        PAGE.write_text(page(observed(folder, frame, client)))
    shutil.rmtree(folder)


def observed(folder: Path, frame: pd.DataFrame, client: Client) -> Seen:
    """The stratified release with a killed worker, the same undisturbed, and two others to compare with."""
    where = client.scheduler.address
    spec = spec_of(folder, "divided", "district")
    address = prepare(spec, workspace=folder / "workspace")
    seconds = timed_steps(address, STEPS[:3], where)
    seconds["fit"], done = fit_with_a_killed_worker(address, client)
    seconds |= timed_steps(address, STEPS[4:], where)
    paths, facts = ReleasePaths.of_address(address), ledger_facts(folder, "divided")

    quiet = with_the_same_answers(folder, folder / "quiet")
    again = prepare(spec, workspace=quiet / "workspace")
    undisturbed = timed_steps(again, STEPS[:5], where)

    models = {"`district`": load_model(paths.model)}
    for name, strata in (
        ("one model, no strata", None),
        ("`district within state`", "district within state"),
    ):
        other = prepare(spec_of(folder, f"other-{len(models)}", strata), workspace=folder / "workspace")
        timed_steps(other, STEPS[:4], where)
        models[name] = load_model(ReleasePaths.of_address(other).model)
    return Seen(
        rows=len(frame),
        seconds=seconds,
        undisturbed=undisturbed,
        done=done,
        sound=verify_release(paths.public) == [],
        same=digest(ReleasePaths.of_address(again)) == digest(paths),
        free=ledger_facts(quiet, "divided")["charged"] == facts["charged"],
        facts=facts,
        errors={name: (error(m, frame, TRIPLES), error(m, frame, PAIRS)) for name, m in models.items()},
    )


def page(seen: Seen) -> str:
    """The page, every figure of it from this run."""
    facts, quiet = seen.facts, seen.undisturbed
    lines = [
        "# Fifty strata on two workers\n",
        f"Written by `tests/benchmarks/strata.py`: {seen.rows:,} generated records, {DISTRICTS} districts of {STATES} "
        f"states, {len(SIZES)} more columns, PrivMRF, ε {EPSILON:g} at δ {DELTA:g}; a Dask scheduler and two worker "
        "processes of one thread, on a machine of two cores that was busy with other work (load average at the end "
        f"{os.getloadavg()[1]:.0f}), so seconds are far above those of an idle one.\n",
        "| what | seen |",
        "|---|---|",
        f"| strata fitted | {facts['strata']} of {DISTRICTS}; the release verifies: {_yes(seen.sound)} |",
        f"| price of what all strata share (rows of each stratum) | ε {facts['shared']:.4f} |",
        f"| price of the dearest stratum | ε {facts['dearest']:.4f} |",
        f"| charged to the account | ε {facts['charged']:.4f} |",
        f"| the same questions without parallel composition | ε {facts['in a row']:.2f} |",
        f"| noisy answers stored | {facts['answers']}, one for each question: {_yes(facts['answered once'])} |",
        f"| worker killed (SIGKILL) when so many strata were fitted | {seen.done} |",
        f"| attempts given up by that, which stay charged | {facts['given up']} |",
        f"| undisturbed run from the same answers: same model and extract | {_yes(seen.same)} |",
        f"| that run spent nothing | {_yes(seen.free)} |",
        "\n## Seconds\n",
        "| step | with a killed worker | undisturbed, from stored answers |",
        "|---|---|---|",
        *(
            f"| {step} | {s:.1f} | {f'{quiet[step]:.1f}' if step in quiet else ''} |"
            for step, s in seen.seconds.items()
        ),
        "\n## Error at the same price\n",
        "Mean total variation distance of the models' marginals from the real ones, one run each.\n",
        "| strata | three tables of district and two columns | all tables of state and one column |",
        "|---|---|---|",
        *(f"| {name} | {triple:.4f} | {pair:.4f} |" for name, (triple, pair) in seen.errors.items()),
    ]
    return "\n".join(lines) + "\n"


def _tenths(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds:.1f}"


def _yes(value: object) -> str:
    return "yes" if value else "NO"


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 50_000)
