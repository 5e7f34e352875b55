"""What happened in a workspace: its journal, notices to people, lineage, and a watch over accounts and ledger."""
