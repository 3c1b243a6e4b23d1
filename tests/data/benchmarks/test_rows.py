"""Rows of labelled benchmarks, from files, folders and the hub."""

import json
import logging
from fnmatch import fnmatchcase
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir

from contamination.core.artifacts import WrittenFiles, build_or_open
from contamination.core.config import CONF, convert_config
from contamination.core.errors import ArtifactError, ConfigError, DataError
from contamination.data.benchmark_parts import chosen_parts, split_by_labels
from contamination.data.benchmark_rows import check_parts_have_both_labels
from contamination.data.config import ExamplesConfig, SourceConfig
from contamination.data.examples import make_text
from contamination.data.readers.rows import Row, Shard
from contamination.data.texts import Texts
from contamination.detection.config import DetectionStage
from contamination.detection.examples import open_examples
from contamination.detection.tasks.config import OnlineStage
from tests.data.benchmarks import layouts
from tests.data.benchmarks.layouts import SEEN, UNSEEN, write


def opened(benchmark, path, *overrides):
    words = [f"examples={benchmark}", f"examples.path='{path}'", "model.path=x", *overrides]
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return open_examples(convert_config(compose("detection", words), DetectionStage).examples)


def test_wikimia_is_read_by_length_and_setting(tmp_path, caplog):
    texts = opened("wikimia", layouts.wikimia(tmp_path))
    assert len({t.example_id for t in texts}) == 2 * (4 + 3) == len(texts)
    one = texts[2 * 2]
    assert (one.example_id, one.benchmark) == ("wikimia/64/original/0", "wikimia/64/original")
    assert (one.text, one.label) == (f"{UNSEEN} and 64 more.", False)
    assert "wikimia has no length 256, setting paraphrased" in caplog.text
    few = opened("wikimia", tmp_path, "examples.length=64", "examples.setting=[original]")
    assert [*few] == [*texts[4:6]]  # ids and texts are the same whatever else is read


def test_the_online_setting_reads_a_part_too(tmp_path):
    folder = layouts.wikimia(tmp_path)
    words = ["examples=wikimia", f"examples.path={folder}", "examples.length=32", "model.path=x"]
    with initialize_config_dir(str(CONF), version_base="1.3"):
        stage = convert_config(
            compose("online", [*words, "examples.setting=original"]), OnlineStage
        )
    assert len(open_examples(stage.examples)) == 2


def test_one_file_is_one_part_or_says_which(tmp_path):
    file = layouts.wikimia(tmp_path) / "data" / "WikiMIA_length32.jsonl"
    part = "examples.length=32", "examples.setting=original"
    assert opened("wikimia", file, *part)[1].example_id == "wikimia/32/original/1"
    with pytest.raises(ConfigError, match=r"as 7 parts.*no column length, setting.*length=32"):
        opened("wikimia", file)
    rows = [{"text": t, "label": n, "length": k} for n, t in enumerate("ab") for k in (8, 16)]
    mine = write(tmp_path, {"mine.jsonl": rows}) / "mine.jsonl"
    assert [t.benchmark for t in opened("jsonl", mine)] == ["jsonl/8", "jsonl/16"] * 2
    short = opened("jsonl", mine, "examples.length=8", "examples.name=mine")
    assert [t.example_id for t in short] == ["mine/8/0", "mine/8/2"]


def test_mimirs_lines_are_strings_and_its_files_say_the_label(tmp_path):
    folder = layouts.mimir(tmp_path)
    texts = opened("mimir", folder, "examples.domain=[arxiv,github]")
    assert [t.label for t in texts] == [True, True, False, False] * 2
    assert texts[2].text == f"{UNSEEN}, says arxiv's ngram_13_0.8 line 0."
    assert texts[2].example_id == "mimir/arxiv/ngram_13_0.8/non-member-0"
    with pytest.raises(DataError, match=r"no file train/github_ngram_7_0.2.*It has cache_100"):
        opened("mimir", folder, "examples.domain=github", "examples.setting=ngram_7_0.2")


