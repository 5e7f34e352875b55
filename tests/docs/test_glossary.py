"""The glossary is what it says: one sentence for each word, in the order of the alphabet, each word once."""

import re
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "glossary.md"
ENTRY = re.compile(r"^- \*\*(.+?)\*\*: (.+)$", re.MULTILINE)


def entries():
    return ENTRY.findall(PAGE.read_text(encoding="utf-8"))


def test_words_are_in_the_order_of_the_alphabet():
    words = [word.lower() for word, _ in entries()]
    assert len(words) > 40
    assert words == sorted(set(words))


def test_each_word_has_one_sentence():
    for word, sentence in entries():
        assert sentence.endswith("."), word
        assert not re.search(r"[a-z)]\. [A-Z]", sentence), word
