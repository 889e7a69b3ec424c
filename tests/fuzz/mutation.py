"""Broken input from good input: bytes, JSON values, npz archives and command lines, changed at random, repeatably."""

import io
import json
import random
import zipfile
from collections.abc import Sequence
from typing import Any

import numpy as np

MAGIC = [0, 1, 2, 7, 8, 127, 128, 255, 256, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**63 - 1, 2**64 - 1]
TOKENS = [
    *(b'"', b"'", b",", b";", b"\t", b"|", b"\n", b"\r", b"\r\n", b"\0", b"=", b"+", b"-", b"@", b".", b"e", b"%"),
    *(b"\xef\xbb\xbf", b"\xff\xfe", b"\xe9", b"\xc0\x80", b"\xf0\x9f\x98\x80", b"sep=;\n", b"'=1+1", b"task", b"x,x"),
    *(b"nan", b"inf", b"-1", b"1e999", b"9" * 30, b"1" * 5000, b"None", b"null", b"true", b"[", b"]", b"{", b"}"),
    *(b"<script>alert(1)</script>", b"../../x", b"\x1b[2J", b"=cmd|'/C calc'!A0", b"PAR1", b"\x89HDF\r\n\x1a\n"),
]
VALUES: list[Any] = [
    *(None, True, False, 0, 1, -1, 2, 0.5, -0.0, 1e308, -1e308, 5e-324, float("nan"), float("inf"), float("-inf")),
    *(2**31, 2**63, 2**64, 10**30, 10**400, "", "x", "0", "nan", "\0", "\ud800", "../../x", "<b>", "x" * 3000, "=1"),
    *([], [[]], {}, [1, 2], [None], {"kind": "vae"}, {"kind": "product", "priors": []}, {"": {}}, ["a"] * 50),
]


def mutated_bytes(rng: random.Random, seeds: Sequence[bytes]) -> bytes:
    """One to a few changes of a seed: bits, magic numbers, cuts, repetitions, tokens, pieces of other seeds."""
    data = bytearray(rng.choice(seeds))
    for _ in range(rng.choice((1, 1, 1, 2, 3, 8))):
        _change(rng, data, seeds)
    return bytes(data)


def _change(rng: random.Random, data: bytearray, seeds: Sequence[bytes]) -> None:
    place = rng.randrange(len(data) + 1)
    span = rng.choice((1, 2, 4, 8, 16, 64, 512))
    kind = rng.randrange(9)
    if kind == 0 and data:
        data[place % len(data)] ^= 1 << rng.randrange(8)
    elif kind == 1 and data:
        data[place % len(data)] = rng.randrange(256)
    elif kind == 2:
        size = rng.choice((1, 2, 4, 8))
        data[place : place + size] = (rng.choice(MAGIC) % 256**size).to_bytes(size, rng.choice(("little", "big")))
    elif kind == 3:
        del data[place : place + span]
    elif kind == 4:
        data[place:place] = data[place : place + span] * rng.choice((1, 1, 2, 50))
    elif kind == 5:
        data[place:place] = rng.choice(TOKENS)
    elif kind == 6:
        other = rng.choice(seeds)
        start = rng.randrange(len(other) + 1)
        data[place : place + span] = other[start : start + span]
    elif kind == 7:
        del data[place:]
    else:
        data[place : place + span] = rng.randbytes(span)


def mutated_value(rng: random.Random, value: Any) -> Any:
    """A JSON value with one place in it replaced, removed, renamed or doubled."""
    if isinstance(value, dict) and value and rng.random() < 0.9:
        key, kind = rng.choice(list(value)), rng.random()
        if kind < 0.12:
            return {k: v for k, v in value.items() if k != key}
        if kind < 0.18:
            return {**value, rng.choice(("x", "kind", "name", "")): rng.choice(VALUES)}
        return {**value, key: mutated_value(rng, value[key])}
    if isinstance(value, list) and value and rng.random() < 0.8:
        place, kind = rng.randrange(len(value)), rng.random()
        if kind < 0.15:
            return value[:place] + value[place + 1 :]
        if kind < 0.3:
            return value + value[place : place + 1] * rng.choice((1, 3))
        return [*value[:place], mutated_value(rng, value[place]), *value[place + 1 :]]
    if rng.random() < 0.02:
        return _deep(rng.choice((50, 5000)))
    if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e200 and rng.random() < 0.4:
        return value * rng.choice((-1, 0, 2, 1e10, 1e-10, 10**20))
    return rng.choice(VALUES)


def _deep(depth: int) -> Any:
    value: Any = []
    for _ in range(depth):
        value = [value]
    return value


def json_text(value: Any) -> bytes:
    """As a file; where Python refuses (too deep), a text of that kind."""
    try:
        return json.dumps(value).encode()
    except (RecursionError, ValueError):
        return b"[" * 100_000


def mutated_json(rng: random.Random, seeds: Sequence[bytes]) -> bytes:
    """Values more often than bytes: most broken bytes are no JSON at all."""
    if rng.random() < 0.3:
        return mutated_bytes(rng, seeds)
    value = json.loads(rng.choice(seeds))
    for _ in range(rng.choice((1, 1, 2, 4))):
        value = mutated_value(rng, value)
    return json_text(value)