@pytest.mark.parametrize("name", ["stackmia", "bookmia"])
def test_snippets(name, tmp_path):
    texts = opened(name, getattr(layouts, name)(tmp_path))
    assert {(t.text.rstrip("."), t.label) for t in texts} == {(SEEN, True), (UNSEEN, False)}
    assert len({t.example_id for t in texts}) == len(texts)


def test_files_of_one_part_have_ids_of_their_own(tmp_path):
    rows = [{"snippet": SEEN, "label": 1}, {"snippet": UNSEEN, "label": 0}]
    folder = write(tmp_path, {"a.jsonl": rows, "b.jsonl": rows[:1]})
    ids = [t.example_id for t in opened("bookmia", folder, "~examples.columns.cluster")]
    assert ids == ["bookmia/a.jsonl-0", "bookmia/a.jsonl-1", "bookmia/b.jsonl-0"]
    with pytest.raises(DataError, match="no column 'book_id' for the cluster of bookmia"):
        opened("bookmia", folder)


def test_a_cluster_is_a_column_of_any_rows(tmp_path):
    assert [t.cluster for t in opened("bookmia", layouts.bookmia(tmp_path / "books"))] == ["0", "1"]
    rows = [{"text": SEEN, "label": 1, "Cluster": "a"}, {"text": UNSEEN, "label": 0}]
    file = write(tmp_path, {"own.jsonl": rows}) / "own.jsonl"
    assert [t.cluster for t in opened("jsonl", file)] == ["a", ""]
    assert [t.cluster for t in open_examples(ExamplesConfig(str(file)))] == ["a", ""]


def test_rows_of_one_splits_files_are_numbered_through(tmp_path):
    rows = [{"input": SEEN, "label": 1}, {"input": UNSEEN, "label": 0}]
    names = [f"data/WikiMIA_length32-{n:05d}-of-00002.jsonl" for n in (0, 1)]
    folder = write(tmp_path, dict.fromkeys(names, rows))
    texts = opened("wikimia", folder, "examples.length=32", "examples.setting=original")
    assert [t.example_id for t in texts] == [f"wikimia/32/original/{n}" for n in range(4)]


def test_the_hub_is_asked_for_each_parts_split(monkeypatch):
    asked = []

    def load(path, subset, split, revision, read):
        asked.append((path, split))
        yield from ({"input": f"{split} {n}", "label": n} for n in (0, 1))

    monkeypatch.setattr("contamination.data.rows.hub.stream_split", load)
    texts = opened("wikimia", "hub", "examples.length=64")
    assert asked == [
        ("swj0419/WikiMIA", "WikiMIA_length64"),
        ("zjysteven/WikiMIA_paraphrased_perturbed", "WikiMIA_length64_paraphrased"),
    ]
    assert texts[3].text == "WikiMIA_length64_paraphrased 1"


def test_mimirs_files_are_brought_from_the_hub_without_a_script(tmp_path, monkeypatch):
    asked, cache = [], tmp_path / "snapshot"
    for file in layouts.mimir(tmp_path / "blobs").rglob("*.jsonl"):
        name = file.relative_to(tmp_path / "blobs")
        blob = file.rename(tmp_path / "blobs" / str(name).replace("/", "-").replace(".jsonl", ""))
        (cache / name).parent.mkdir(parents=True, exist_ok=True)
        (cache / name).symlink_to(blob)  # as the hub's client keeps them

    def snapshot(field, name, files, kind):
        assert (field, kind) == ("examples.path", "dataset")
        names = [path.relative_to(cache).as_posix() for path in cache.rglob("*.jsonl")]
        asked.append((name, *(n for n in names if fnmatchcase(n, files[0]))))
        return cache

    monkeypatch.setattr("contamination.data.benchmark_rows.download_snapshot", snapshot)
    assert len(opened("mimir", "hub", "examples.domain=arxiv")) == 4
    name, folder = "arxiv_ngram_13_0.8.jsonl", "cache_100_200_1000_512"
    assert asked == [("iamgroot42/mimir", f"{folder}/{s}/{name}") for s in ("train", "test")]


