"""Runs the exact commands of the images' build stages without a container engine: `python infra/checks/stages.py .`.

Each stage named `build` runs in a copy-on-write view of this machine's root, which is thrown away afterwards, so that
an image build would not fail on our side. This needs root, overlay mounts and the base image's Python version.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

Instruction = tuple[str, str]
LARGEST_LAYER = "40G"


def instructions(dockerfile: Path) -> Iterator[Instruction]:
    """The instructions of a Dockerfile, continued lines joined, comments left out."""
    text = re.sub(r"^\s*#.*\n", "", dockerfile.read_text(encoding="utf-8"), flags=re.MULTILINE)
    for line in re.sub(r"\\\n\s*", "", text).splitlines():
        if line.strip():
            word, _, rest = line.strip().partition(" ")
            yield word.upper(), rest.strip()


def build_stage(dockerfile: Path) -> list[Instruction]:
    """The instructions of the stage named `build`."""
    found: list[Instruction] = []
    inside = False
    for word, rest in instructions(dockerfile):
        if word == "FROM":
            inside = rest.lower().endswith(" as build")
        elif inside:
            found.append((word, rest))
    if not found:
        raise SystemExit(f"{dockerfile.name}: there is no stage named build")
    return found


def script(stage: Sequence[Instruction], context: str) -> str:
    """The stage as a shell script that is run inside the changed root."""
    lines = ["set -eu"]
    for word, rest in stage:
        if word == "ENV":
            pairs = [pair.partition("=") for pair in shlex.split(rest)]
            lines += [f'export {name}="{value}"' for name, _, value in pairs]
        elif word == "WORKDIR":
            lines += [f"mkdir -p {rest}", f"cd {rest}"]
        elif word == "COPY":
            *sources, target = rest.split()
            lines.append(f"mkdir -p {target}" if target.endswith("/") or len(sources) > 1 else ":")
            lines += [f"cp -r {context}/{source} {target}" for source in sources]
        elif word == "RUN":
            lines += [f"echo '+ {rest[:100]}'".replace("&&", "and"), rest]
        else:
            raise SystemExit(f"a build stage with {word} cannot be run without an engine")
    return "\n".join(lines) + "\n"


def commands(dockerfile: Path) -> list[str]:
    """What the image runs; asked for help, it shows whether the program and its subcommands are there."""
    return [shlex.join(json.loads(rest)) for word, rest in instructions(dockerfile) if word == "CMD"]


def run_stage(dockerfile: Path, root: Path, scratch: Path) -> int:
    """Run one build stage; the mounts are this process's own and vanish with it.

    What the stage writes goes to a file system in a sparse file, because packages for a GPU would fill the memory.
    """
    changed, layer, disk = scratch / "root", scratch / "layer", scratch / "layer.ext4"
    stage = script(build_stage(dockerfile), str(root))
    checks = "".join(f"/opt/synth/bin/{command} --help > /dev/null\n" for command in commands(dockerfile))
    (scratch / "stage.sh").write_text(stage + checks, encoding="utf-8")
    python = Path(sys.executable).resolve().parent
    mounts = f"""
set -eu
mkdir {changed} {layer}
truncate -s {LARGEST_LAYER} {disk}
mkfs.ext4 -q {disk}
mount -o loop {disk} {layer}
mkdir {layer}/upper {layer}/work
mount -t overlay overlay -o lowerdir=/,upperdir={layer}/upper,workdir={layer}/work {changed}
mount --rbind /proc {changed}/proc
mount --rbind /dev {changed}/dev
chroot {changed} /bin/sh {scratch}/stage.sh
du -sh {layer}/upper/opt | sed 's/\\t.*/ in the image below \\/opt/'
"""
    try:
        return subprocess.run(
            ["unshare", "--mount", "--propagation", "private", "sh", "-c", mounts],
            env={**os.environ, "PATH": f"{python}:{os.environ['PATH']}"},
            check=False,
        ).returncode
    finally:
        disk.unlink(missing_ok=True)


def main() -> int:
    """Run every stage that was asked for, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("root", type=Path)
    parser.add_argument("--only", help="name of one Dockerfile, without its ending")
    parser.add_argument("--scratch", type=Path, required=True, help="an empty folder")
    arguments = parser.parse_args()
    failed = []
    for dockerfile in sorted((arguments.root / "docker").glob(f"{arguments.only or '*'}.Dockerfile")):
        folder = arguments.scratch / dockerfile.stem
        folder.mkdir(parents=True)
        sys.stdout.write(f"== {dockerfile.name}\n")
        sys.stdout.flush()
        if run_stage(dockerfile, arguments.root.resolve(), folder):
            failed.append(dockerfile.name)
    sys.stdout.write(f"failed: {', '.join(failed)}\n" if failed else "all build stages ran\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
