"""Several ledgers of one process on one file: each keeps the head without stepping on another's draft."""

from concurrent.futures import ThreadPoolExecutor

from synth_core.privacy.ledger import Account
from synth_core.storage.ledger_head import read_head
from synth_core.storage.sql_ledger import SqlLedger


def test_ledgers_of_many_threads_keep_one_head(tmp_path):
    url = f"sqlite:///{tmp_path / 'ledger.sqlite'}"

    def declare(number):
        for more in range(5):
            account = Account(dataset=f"d{number}-{more}", delta=1e-6, cap_epsilon=1.0)
            SqlLedger(url).declare(account, actor="test")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(declare, range(8)))
    ledger = SqlLedger(url)
    assert len(ledger.accounts()) == 40
    assert ledger.verify() == []
    assert read_head(tmp_path / "ledger.sqlite.head").records <= ledger.head().records
    assert [path.name for path in tmp_path.glob("*.head.*")] == [], "no draft is left behind"