def test_a_built_benchmarks_files_are_read_whole(tmp_path):
    rows = [{"id": f"{n}", "text": t, "label": n, "benchmark": "wiki"} for n, t in enumerate("ab")]
    files = {
        f"length{k}{end}.jsonl": [{**row, "length": k, "setting": s} for row in rows]
        for k in (32, 64)
        for s, end in (("original", ""), ("swap", "-swap"))
    }
    texts = opened("jsonl", write(tmp_path, files))
    assert len({t.example_id for t in texts}) == 8
    assert {t.benchmark for t in texts} >= {"wiki/32/original", "wiki/64/swap"}
    part = opened("jsonl", tmp_path, "examples.length=64", "examples.setting=swap")
    assert [t.example_id for t in part] == ["wiki/64/swap/0", "wiki/64/swap/1"]


@pytest.mark.parametrize(
    ("rows", "words", "said"),
    [
        ([{"txt": "a", "label": 1}], [], r"no column 'input'.*columns are txt, label.*columns\.te"),
        ([{"input": "a"}], [], r"no column 'label'.*columns are input"),
        ([{"input": "a", "label": 1}], [], r"1 members, but a benchmark needs members and non-m"),
        ([{"input": "a", "label": 2}], [], "label is 2"),
        ([], ["examples.length=512"], r"examples\.length is '512': wikimia has 32, 64, 128, 256"),
        ([], ["examples.length=256", "examples.setting=paraphrased"], r"wikimia has no such part"),
    ],
)
def test_bad_input_is_one_paragraph(rows, words, said, tmp_path, caplog):
    caplog.set_level(logging.ERROR)
    write(tmp_path, {"WikiMIA_length32.jsonl": rows})
    words = words or ["examples.length=32", "examples.setting=original"]
    with pytest.raises((ConfigError, DataError), match=said) as error:
        opened("wikimia", tmp_path, *words)
    assert "\n" not in str(error.value)


def test_a_folder_of_save_to_disk(tmp_path):
    import datasets

    rows = datasets.Dataset.from_list([{"input": SEEN, "label": 1}, {"input": UNSEEN, "label": 0}])
    datasets.DatasetDict({"WikiMIA_length32": rows}).save_to_disk(tmp_path)
    assert len(opened("wikimia", tmp_path, "examples.length=32", "examples.setting=original")) == 2
    with pytest.raises(DataError, match="'WikiMIA_length64': the data set has WikiMIA_length32"):
        opened("wikimia", tmp_path, "examples.length=64", "examples.setting=original")


def own_columns(folder, **columns):
    """A WikiMIA file whose rows have columns of other meanings."""
    rows = [{"input": f"{text} {n}", "label": label, **{k: v(n) for k, v in columns.items()}}
            for n in range(6) for label, text in ((0, UNSEEN), (1, SEEN))]  # fmt: skip
    return write(folder, {"WikiMIA_length32.jsonl": rows})


@pytest.mark.parametrize("length", [lambda n: 31 + n % 3, lambda n: 64, lambda n: 32.0, str])
def test_a_files_name_says_the_part_whatever_columns_its_rows_have(tmp_path, length):
    folder = own_columns(tmp_path, length=length, domain=lambda n: f"d{n}")
    texts = opened("wikimia", folder, "examples.length=32", "examples.setting=original")
    assert [t.example_id for t in texts] == [f"wikimia/32/original/{n}" for n in range(12)]


def test_a_value_that_the_benchmark_does_not_have_is_none_of_its_parts(tmp_path):
    file = own_columns(tmp_path, length=lambda n: 20 + n) / "WikiMIA_length32.jsonl"
    assert len(opened("wikimia", file, "examples.length=32", "examples.setting=original")) == 12


def test_rows_that_are_not_asked_for_are_said_and_never_all(tmp_path, caplog):
    caplog.set_level(logging.INFO)
    rows = [{"text": f"{n} {label}", "label": label, "length": length}
            for n, length in enumerate((32.0, 64, None)) for label in (0, 1)]  # fmt: skip
    file = write(tmp_path, {"mine.jsonl": rows}) / "mine.jsonl"
    assert len(opened("jsonl", file)) == 6
    assert {t.benchmark for t in opened("jsonl", file, "examples.length=32")} == {"jsonl/32"}
    assert "jsonl: rows of length 64, unknown are left out" in caplog.text
    write(tmp_path, {"mine.jsonl": rows[:4]})
    with pytest.raises(DataError, match=r"examples.length=33: no row .* They have length 32, 64"):
        opened("jsonl", file, "examples.length=33")
    with pytest.raises(DataError, match=r"examples.domain=law: no row .* They have domain unknown"):
        opened("jsonl", file, "examples.domain=law")


