"""Parquet partitions, counting over them, and the ledger's database."""
