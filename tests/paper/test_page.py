"""The page of a reproduction, and the code that results depend on."""

import json
import math

import pytest
from paper.directory import page_text, table_text, write_page
from paper.experiment import Request
from paper.ledger import Claim, update_ledger

from kdbirl.errors import InputError

CLAIM = Claim("fig1", "a", "ours", "it <holds> & more", "Section 6", "size", 0.1, 0.0, 0.2, 12, "holds", "<b>why</b>")


def reproduction(folder):
    (folder / "fig1").mkdir()
    (folder / "fig1" / "fig1-ours.png").write_bytes(b"\x89PNG picture")
    manifest = {
        "title": "Figure 1 <script>",
        "part": "fig1-ours",
        "configuration": {"quick": True},
        "seeds": [0, 1],
        "captions": {"fig1-ours": '"quoted" <i>'},
        "outputs": {"fig1-ours.json": "", "fig1-ours.png": "", "gone.png": ""},
    }
    (folder / "fig1" / "manifest-ours.json").write_text(json.dumps(manifest))
    one_seed = Claim("fig1", "b", "printed", "c", "w", "s", 1.0, math.nan, math.nan, 1, "cannot be decided", "few")
    update_ledger(folder / "claims.csv", [CLAIM, one_seed])


def test_the_page_has_everything_and_escapes_it(tmp_path):
    reproduction(tmp_path)
    text = write_page(tmp_path, ["fig1", "fig2"]).read_text()
    assert "it &lt;holds&gt; &amp; more" in text
    assert "&lt;b&gt;why&lt;/b&gt;" in text
    assert "<script" not in text
    assert "&quot;quoted&quot; &lt;i&gt;" in text
    assert text.count("data:image/png;base64,") == 1
    assert (
        "python -m paper fig1 \\\n    --variant=ours \\\n    --quick \\\n    --seeds=2 \\\n    --out reproduction"
        in text
    )
    assert "0.1 [0, 0.2]" in text
    assert "nan" not in text
    assert text == page_text(tmp_path, ["fig1", "fig2"])
    assert "http:" not in text
    assert "https:" not in text


def test_tables_are_tidy():
    assert table_text([{"a": 1, "b": 1 / 3}, {"a": "x, y", "c": None}]) == 'a,b,c\n1,0.333333333,\n"x, y",,\n'


def test_a_request_is_checked():
    assert Request(variants=("ours", "printed")).variants == ("printed", "ours")
    assert Request(quick=True).count(12, 2) == 2
    assert Request(seeds=5).count(12, 2) == 5
    with pytest.raises(InputError, match="There is no variant called 'prined'"):
        Request(variants=("prined",))
    with pytest.raises(InputError, match="seeds=1 should be at least 2"):
        Request(seeds=1)