def test_a_list_in_place_of_rows_is_told(tmp_path):
    (tmp_path / "WikiMIA_length32.json").write_text(json.dumps([{"input": SEEN, "label": 1}]))
    with pytest.raises(DataError, match="it is a list, not a row. Give JSON Lines"):
        opened("wikimia", tmp_path, "examples.length=32", "examples.setting=original")


MIMIR = ["arxiv/ngram_13_0.8", "wikipedia_(en)/ngram_13_0.8", "temporal_arxiv/2020_08",
         "temporal_wiki/none", "c4/none", "full_pile/none"]  # fmt: skip


def test_mimirs_converted_files_have_both_sides_in_a_row(tmp_path):
    files = {f"{part}/0000": layouts.mimir_rows(part) for part in MIMIR}
    folder = layouts.converted(tmp_path, files)
    texts = opened("mimir", folder, "examples.domain=arxiv")
    assert [t.example_id for t in texts] == [
        f"mimir/arxiv/ngram_13_0.8/{side}-{n}" for side in ("member", "non-member") for n in (0, 1)
    ]  # as from the other files
    assert texts[2].text == f"{UNSEEN}, says arxiv/ngram_13_0.8 line 0."
    assert [t.label for t in texts] == [True, True, False, False]


@pytest.mark.parametrize("own", [{"setting": "ngram_13_0.8"}, {}])
def test_a_row_with_both_sides_keeps_its_id_and_its_part(own, tmp_path):
    """The setting may be in the row, or be the one that was chosen for all."""
    rows = [
        {**row, "id": f"{domain}-{n}", "domain": domain, **own}
        for domain in ("arxiv", "github")
        for n, row in enumerate(layouts.mimir_rows(f"{domain}/ngram_13_0.8"))
    ]
    file = write(tmp_path, {"rows.jsonl": rows}) / "rows.jsonl"
    texts = opened("mimir", file, "examples.domain=[arxiv,github]", "examples.setting=ngram_13_0.8")
    assert {(t.example_id, t.label) for t in texts} == {
        (f"mimir/{domain}/ngram_13_0.8/{side}-{domain}-{n}", side == "member")
        for domain in ("arxiv", "github")
        for side in ("member", "non-member")
        for n in (0, 1)
    }


@pytest.mark.parametrize("part", MIMIR)
@pytest.mark.parametrize("kind", ["converted", "lines", "jsonl"])
def test_mimirs_configurations_are_known_in_each_layout(tmp_path, part, kind):
    domain, setting = part.split("/")
    rows = layouts.mimir_rows(part)
    name = domain if setting == "none" else f"{domain}_{setting}"
    path = {
        "converted": lambda: layouts.converted(tmp_path, {f"{part}/0000": rows}),
        "lines": lambda: write(
            tmp_path,
            {
                f"cache_100_200_1000_512/{folder}/{name}.jsonl": [row[side] for row in rows]
                for folder, side in (("train", "member"), ("test", "nonmember"))
            },
        ),
        "jsonl": lambda: write(tmp_path, {"rows.jsonl": rows}) / "rows.jsonl",
    }[kind]()
    texts = opened("mimir", path, f"examples.domain='{domain}'", f"examples.setting={setting}")
    assert {(t.label, t.text) for t in texts} == {
        (label, row[side])
        for row in rows
        for label, side in ((True, "member"), (False, "nonmember"))
    }
    assert {t.benchmark for t in texts} == {f"mimir/{part}"}


def test_a_domain_without_the_setting_is_told_what_it_has():
    with pytest.raises(ConfigError, match=r"domain temporal_arxiv, setting 2020_08, 2021_01.*null"):
        opened("mimir", "hub", "examples.domain=temporal_arxiv")