def mutated_npz(rng: random.Random, seeds: Sequence[bytes]) -> bytes:
    """Bytes of the archive; or an intact archive with a changed record, a changed array, or a header that lies."""
    seed = rng.choice(seeds)
    kind = rng.random()
    if kind < 0.25:
        return mutated_bytes(rng, [seed])
    with zipfile.ZipFile(io.BytesIO(seed)) as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}
    for _ in range(rng.choice((1, 1, 2))):
        name = "record.npy" if kind > 0.55 and "record.npy" in entries else rng.choice(list(entries))
        if name == "record.npy" and rng.random() < 0.95:
            entries[name] = _changed_record(rng, entries[name])
        elif rng.random() < 0.3:
            entries[name] = mutated_bytes(rng, [entries[name]])
        else:
            entries[name] = _changed_array(rng, entries[name])
    if rng.random() < 0.05:
        entries.pop(rng.choice(list(entries)))
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))) as archive:
        for name, data in entries.items():
            archive.writestr(name, data)
    return stream.getvalue()


def _changed_record(rng: random.Random, data: bytes) -> bytes:
    try:
        stored = np.load(io.BytesIO(data))
        text = stored.tobytes() if stored.dtype == np.uint8 else str(stored).encode()
        changed = json_text(mutated_value(rng, json.loads(text)))
    except Exception:  # changed before, and no JSON any more
        return data
    as_before = np.frombuffer(changed, np.uint8) if stored.dtype == np.uint8 else np.array(changed.decode())
    return _npy(as_before)


def _changed_array(rng: random.Random, data: bytes) -> bytes:
    try:
        array = np.load(io.BytesIO(data))
    except Exception:  # changed before, and no array any more
        return data
    kind = rng.randrange(6)
    if kind == 0 and array.size and array.dtype.kind == "f":
        array = array.copy()
        array.reshape(-1)[rng.randrange(array.size)] = rng.choice((np.nan, np.inf, 0.0, 1e308, -1e308, 1e-320))
    elif kind == 1 and array.dtype.kind in "fiu":
        array = array * array.dtype.type(rng.choice((0, 1, 2, 100)))
    elif kind == 2 and array.ndim:
        array = array[: rng.randrange(len(array) + 1)]
    elif kind == 3:
        array = array.reshape(rng.choice(((-1,), (1, *array.shape), (*array.shape, 1))))
    elif kind == 4 and array.dtype.kind in "fiu":
        array = array.astype(rng.choice(("f4", "i8", "u1", ">f8", "c16", "b1", "S3", "U2")))
    else:
        array = rng.choice((np.zeros(0), np.zeros((3, 0)), np.array(1.5), np.array("x"), np.array(-1)))
    return _npy(array)


def _npy(array: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array, allow_pickle=False)
    return stream.getvalue()


WORDS = [
    "",
    "-",
    "--",
    "0",
    "-1",
    "1",
    "2",
    "1e999",
    "nan",
    "inf",
    "9999999999999999999999999999999999999999",
    "x",
    "x,y",
    "x,x",
    ",",
    "a=b",
    "=",
    "/",
    "/dev/zero",
    "/dev/null",
    "/proc/self/mem",
    "..",
    ".",
    "~",
    "~nobody-here",
    "missing.csv",
    "*",
    "/**",
    "uniform:0,1",
    "uniform:1,0",
    "uniform:nan,1",
    "normal:0,-1",
    "beta:1,1,0,1",
    "laplace:0,1e400",
    "uniform",
    "x=normal:0,1",
    "gridworld:2",
    "gridworld:0",
    "gridworld:99999",
    "gridworld:999999999999999999999999999999",
    "gridworld:²",
    "gridworld-xy:3",
    "icu-sepsis",
    "os:system-v0",
    "FrozenLake-v1",
    "FrozenLake-v1:next-state",
    "sepsis",
    "cell 3=1",
    "0,0,0,1",
    "grid:2+onehot-actions",
    "pca:999",
    "vae:0",
    "columns:",
    "onehot",
    "loto",
    "cv",
    "median",
    "0.5,0.5",
    "-1,1",
    "nuts",
    "grid",
    "vi",
    "cosine",
    "\u202e",
    "\ud800",
    "é",
    "\x1b[31m",
    "%s",
    "{}",
    "$(id)",
    "';--",
    "<b>",
    "\n",
    "\t",
    "--help",
    "--version",
    "--json",
    *("1" * 5000, "x" * 5000, "/" + "a" * 300),
]


def mutated_words(rng: random.Random, lines: Sequence[Sequence[str]], options: Sequence[str]) -> list[str]:
    """A command line with words replaced, dropped, doubled, swapped or broken."""
    words = list(rng.choice(lines))
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        place, kind = rng.randrange(1, len(words) + 1), rng.random()
        if kind < 0.5 and place < len(words):
            words[place] = rng.choice(WORDS)
        elif kind < 0.6 and place < len(words):
            del words[place]
        elif kind < 0.75:
            words[place:place] = [rng.choice(options), rng.choice(WORDS)]
        elif kind < 0.85 and place < len(words):
            words[place] = mutated_bytes(rng, [words[place].encode("utf-8", "surrogatepass")]).decode(
                "utf-8", "replace"
            )
        else:
            words[place:place] = [rng.choice(WORDS)]
    return [word.replace("\0", "") for word in words]  # no process can be given a NUL
