"""The example that the release form names by default: a fictional population and its ledger account."""

from __future__ import annotations

from infra.local.console import say
from infra.local.site import Site

PEOPLE = 50_000


def provide_example(site: Site) -> None:
    """Write the population and declare the account, where that has not been done before."""
    from synth_core.example.population import declare_example_account, write_example

    folder = site.workspace / "example"
    if not (folder / "schema.yaml").exists() or not (folder / "data" / "people.csv").exists():
        say(f"writing a fictional population of {PEOPLE:,} people …")
        write_example(folder, rows=PEOPLE)
    declare_example_account(site.workspace)