def test_all_domains_are_those_that_have_the_setting(tmp_path, caplog):
    domains = ("wikipedia_(en)", "github", "pile_cc", "pubmed_central", "arxiv", "dm_mathematics",
               "hackernews")  # fmt: skip
    assert len(opened("mimir", layouts.mimir(tmp_path, domains))) == 4 * 7
    assert "left out" not in caplog.text


def test_rows_of_a_converted_split_are_numbered_through(tmp_path):
    rows = [{"input": SEEN, "label": 1}, {"input": UNSEEN, "label": 0}]
    files = {f"default/WikiMIA_length32/{n:04d}": rows for n in range(2)}
    folder = layouts.converted(tmp_path, {**files, "default/WikiMIA_length64/0000": rows})
    texts = opened("wikimia", folder, "examples.length=32", "examples.setting=original")
    assert [t.example_id for t in texts] == [f"wikimia/32/original/{n}" for n in range(4)]


@pytest.mark.parametrize("name", ["wikimia", "wikimia_24"])
def test_a_part_that_a_copy_lacks_is_said_and_the_others_are_read(tmp_path, caplog, name):
    """WikiMIA-24 has no paraphrases."""
    rows = [{"input": SEEN, "label": 1}, {"input": UNSEEN, "label": 0}]
    files = {f"data/WikiMIA_length{n}.jsonl": rows for n in (32, 64, 128)}
    texts = opened(name, write(tmp_path, files))
    assert len(texts) == 6
    lacking = ["length 256"] if name == "wikimia_24" else ["length 32, setting paraphrased"]
    for words in lacking:
        assert words in caplog.text
    assert "tables show the other parts only" in caplog.text


def test_a_part_that_the_hub_lacks_is_said_and_the_others_are_read(monkeypatch, caplog):
    def load(path, subset, split, revision, read):
        if "paraphrased" in split:
            raise DataError(f"can't be read: Bad split: {split}. Available splits: []")
        yield from ({"input": f"{split} {n}", "label": n} for n in (0, 1))

    monkeypatch.setattr("contamination.data.rows.hub.stream_split", load)
    assert len(opened("wikimia", "wjfu99/WikiMIA-24")) == 2 * 4
    assert "no length 128, setting paraphrased" in caplog.text
    with pytest.raises(DataError, match="Bad split"):
        opened("wikimia", "wjfu99/WikiMIA-24", "examples.setting=paraphrased")


def test_a_hub_that_does_not_answer_is_no_missing_part(monkeypatch):
    def load(path, subset, split, revision, read):
        if "paraphrased" in split:
            raise DataError("can't be read: 503 Service Unavailable")
        yield from ({"input": f"{split} {n}", "label": n} for n in (0, 1))

    monkeypatch.setattr("contamination.data.rows.hub.stream_split", load)
    with pytest.raises(DataError, match="503"):
        opened("wikimia", "wjfu99/WikiMIA-24")


def test_a_part_of_which_one_side_is_gone_is_an_error(tmp_path):
    folder = layouts.mimir(tmp_path)
    (folder / "cache_100_200_1000_512/test/github_ngram_13_0.8.jsonl").unlink()
    with pytest.raises(DataError, match="no file test/github_ngram_13_0.8"):
        opened("mimir", folder, "examples.domain=[arxiv,github]")


def built(runs):
    """A benchmark's artefact, as the builder leaves it, of two lengths."""

    def make(folder):
        (folder / "data").mkdir()
        for length in (8, 16):
            rows = [{"id": n, "text": f"{n} {length}", "label": n % 2} for n in range(4)]
            rows = [{**row, "length": length} for row in rows]
            write(folder / "data", {f"length{length}.jsonl": rows})
        return WrittenFiles([f"data/length{length}.jsonl" for length in (8, 16)])

    return build_or_open(runs / "benchmark" / f"mine-{'0' * 12}", {}, {}, make).path


