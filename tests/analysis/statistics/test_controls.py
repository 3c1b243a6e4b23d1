"""When a control is off, and what is then said."""

from __future__ import annotations

from analysis.statistics.controls import control_rows, off_controls, stamp


def test_one_look_a_method_decides(results):
    rows = control_rows(results)
    assert rows["method"].tolist() == ["loss", "min_k", "min_k_plus_plus", "blind"]
    assert set(rows["benchmark"]) == {"all"}
    assert set(rows["occurrences"]) == {"any"}


def test_sound_controls_have_no_stamp(sound):
    assert off_controls(sound).empty
    assert stamp(sound) is None


def test_an_interval_on_either_side_of_one_half_is_off(sound):
    off = sound.copy()
    off.loc[(off["method"] == "blind"), ["ci_low", "ci_high"]] = 0.6, 0.7
    off.loc[(off["method"] == "loss"), ["ci_low", "ci_high"]] = 0.3, 0.4
    off.loc[(off["method"] == "min_k"), ["value", "ci_low", "ci_high"]] = 0.6, 0.51, 0.7
    words = stamp(off)
    assert words.startswith("CONTROL OFF: clean loss")
    assert "[0.30, 0.40], clean min_k 0.60 [0.51, 0.70] leaves" in words
    assert "differ in themselves. The texts alone tell" in words


def test_an_interval_that_ends_at_one_half_is_not_off(sound):
    for ends in ((0.5, 0.6), (0.4, 0.5)):
        at = sound.copy()
        at[["ci_low", "ci_high"]] = ends
        assert off_controls(at).empty


def test_a_blind_baseline_that_is_off_says_what_the_figures_may_measure(sound):
    off = sound.copy()
    of_texts = (off["method"] == "blind") & (off["metric"] == "auroc")
    off.loc[of_texts, ["value", "ci_low", "ci_high"]] = 0.66, 0.6, 0.7
    said = (
        "The texts alone tell members from non-members (blind AUROC 0.66 [0.60, 0.70]): these "
        "figures may measure the texts, not the model."
    )
    assert stamp(off) == f"CONTROL OFF: {said}"


def test_a_benchmark_alone_stamps_nothing(sound):
    off = sound.copy()
    off.loc[off["benchmark"] == "imdb", "ci_low"] = 0.9
    assert stamp(off) is None
