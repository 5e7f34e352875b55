"""Attacks the wall, and is no part of it: unchanged code on neighbouring tables, and what an adversary can prove."""
