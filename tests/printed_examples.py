"""Examples as README and the pages in docs/ print them, run as they stand."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

EXAMPLE = re.compile(r"<!-- example: (\w+) -->\n```\w+\n(.*?)```", flags=re.DOTALL)
BLOCK = re.compile(r"^(?P<above>.*)\n *```(?P<language>.*)\n(?P<text>(?:.*\n)*?) *```$", flags=re.MULTILINE)
NOT_RUN = re.compile(r"<!-- not run: (?P<reason>.+) -->")
SHOWN = {"text"}  # languages of what is shown and cannot be run


def all_examples(page):
    """(kind, text) of the blocks that follow `<!-- example: kind -->`, in their order."""
    found = EXAMPLE.findall(page)
    assert page.count("<!-- example:") == len(found), "a marked example is not followed by a block"
    return found


def unexplained_blocks(page):
    """Blocks that are neither run, nor mere text, nor marked `<!-- not run: a reason of three words at least -->`."""
    found = []
    for block in BLOCK.finditer(page):
        reason = NOT_RUN.fullmatch(block["above"])
        explained = reason is not None and len(reason["reason"].split()) >= 3
        if not (explained or block["language"] in SHOWN or block["above"].startswith("<!-- example: ")):
            found.append(f"{block['language'] or 'no language'}: {block['text'].splitlines()[0]}")
    return found


def examples(page, kind):
    return [text for name, text in all_examples(page) if name == kind]


def run_shell(block, folder):
    """The commands of a block, run by a shell in the current directory; the finished process."""
    commands = re.sub(r"^\$ ", "", block, flags=re.MULTILINE)
    assert commands != block, "a command starts with $"
    environment = os.environ | {"PATH": search_path(folder)}
    return subprocess.run(["bash", "-euc", commands], capture_output=True, text=True, check=False, env=environment)


def run_python(program, name, namespace):
    exec(compile(program, name, "exec"), namespace)


def search_path(folder):
    """Where `kdbirl` is found: beside the Python that runs the tests or, if it is not installed there, a stand-in."""
    beside = Path(sys.executable).parent
    if not (beside / "kdbirl").exists():
        beside = folder / "bin"
        beside.mkdir(exist_ok=True)
        (beside / "kdbirl").write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m kdbirl "$@"\n')
        (beside / "kdbirl").chmod(0o755)
    return f"{beside}{os.pathsep}{os.environ['PATH']}"
