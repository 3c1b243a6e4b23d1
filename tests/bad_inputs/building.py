"""Bad inputs of `python -m detection build` and `… select`."""

from __future__ import annotations

import bz2
from functools import partial

from tests.bad_inputs.material import jsonl, sentence
from tests.bad_inputs.row import M, Row, bad, values
from tests.dumps import HEAD

build = partial(bad, "detection build")
select = partial(bad, "detection select")
DATED = jsonl({"text": sentence(i), "created": f"20{10 + i}-01-01T00:00:00Z"} for i in range(15))
KNOWN = {"d.jsonl": DATED}
VALUES = {
    "build.number": "0 -5 x",
    "build.lengths": "[] [0] [8,8]",
    "build.candidates": "0",
    "build.near_duplicates": "mend",
    "build.slices": "week",
    "build.least_bleu": "0 75 nan",
    "build.processes": "0",
    "source.on_error": "mend",
    "source.zone": "Mars",
    "source.paths": "nowhere.jsonl",
}


def dated(content: str | bytes, *words: str, name: str = "d.jsonl", source: str = "jsonl") -> Row:
    """A file of documents of which no benchmark can be built."""
    given = f"source={source} source.paths={name}"
    return build(given, *words, files={name: content}, late=True)


ROWS = [
    *values("detection build", VALUES),
    build("build.members_before=2020-01-01", "build.members_before", "2020-01-01", "cross"),
    build("build.members_before=soon", "build.members_before", "soon", "2017-01-01"),
    build("~build.members_before", "members_before", slow=True),
    build("build.nmber=3", "nmber", slow=True),
    build("source=wikipedias", "source", "wikipedia"),
    build("source=wikipedia source.paths=d.xml source.drop_titles=\"(\"", "source.drop_titles", files={"d.xml": ""}),
    build("source=wikipedia source.paths=d.xml source.dates=none.csv", "source.dates", "none.csv", files={"d.xml": ""}),
    build("build.members_before=1990-01-01 build.nonmembers_from=1990-01-01", "source.paths", "both sides", "15 non-member", files=KNOWN, late=True),
    build("build.lengths=[500]", "build.number", "500 words", files=KNOWN, late=True),
    dated("", "source.paths", "no document"),
    dated('{"text": "a", "created": "2015-01-01"}', "d.jsonl, row 1", "no time zone", "source.zone"),
    dated('{"text": "a", "created": "May"}', "d.jsonl, row 1", "'May'"),
    dated('{"text": "a", "date": "2015"}', "d.jsonl, row 1", "'created'", "date"),
    dated('{"text": 5, "created": "2015-01-01T00:00:00Z"}', "d.jsonl, row 1", "'text' is a int"),
    dated('{"text": "\\ud800", "created": "2015-01-01T00:00:00Z"}', "d.jsonl, row 1", "surrogates"),
    dated(HEAD + "<page><ns>0</ns><id>x</id></page></mediawiki>", "d.xml", "MediaWiki dump", name="d.xml", source="wikipedia"),
    dated('{"text": "a"', "d.jsonl, row 1", "JSON"),
    dated("", "d.xml", "no element", name="d.xml", source="wikipedia"),
    dated(HEAD, "d.xml", "cut off", name="d.xml", source="wikipedia"),
    dated(bz2.compress(HEAD.encode())[:-9], "d.xml.bz2", "end-of-stream", name="d.xml.bz2", source="wikipedia"),
    dated("<posts></posts>", "d.xml", "<posts>", "<mediawiki>", name="d.xml", source="wikipedia"),
    dated("<posts><row", "Posts.xml", "cut off", name="Posts.xml", source="stackexchange"),
    dated("<feed></feed>", "Posts.xml", "<feed>", "<posts>", name="Posts.xml", source="stackexchange"),
    dated(b"7z\xbc\xaf'\x1c\x00\x04", "d.7z", "archive", name="d.7z", source="stackexchange"),
    select("corpus_folder=null", "corpus_folder", "None"),
    select(f"corpus_folder={M}/hf", "hf"),
    select("corpus=local_jsonl", "corpus_folder", "corpus"),
    select("examples.path=nowhere.jsonl corpus_folder=null corpus=local_jsonl corpus.paths=d.jsonl", "examples.path", "nowhere.jsonl", files=KNOWN),
    *values("detection select", {"select.ngram": "0", "select.max_share": "2 nan", "select.processes": "0"}),
]  # fmt: skip
