"""Several ledgers of one process keep one head file without stepping on each other's draft."""

from pathlib import Path
from threading import Thread

from synth_core.ledger.head import read_head, write_head
from synth_core.privacy.accounts import Head


def test_a_thread_that_keeps_the_head_in_between_disturbs_nobody(tmp_path, monkeypatch):
    path, replace, others = tmp_path / "ledger.sqlite.head", Path.replace, []

    def interrupted(draft, target):
        """Before the first draft takes its name, another thread keeps a head of its own."""
        if not others:
            others.append(Thread(target=write_head, args=(path, Head(records=7, hash="b"))))
            others[0].start()
            others[0].join()
        return replace(draft, target)

    monkeypatch.setattr(Path, "replace", interrupted)
    write_head(path, Head(records=6, hash="a"))
    assert read_head(path).records in (6, 7), "never ahead of the chain, never torn"
    write_head(path, Head(records=8, hash="c"))
    assert read_head(path) == Head(records=8, hash="c")
    assert list(tmp_path.iterdir()) == [path], "no draft is left behind"
