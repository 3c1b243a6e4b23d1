"""Plain text of wikitext."""

import random

import pytest

from contamination.detection.building.sources.wikipedia import NO_TEXT, PREFIX, strip_wikitext

parser = pytest.importorskip("mwparserfromhell", reason="pip install '.[build]'")
definitions = pytest.importorskip("mwparserfromhell.definitions")
MARKS = """
[[ ]] {{ }} | [http://a.b ] http://x.y '' ''' <ref> </ref> <ref~name="x"/> <b> </b>
<nowiki> </nowiki> <math> </math> &amp; &nbsp; &#65; &#x41; &bogus; <!-- --> {{{ }}} = :
<small> </small> <hr/> word File: fr: s:
[[Category:X]] [[File:a.png|thumb|x~[[y]]~z]] [[Foo|]] [[a|b]] {{x|y=1}} {| |- |}
<div~class='a'> </div> <gallery> </gallery> [http://a.b~c]
"""
LINES = ["\n", "\n== H ==\n", "\n* ", "\n# ", "{|\n", "\n|-\n| a || b\n", "\n|}", " other words "]


def by_nodes(code):
    """The plain text by the tree of nodes."""
    parts = []
    for node in code.nodes:
        match type(node).__name__:
            case "Text":
                parts.append(node.value)
            case "Wikilink":
                prefix, shown = PREFIX.match(str(node.title)), node.text
                inside = shown is not None and "|" not in str(shown)
                if not prefix or (inside and prefix.group(1).islower()):
                    parts.append(by_nodes(shown or node.title))
            case "ExternalLink" if node.title is not None:
                parts.append(by_nodes(node.title))
            case "HTMLEntity":
                parts.append(node.normalize())
            case "Tag" if definitions.is_visible(name := str(node.tag).lower()):
                parts.append("" if name in NO_TEXT else by_nodes(node.contents))
    return "".join(parts)


def test_the_tokens_give_what_the_tree_of_nodes_gives():
    rng = random.Random(0)
    marks = [mark.replace("~", " ") for mark in MARKS.split()] + LINES
    for _ in range(1_500):
        text = "".join(rng.choice(marks) for _ in range(rng.randint(1, 25)))
        assert strip_wikitext(text) == by_nodes(parser.parse(text)), text


def test_a_line_break_parts_words():
    assert strip_wikitext("one<br/>two<br>three").split() == ["one", "two", "three"]
