"""Each method's look: its own, and the same every time."""

from __future__ import annotations

from analysis.methods import LOOKS, in_order, label, look

PAIRS = [("blind", ""), ("new", ""), ("min_k", "k=0.4"), ("min_k", "k=0.2"), ("loss", "")]


def test_no_two_known_methods_look_alike():
    assert len({each.colour for each in LOOKS.values()}) == len(LOOKS)
    assert len({each.marker for each in LOOKS.values()}) == len(LOOKS)


def test_an_unknown_method_always_looks_the_same_and_like_no_known_one():
    assert look("new") == look("new")
    assert look("new").colour not in {each.colour for each in LOOKS.values()}


def test_order_is_known_then_others_then_blind():
    expected = [("loss", ""), ("min_k", "k=0.2"), ("min_k", "k=0.4"), ("new", ""), ("blind", "")]
    assert in_order(PAIRS) == expected


def test_a_variant_is_named_where_there_are_several():
    assert label("min_k", "k=0.2", PAIRS) == "min_k (k=0.2)"
    assert label("loss", "", PAIRS) == "loss"
