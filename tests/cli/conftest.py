"""The command line without a process of its own, which would take seconds to import everything."""

import sys

import pytest

from synth_core.cli import main


@pytest.fixture
def synth(monkeypatch, capsys):
    """Run the command; returns (exit code, standard output, error output)."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["synth", *map(str, arguments)])
        capsys.readouterr()
        try:
            main()
            code = 0
        except SystemExit as end:
            code = end.code or 0
        out, err = capsys.readouterr()
        return code, out, err

    return run