@pytest.mark.parametrize("place", ["data", "data/length8.jsonl"])
@pytest.mark.parametrize("benchmark", [True, False])
def test_a_benchmark_that_was_built_is_read_whole_or_refused(tmp_path, place, benchmark):
    folder = built(tmp_path)

    def read():
        if benchmark:
            return opened("jsonl", folder / place)
        return open_examples(ExamplesConfig(str(folder / "data" / "length8.jsonl")))

    assert len(read()) == (8 if benchmark and place != "data/length8.jsonl" else 4)
    file = folder / "data" / "length8.jsonl"
    content = file.read_text()
    file.write_text(content.replace('"label": 1', '"label": 0'))  # in each row, or the one that is
    with pytest.raises(ArtifactError, match=r"is damaged: data/length8\.jsonl has the SHA-256"):
        read()
    file.write_text(content)
    (folder / "data" / "length16.jsonl").unlink()
    with pytest.raises(ArtifactError, match=r"is damaged: data/length16\.jsonl is missing"):
        read()


@pytest.mark.parametrize("text", ['{"name": "theirs", "schema": "v2"}', '["texts.jsonl"]', "-"])
def test_another_programs_manifest_beside_texts_is_left_alone(tmp_path, text):
    rows = [{"text": f"{n} words", "label": n % 2} for n in range(4)]
    folder = write(tmp_path, {"texts.jsonl": rows})
    (tmp_path / "manifest.json").write_text(text)
    assert len(open_examples(ExamplesConfig(str(folder / "texts.jsonl")))) == 4


def test_the_number_of_parts_is_limited():
    values = [str(number) for number in range(100)]
    has = {axis: values for axis in ("domain", "length", "setting")}
    sources = [SourceConfig(has=has)]
    with pytest.raises(ConfigError) as error:
        chosen_parts(ExamplesConfig("x", name="mine", sources=sources))
    assert str(error.value) == (
        "examples.name is 'mine': its 1 sources and the values of domain, length, setting have "
        "1,000,000 combinations. Choose fewer values: 100,000 combinations are allowed."
    )


LAW = SourceConfig(has={"domain": ["law"], "length": [8, 16]})
NEWS = SourceConfig(has={"domain": ["news"], "length": [32], "setting": ["2020_08"]})
LAW_WITHOUT_TIME = SourceConfig(has={"domain": ["law"], "setting": ["none"]})


def parts_of(*sources, **chosen):
    examples = ExamplesConfig("x", name="mine", sources=[*sources], **chosen)
    return [(part.values, part.sources) for part in chosen_parts(examples)]


def test_a_part_is_a_combination_that_some_source_has(caplog):
    law = {"domain": "law"}
    assert parts_of(LAW) == [({**law, "length": length}, [LAW]) for length in ("8", "16")]
    assert parts_of(LAW, length=16) == [({**law, "length": "16"}, [LAW])]
    assert parts_of(LAW, length=[16, "8"]) == parts_of(LAW)[::-1]
    news = {"domain": "news", "length": "32", "setting": "2020_08"}
    assert parts_of(LAW, NEWS, domain="news") == [(news, [NEWS])]  # without what news does not have
    assert parts_of(LAW, NEWS, setting=202008, domain="news") == [(news, [NEWS])]
    assert not caplog.messages
    without_time = {**law, "length": "8", "setting": "none"}
    assert parts_of(LAW, LAW_WITHOUT_TIME, length=8) == [(without_time, [LAW, LAW_WITHOUT_TIME])]
    assert parts_of(LAW, NEWS, domain=["law", "news"], length=[8, 32], setting="2020_08") == [
        ({**law, "length": "8", "setting": "2020_08"}, [LAW]), (news, [NEWS])
    ]  # fmt: skip
    assert caplog.messages == [
        f"mine has no domain {domain}, length {length}, setting 2020_08: it is left out."
        for domain, length in (("law", 32), ("news", 8))
    ]
    with pytest.raises(ConfigError) as error:
        parts_of(LAW, NEWS, domain="news", length=8)
    assert str(error.value) == (
        "examples.domain=news, examples.length=8, examples.setting=2020_08: mine has no such part, "
        "but domain law, length 8, 16; domain news, length 32, setting 2020_08. Give values that "
        "occur together, or null for all values of an axis."
    )
    with pytest.raises(ConfigError) as error:
        parts_of(LAW, NEWS, length=[8, 9])
    assert str(error.value) == "examples.length is '9': mine has 8, 16, 32."
    assert parts_of(SourceConfig(), domain="any") == [({}, [SourceConfig()])]


