"""Every code block of the handbook, the README and the runbook runs as it is shown, or says why it is not run."""

import shutil
from pathlib import Path

import pytest
from support.page_blocks import Block, BlockFailed, blocks, conversation, matches, page_before, run_block, run_page

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(
    [ROOT / "README.md", *(ROOT / "infra").glob("*.md"), *(ROOT / "docs").rglob("*.md")],
    key=lambda page: page.relative_to(ROOT).parts,
)
RUNNABLE = [page for page in PAGES if any(block.is_run for block in blocks(page.read_text(encoding="utf-8")))]


@pytest.fixture(scope="module")
def finished(tmp_path_factory, programs):
    """The folder in which a page was run; each page is run once, and what follows one that failed is not run."""
    folders = {}

    def run(page):
        if page not in folders:
            folders[page] = None
            text = page.read_text(encoding="utf-8")
            folder = tmp_path_factory.mktemp(page.stem) / "here"
            before = page_before(text)
            if before:
                shutil.copytree(run((page.parent / before).resolve()), folder)
            else:
                folder.mkdir()
            run_page(text, folder, programs)
            folders[page] = folder
        assert folders[page], f"{page.name} goes first, and failed"
        return folders[page]

    return run


@pytest.mark.slow
@pytest.mark.parametrize("page", RUNNABLE, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_blocks_of_a_page_run(page, finished):
    finished(page)


def test_the_pages_that_must_run_do():
    names = {str(page.relative_to(ROOT)) for page in RUNNABLE}
    must = (
        "README.md",
        "docs/tutorial.md",
        "docs/faq.md",
        "docs/howto/restore-a-ledger.md",
        "docs/howto/use-the-engine.md",
    )
    assert set(must) <= names


def block(language, text):
    return Block(language, "", text, 1)


@pytest.mark.parametrize(
    "broken",
    [
        block("python", "raise SystemExit(3)\n"),
        block("bash", "false\ntrue\n"),
        block("bash", "echo $nothing\n"),
        block("console", "$ echo one\ntwo\n"),
        block("console", "$ false | true\n"),
        block("console", "$ true\n$ exit 4\n"),
        block("console", "$ echo 'synth: no'\nsynth: no\n"),
        block("console", "$ echo 'synth: other' >&2; exit 2\nsynth: no\n"),
    ],
    ids=lambda broken: broken.text.strip().replace("\n", "; "),
)
def test_a_block_that_fails_fails(broken, tmp_path):
    with pytest.raises(BlockFailed, match="line 1"):
        run_block(broken, tmp_path)


def test_a_refusal_that_is_shown_must_happen(tmp_path):
    run_block(block("console", "$ echo 'synth: no room' >&2; exit 2\nsynth: no …\n"), tmp_path)


def test_files_are_written_and_blocks_run_in_order(tmp_path):
    page = (
        '```yaml title="in/a.yaml"\na: 1\n```\n\n```bash\ncp in/a.yaml b.yaml\n```\n'
        "```console\n$ cat b.yaml \\\n    in/a.yaml\na: 1\n…\n```\n```python\nopen('c', 'w').write('x')\n```\n"
        "```bash\n# not run by the tests: it would fail\nfalse\n```\n```text\nfalse\n```\n"
    )
    assert [one.is_run for one in blocks(page)] == [False, True, True, True, False, False]
    run_page(page, tmp_path)
    assert (tmp_path / "c").read_text() == "x"


def test_a_reason_is_needed_to_leave_a_block_out():
    assert block("bash", "# not run by the tests: no engine\nfalse\n").left_out
    assert not block("bash", "# not run by the tests:\nfalse\n").left_out
    assert not block("bash", "false # not run by the tests: tired\n").left_out


def test_output_is_compared_line_by_line():
    assert matches("a\n…\nd…f\n", "a\nb\n\nc\ndef  \n")
    assert matches("a\n…\n", "a\n")
    assert not matches("a\n", "a\nb\n")
    assert not matches("a.c\n", "abc\n")
    assert conversation("$ one \\\n  more\nout\n\n$ two\n") == [("one \\\n  more", "out\n"), ("two", "")]


def test_a_page_may_go_on_from_another():
    assert page_before("# How\n\n<!-- after: ../tutorial.md -->\n") == "../tutorial.md"
    assert page_before("# How\n") is None
