import pytest
from hypothesis import given
from hypothesis import strategies as st

from contamination.core.distinct_names import distinctly_named


@pytest.mark.parametrize(
    ("names", "distinct"),
    [
        (["a", "b"], ["a", "b"]),
        (["a", "b", "a"], ["a-1", "b", "a-3"]),
        (["a", "a", "a-2"], ["a-1", "a-2-2", "a-2-3"]),
        (["a-1", "a", "a", "a-1-1"], ["a-1", "a-2", "a-3", "a-1-1"]),
        (["a", "a", "a-1", "a-1-1"], ["a-1-1-1", "a-2", "a-1-3", "a-1-1-4"]),
        ([], []),
    ],
)
def test_a_name_with_its_ending_may_be_that_of_another(names, distinct):
    assert distinctly_named(names, [f"-{n}" for n in range(1, len(names) + 1)]) == distinct


PARTS = st.lists(st.sampled_from(["a", "-1", "-2", "-3", " (1)", " (2)"]), max_size=4).map("".join)


@given(st.lists(PARTS, max_size=8), st.sampled_from(["-{}", " ({})"]))
def test_names_differ_and_begin_as_they_did(names, form):
    distinct = distinctly_named(names, [form.format(n) for n in range(1, len(names) + 1)])
    assert len({*distinct}) == len(names)
    for name, found in zip(names, distinct, strict=True):
        assert found.startswith(name)
    if len({*names}) == len(names):
        assert distinct == names


def test_endings_that_do_not_differ_are_an_error():
    with pytest.raises(ValueError, match="'a' is there 2 times"):
        distinctly_named(["a", "b", "a"], ["-x", "-x", "-x"])
