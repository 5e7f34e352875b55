"""Several ledgers keep one head file in turn, and one that is killed leaves nothing for good."""

from pathlib import Path
from threading import Thread

from synth_core.ledger.head import read_head, write_head
from synth_core.privacy.accounts import Head


def test_a_thread_that_keeps_the_head_in_between_waits_for_its_turn(tmp_path, monkeypatch):
    path, replace, others = tmp_path / "ledger.sqlite.head", Path.replace, []

    def interrupted(draft, target):
        """Before the first draft takes its name, another thread wants to keep a head of its own."""
        if not others:
            others.append(Thread(target=write_head, args=(path, Head(records=7, hash="b"))))
            others[0].start()
        return replace(draft, target)

    monkeypatch.setattr(Path, "replace", interrupted)
    write_head(path, Head(records=6, hash="a"))
    others[0].join()
    assert read_head(path) == Head(records=7, hash="b")
    write_head(path, Head(records=6, hash="a"))
    assert read_head(path) == Head(records=7, hash="b"), "it never goes back"
    assert list(tmp_path.iterdir()) == [path], "no draft is left behind"


def test_what_a_killed_process_leaves_is_taken_over_by_the_next_one(tmp_path):
    path = tmp_path / "ledger.sqlite.head"
    (tmp_path / ".ledger.sqlite.head").write_text('{"records": 900, "hash": "half a')
    write_head(path, Head(records=6, hash="a"))
    assert read_head(path) == Head(records=6, hash="a")
    assert list(tmp_path.iterdir()) == [path]


def test_many_heads_at_once_end_with_the_last(tmp_path):
    path = tmp_path / "ledger.sqlite.head"
    writers = [Thread(target=write_head, args=(path, Head(records=k, hash=str(k)))) for k in range(40)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert read_head(path) == Head(records=39, hash="39")
    assert list(tmp_path.iterdir()) == [path]
