"""Build stages are read as an engine would read them; what cannot be run without one is refused by name."""

import importlib.util
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
spec = importlib.util.spec_from_file_location("stages", ROOT / "infra/checks/stages.py")
stages = importlib.util.module_from_spec(spec)
spec.loader.exec_module(stages)

DOCKERFILE = """\
ARG PYTHON=3.11
FROM python:${PYTHON} AS build
# a comment
ENV A=1 B="two words"
WORKDIR {here}/build
COPY one.txt two.txt ./
COPY folder folder
RUN cat one.txt two.txt folder/three.txt \\
    && echo "$A $B"
FROM python:${PYTHON}
RUN exit 1
CMD ["dask", "worker"]
"""


def written(folder, text):
    path = folder / "x.Dockerfile"
    path.write_text(text.replace("{here}", str(folder)))
    return path


def test_a_stage_becomes_a_script_that_does_the_same(tmp_path):
    for name in ("one.txt", "two.txt", "folder/three.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f"{name}\n")
    stage = stages.build_stage(written(tmp_path, DOCKERFILE))
    done = subprocess.run(["sh", "-c", stages.script(stage, str(tmp_path))], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[1:] == ["one.txt", "two.txt", "folder/three.txt", "1 two words"]


def test_a_command_that_fails_fails_the_stage(tmp_path):
    stage = stages.build_stage(written(tmp_path, "FROM x AS build\nRUN false\nRUN true\n"))
    assert subprocess.run(["sh", "-c", stages.script(stage, str(tmp_path))], check=False).returncode


def test_the_command_of_the_image_is_known(tmp_path):
    assert stages.commands(written(tmp_path, DOCKERFILE)) == ["dask worker"]
    options = 'CMD ["dask", "worker", "tcp://a:1", \\\n    "--nthreads", "1"]'
    assert stages.commands(written(tmp_path, options)) == ["dask worker tcp://a:1 --nthreads 1"]


def test_what_needs_an_engine_is_refused(tmp_path):
    stage = stages.build_stage(written(tmp_path, "FROM x AS build\nADD a b\n"))
    with pytest.raises(SystemExit, match="ADD"):
        stages.script(stage, "/")
    with pytest.raises(SystemExit, match="no stage named build"):
        stages.build_stage(written(tmp_path, "FROM x\nRUN true\n"))


@pytest.mark.parametrize("name", ["airflow", "worker", "worker-cuda"])
def test_the_build_stages_of_the_images_need_no_engine(name):
    stage = stages.build_stage(ROOT / "docker" / f"{name}.Dockerfile")
    text = stages.script(stage, "/context")
    assert f"{name}.lock" in text
    assert "synth_core.warm" in text