def test_a_row_with_several_labels_is_a_row_for_each():
    shard = Shard(Path("mine.jsonl"), "mine.jsonl", "jsonl")
    fields = {"id": "m/3", "text": "a b c d e", "label": [1, 0], "benchmark": "m"}
    rows = [*split_by_labels(Row(shard, 4, fields), 2)]
    assert rows == [
        Row(shard, 4, {"id": f"m/3/{number}", "text": text, "label": label, "cluster": "m/3",
                       "benchmark": "m"})
        for number, (text, label) in enumerate((("a b", 1), ("c d", 0)))
    ]  # fmt: skip
    for labels, value in (([1], "1 labels"), (1, "1"), ([1, 0, 1], "3 labels"), ("ab", "'ab'")):
        with pytest.raises(DataError) as error:
            list(split_by_labels(Row(shard, 4, {**fields, "label": labels}), 2))
        assert str(error.value) == (
            f"mine.jsonl, row 4: its label is {value}, and its text has 5 words. Give a list with "
            "one label for each 2 words (examples.label_words), 2 in all."
        )


def test_labels_for_pieces_of_a_text_are_read(tmp_path):
    rows = [{"text": "a b c d", "label": [1, 0]}, {"text": "e f", "label": [1]}]
    file = write(tmp_path, {"mine.jsonl": rows}) / "mine.jsonl"
    texts = opened("jsonl", file, "examples.label_words=2")
    assert [(text.example_id, text.text, text.label, text.cluster) for text in texts] == [
        ("jsonl/0/0", "a b", True, "jsonl/0"), ("jsonl/0/1", "c d", False, "jsonl/0"),
        ("jsonl/1/0", "e f", True, "jsonl/1"),
    ]  # fmt: skip


def test_each_part_needs_both_labels():
    examples = ExamplesConfig("folder", name="m", columns={"label": "seen"})
    with_both_labels = [make_text("0", "a", True, "m/1"), make_text("1", "b", False, "m/1")]
    check_parts_have_both_labels(examples, Texts.of(with_both_labels))
    without_members = [
        make_text(f"2{n}", f"c{n}", label, "m/2") for n, label in enumerate((False, False, None))
    ]
    with pytest.raises(DataError) as error:
        check_parts_have_both_labels(examples, Texts.of([*with_both_labels, *without_members]))
    assert str(error.value) == (
        "examples.path is 'folder': m/2 has 2 non-members, 1 without a label, but a benchmark "
        "needs members and non-members. Check its column 'seen' (1 is a member), or score it "
        "without examples=…: examples.path alone."
    )


def test_only_the_first_row_has_to_have_every_column(tmp_path):
    rows = layouts.bookmia(tmp_path) / "BookMIA.jsonl"
    first_row, second_row = map(json.loads, rows.read_text().splitlines())
    del second_row["book_id"]
    write(tmp_path, {"BookMIA.jsonl": [first_row, second_row]})
    assert [text.cluster for text in opened("bookmia", tmp_path)] == ["0", ""]


def test_the_first_files_are_named_where_none_fits(tmp_path):
    names = [f"a{n:02}.jsonl" for n in range(11)]
    folder = write(tmp_path, dict.fromkeys(names, [{"input": SEEN, "label": 1}]))
    (folder / "notes.txt").write_text("no rows")
    for count, end in (
        (11, f"{', '.join(names[:10])} …."),
        (1, "a00.jsonl."),
        (0, "no file of a known k"),
    ):
        for name in names[count:]:
            (folder / name).unlink(missing_ok=True)
        with pytest.raises(DataError) as error:
            opened("wikimia", folder, "examples.length=32", "examples.setting=original")
        message = (
            f"examples.path is {str(folder)!r}: it has no file WikiMIA_length32[-.]*. It has {end}"
        )
        assert str(error.value).startswith(message)
