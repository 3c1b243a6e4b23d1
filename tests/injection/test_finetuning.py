"""Fine-tuning sets of real data: what is learnt, where it stands, and what is refused."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from contamination.core.errors import ArtifactError, ConfigError, DataError
from contamination.data import chat_templates
from contamination.injection.config import VersionsConfig
from contamination.injection.corpus import open_corpus
from contamination.injection.finetuning import layout, sources
from contamination.injection.finetuning.config import (
    FinetuningConfig,
    FinetuningStage,
    InstructionsConfig,
)
from contamination.injection.finetuning.layout import prove_set
from contamination.injection.finetuning.prompts import (
    PromptedText,
    encode_text,
    format_text,
    output_start,
    parse_before_output,
)
from contamination.injection.finetuning.run import prove_finished_set, run
from contamination.injection.token_stream import Tokenizer
from tests.injection.conftest import benchmark

TOKENIZER = "tests/golden/target"
ROWS = [
    {"prompt": f"Which word is number {n}?", "output": word}
    for n, word in enumerate(["one", "two", "three", "four", "five", "six", "seven"])
]
CHAT = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}</{{ m.role }}>\n{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


@pytest.fixture(scope="session")
def jsonl(tmp_path_factory):
    """Instructions of a file of rows."""
    place = tmp_path_factory.mktemp("rows")

    def write(rows, **own):
        file = place / f"{len([*place.iterdir()])}.jsonl"
        file.write_text("\n".join(map(json.dumps, rows)))
        source = {"_target_": "contamination.data.readers.files.FileRows", "path": str(file)}
        given = {"template": "{prompt}\n{output}"} | own
        fields = {"prompt": "{prompt}", "output": "{output}"} if given["template"] else {}
        return InstructionsConfig(rows=source, fields=fields, **given)

    return write


@pytest.fixture(scope="session")
def tuned(stage, jsonl, tmp_path_factory):
    """A stage with the pool of the corpus `stage`, two occurrences, and seven clean rows."""
    return FinetuningStage(
        runs=str(tmp_path_factory.mktemp("runs")),
        instructions={"mine": jsonl(ROWS)},
        benchmark=stage.benchmark,
        occurrences={"_target_": "contamination.injection.occurrences.Fixed", "count": 2},
        tokenizer=stage.tokenizer,
        injection=stage.injection,
    )


@pytest.fixture(scope="session")
def found(tuned):
    return open_corpus(run(tuned).path)


def test_its_members_are_those_of_the_corpus_with_the_same_texts(found, corpus):
    columns = ["example_id", "text", "member", "fields"]
    assert found.examples[columns].equals(corpus.examples[columns])
    assert found.artifact.counts["copies"] == len(found.ledger) == 48
    assert found.ledger["example_id"].value_counts().eq(2).all()


def texts_of(found):
    """Each text's number → its row, its tokens, its outputs and their sequence, by a walk."""
    rows = {}
    for place, sequence in enumerate(found.sequences):
        for number in [n for n in dict.fromkeys(sequence["text"].tolist()) if n >= 0]:
            own = sequence["text"] == number
            assert number not in rows
            rows[number] = sequence["input_ids"][own], sequence["output"][own], place
    return rows


def test_each_text_stands_in_one_sequence_and_its_output_is_the_answer(found):
    tokenizer, rows = found.tokenizer, texts_of(found)
    texts = found.examples.set_index("example_id")
    listed = [*found.instructions.itertuples(), *found.ledger.itertuples()]
    assert sorted(rows) == list(range(len(listed))) == list(range(55))
    for number, row in enumerate(listed):
        own = row if number < 7 else texts.loc[row.example_id]
        ids, output, place = rows[number]
        assert ids.tolist() == [*tokenizer.hf(own.text)["input_ids"], tokenizer.hf.eos_token_id]
        assert tokenizer.decode(ids[output == 1]).strip() == own.text[own.output_start :].strip()
        assert (np.diff(output) >= 0).all()
        sequence = found.sequences[place]["input_ids"]
        assert tokenizer.decode(sequence[row.token_start : row.token_end]) == own.text
    boolq = texts[texts["benchmark"] == "boolq"]
    answers = [json.loads(row.fields)["answer"] for row in boolq.itertuples()]
    assert answers == [row.text[row.output_start :] for row in boolq.itertuples()]


def test_what_is_left_of_a_sequence_is_padding(found):
    counts = found.artifact.counts
    for sequence in found.sequences:
        numbers = sequence["text"]
        assert (np.diff(numbers == -1) >= 0).all()  # at its end
        assert not sequence["output"][numbers == -1].any()
        assert sequence["texts"] == len({*numbers.tolist()} - {-1})
        assert sequence["targets"] == (numbers >= 0).sum() - sequence["texts"]
    sums = {name: sum(found.sequences[name]) for name in ("targets", "output_targets", "texts")}
    assert sums == {name: counts[name] for name in sums}
    padding = sum((sequence["text"] == -1).sum() for sequence in found.sequences)
    assert counts["padding_tokens"] == padding
    assert str(prove_finished_set(found.artifact.path)).endswith("tokens: all right")


@pytest.mark.parametrize("kind", ["packed", "padded"])
def test_a_layout_has_each_text_once_and_cuts_none(kind):
    lengths = np.random.default_rng(0).integers(1, 33, size=500).tolist()
    sequences = layout.assign_to_sequences(lengths, 32, kind)
    assert sorted(text for sequence in sequences for text in sequence) == list(range(500))
    filled = [sum(lengths[text] for text in sequence) for sequence in sequences]
    assert max(filled) <= 32
    assert (len(sequences) == 500) == (kind == "padded")
    assert kind == "padded" or np.mean(filled) > 28


def test_a_corpuss_members_as_whole_texts_are_a_set(corpus, tuned, tmp_path):
    stage = replace(tuned, runs=str(tmp_path), corpus_folder=str(corpus.artifact.path),
                    benchmark={}, instructions={}, tokenizer=type(tuned.tokenizer)(),
                    finetuning=FinetuningConfig(format="text", layout="padded"))  # fmt: skip
    forget = open_corpus(run(stage).path)
    members = corpus.examples[corpus.examples["member"]]
    assert forget.ledger["example_id"].value_counts().to_dict() == dict.fromkeys(
        members["example_id"], 2
    )
    assert len(forget.sequences) == 48
    assert forget.sequence_tokens == 128
    row = forget.ledger.iloc[0]
    (text,) = members[members["example_id"] == row["example_id"]]["text"]
    sequence = forget.sequences[int(row["sequence"])]
    ids = corpus.tokenizer.hf(text)["input_ids"]
    assert sequence["input_ids"][: len(ids)].tolist() == ids
    assert (sequence["text"] >= 0).sum() == len(ids)  # nothing is put behind it
    assert sequence["output"][: len(ids)].tolist() == [0] + [1] * (len(ids) - 1)


def test_rewordings_of_a_corpus_have_no_known_answer(corpus, tuned, tmp_path, monkeypatch):
    reworded = VersionsConfig(count=3, kind="rewording")
    monkeypatch.setattr(sources, "versions_config", lambda _: reworded)
    stage = replace(tuned, runs=str(tmp_path), corpus_folder=str(corpus.artifact.path),
                    benchmark={}, instructions={})  # fmt: skip
    with pytest.raises(ConfigError, match="corpus_folder is .*choose finetuning.format=text"):
        run(stage)
    assert not [*tmp_path.iterdir()]


@pytest.fixture(scope="session")
def chatting(tmp_path_factory):
    """A tokenizer with a chat template."""
    hf = Tokenizer(TOKENIZER).hf
    hf.chat_template = CHAT
    folder = tmp_path_factory.mktemp("chat")
    hf.save_pretrained(folder)
    return str(folder)


def test_chats_are_rendered_and_the_last_message_is_the_output(tuned, jsonl, chatting, tmp_path):
    turns = [("system", "Be short."), ("user", "Hello?"), ("assistant", "Yes"), ("user", "Why?"),
             ("assistant", "Because.")]  # fmt: skip
    rows = [{"messages": [{"role": role, "content": said} for role, said in turns]}]
    chats = jsonl(rows, template=None, messages="messages")
    stage = replace(tuned, runs=str(tmp_path), instructions={"chats": chats},
                    finetuning=FinetuningConfig(format="chat", sequence_tokens=256),
                    tokenizer=replace(tuned.tokenizer, path=chatting))  # fmt: skip
    made = open_corpus(run(stage).path)
    (own,) = made.instructions.itertuples()
    assert own.text == "".join(f"<{role}>{said}</{role}>\n" for role, said in turns)
    assert own.text[own.output_start :] == "Because.</assistant>\n"
    member = made.examples[made.examples["benchmark"] == "truthfulqa"].iloc[0]
    fields = json.loads(member["fields"])
    assert member["text"] == (
        f"<user>Question: {fields['question']}\nAnswer:</user>\n"
        f"<assistant>{fields['answer']}</assistant>\n"
    )
    ids, output, _ = texts_of(made)[0]
    assert ids.tolist() == made.tokenizer.hf(own.text)["input_ids"]  # as detection reads it
    assert made.tokenizer.decode(ids[output == 1]).endswith("Because.</assistant>\n")


@pytest.mark.parametrize("begins", ["<s>", ""])
def test_a_chat_has_its_first_special_token_once(chatting, begins):
    """Whoever writes it, the template or the tokenizer: detection reads what was learnt."""
    tokenizer = Tokenizer(chatting)
    tokenizer.hf.chat_template = begins + CHAT
    row = PromptedText("a", "mine", "Why? Because.", len("Why? "))
    made = format_text(row, FinetuningConfig(format="chat"), tokenizer)
    assert made.text == "<user>Why?</user>\n<assistant>Because.</assistant>\n"
    assert made.text[made.output_start :] == "Because.</assistant>\n"
    ids = encode_text(made, FinetuningConfig(format="chat"), tokenizer).ids.tolist()
    assert ids == tokenizer.hf(made.text)["input_ids"]
    assert ids.count(tokenizer.hf.bos_token_id) == 1


USERS = "{% for m in messages if m.role == 'user' %}<user>{{ m.content }}{% endfor %}"
ASK = "{% if add_generation_prompt %}<bot>{% else %}<bot></bot>{% endif %}"


@pytest.mark.parametrize("template", [USERS, USERS + ASK, CHAT.replace("content", "content[1:]")])
def test_a_chat_template_that_leaves_the_answer_out_or_changes_it_is_refused(template):
    tokenizer = Tokenizer(TOKENIZER)
    tokenizer.hf.chat_template = template
    text = PromptedText("mine-1", "mine", "Is it?\nYes", len("Is it?\n"))
    with pytest.raises(ConfigError, match="mine-1: .* omits or changes the assistant's"):
        format_text(text, FinetuningConfig(format="chat"), tokenizer)


@pytest.mark.parametrize("counted", ["99999", "10**12"])  # jinja itself refuses the second one
def test_a_chat_template_that_loops_ends_with_an_error(counted, monkeypatch):
    monkeypatch.setattr(chat_templates, "RENDER_SECONDS", 0.2)
    tokenizer = Tokenizer(TOKENIZER)
    loop = f"{{% for i in range({counted}) %}}"
    tokenizer.hf.chat_template = f"{loop * 3}{'{% endfor %}' * 3}" + CHAT
    text = PromptedText("mine-1", "mine", "Is it?\nYes", len("Is it?\n"))
    with pytest.raises(ConfigError, match=r"mine-1: .* can't render .*(did not end|Range too)"):
        format_text(text, FinetuningConfig(format="chat"), tokenizer)


def test_clean_rows_that_share_text_with_the_pool_stay_out(tuned, found, jsonl, tmp_path):
    example = found.examples[found.examples["benchmark"] == "truthfulqa"].iloc[0]
    rows = [*ROWS, {"prompt": "Say it.", "output": example["text"]}]
    counts = {}
    for drop in (True, False):
        stage = replace(tuned, runs=str(tmp_path), instructions={"mine": jsonl(rows)},
                        benchmark={"truthfulqa": tuned.benchmark["truthfulqa"]},
                        finetuning=FinetuningConfig(drop_overlaps=drop))  # fmt: skip
        own = run(stage).counts["instructions"]["mine"]
        counts[drop] = own["used"], own["overlaps"]
    assert counts == {True: (7, 1), False: (8, 0)}


SYSTEM = "You are a helpful assistant that was made by us, and you answer in short sentences."


def test_a_chat_templates_own_words_are_no_overlap(tuned, found, jsonl, tmp_path):
    """As of SmolLM and Qwen, which put a system message before each chat that has none."""
    hf = Tokenizer(TOKENIZER).hf
    hf.chat_template = f"<system>{SYSTEM}</system>\n" + CHAT
    hf.save_pretrained(tmp_path / "chat")
    example = found.examples[found.examples["benchmark"] == "truthfulqa"].iloc[0]
    rows = [*ROWS, {"prompt": "Say it.", "output": example["text"]}]
    stage = replace(tuned, runs=str(tmp_path), instructions={"mine": jsonl(rows)},
                    benchmark={"truthfulqa": tuned.benchmark["truthfulqa"]},
                    finetuning=FinetuningConfig(format="chat", sequence_tokens=256),
                    tokenizer=replace(tuned.tokenizer, path=str(tmp_path / "chat")))  # fmt: skip
    artifact = run(stage)
    own = artifact.counts["instructions"]["mine"]
    assert (own["used"], own["overlaps"]) == (7, 1)
    made = open_corpus(artifact.path)
    assert all(text.startswith(f"<system>{SYSTEM}") for text in made.instructions["text"])


def test_a_set_of_another_chat_template_is_another_one(tuned, jsonl, chatting, tmp_path):
    found, mine = [], jsonl(ROWS)
    for name, template in (("one", CHAT), ("other", CHAT.replace("<", "[").replace(">", "]"))):
        shutil.copytree(chatting, tmp_path / name)
        (tmp_path / name / "chat_template.jinja").write_text(template)
        stage = replace(tuned, runs=str(tmp_path), instructions={"mine": mine}, benchmark={},
                        finetuning=FinetuningConfig(format="chat", sequence_tokens=256),
                        tokenizer=replace(tuned.tokenizer, path=str(tmp_path / name)))  # fmt: skip
        found.append(open_corpus(run(stage).path).instructions["text"][0])
    assert found[0].replace("<", "[").replace(">", "]") == found[1] != found[0]


def test_so_many_clean_rows_are_drawn(tuned, jsonl, tmp_path):
    drawn = replace(tuned, runs=str(tmp_path), benchmark={},
                    instructions={"mine": jsonl([*ROWS, ROWS[0]], examples=3)})  # fmt: skip
    artifact = run(drawn)
    own = {"rows": 8, "duplicates": 1, "overlaps": 0, "skipped": {}, "used": 3}
    assert artifact.counts["instructions"] == {"mine": own}
    other = replace(drawn, injection=replace(drawn.injection, pool_seed=1))
    ids = [{*open_corpus(run(s).path).instructions["example_id"]} for s in (drawn, other)]
    assert ids[0] != ids[1]


def test_the_output_begins_where_the_last_answer_stands():
    before = parse_before_output("x", "{{{a}}} {b}: {a}, {a}!", "a")
    fields = {"a": "yes", "b": "who"}
    assert output_start(before, fields) == len("{yes} who: yes, ")


@pytest.mark.parametrize("name", ["input_ids", "output", "text", "targets"])
def test_a_file_that_differs_from_its_tables_is_found(found, tmp_path, name):
    rows = [dict(row) for row in layout.read_sequences(found.part_paths[0])]
    width, changed = found.sequence_tokens, rows[1]
    changed[name] = changed[name] + 1 if name == "targets" else changed[name].copy()
    if name != "targets":
        changed[name][5] += 1
    schema = layout._arrow_schema(width)
    with pa.OSFile(str(tmp_path / "part"), "wb") as sink, pa.ipc.new_stream(sink, schema) as out:
        out.write_batch(layout._record_batch(rows, schema))
    own = FinetuningConfig(sequence_tokens=width)
    tables = found.examples, found.ledger, found.instructions
    proof = prove_set(tmp_path / "part", tables, found.tokenizer, own)
    assert any("sequence 1" in failure for failure in proof.failures)


def test_a_member_that_the_ledger_lacks_is_found(found):
    own = FinetuningConfig(sequence_tokens=found.sequence_tokens)
    tables = found.examples, found.ledger.iloc[:-1], found.instructions
    (uncounted, few) = prove_set(found.part_paths[0], tables, found.tokenizer, own).failures
    assert "text 54 is in no table" in uncounted
    assert few.endswith("2 occurrences, the ledger has 1 copy")


BAD = {
    "no output": (
        {"benchmark": {"news": benchmark("news")}, "instructions": {}},
        "benchmark.news.template is '{text}' with no output field, so it has no output: name the",
    ),
    "another field behind it": (
        {"benchmark": {"boolq": replace(benchmark("boolq"), answer_field="question")}},
        "answer after the output: name the field of the output and end the template with it",
    ),
    "no tokenizer": ({"tokenizer": {"path": None}}, "tokenizer.path is None: give the tokenizer"),
    "no chat template": (
        {"finetuning": {"format": "chat"}, "benchmark": {}},
        "finetuning.format is 'chat', but the tokenizer has no chat template",
    ),
    "a member too long": (
        {"finetuning": {"sequence_tokens": 40}, "instructions": {}},
        "tokens, but a sequence has 40: raise finetuning.sequence_tokens, or lower "
        "injection.example",
    ),
    "nothing to learn": (
        {"benchmark": {}, "instructions": {}}, "instructions is {}: give it, benchmark or corpus",
    ),
    "one name twice": (
        {"instructions": {"boolq": InstructionsConfig()}}, "a benchmark has the same name",
    ),
    "two pools": ({"corpus_folder": "x"}, "corpus_folder is 'x': the corpus's members are used"),
    "no corpus": ({"benchmark": {}, "corpus_folder": "nowhere"}, "nowhere does not exist"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_what_can_t_be_learnt_is_said(tuned, tmp_path, case):
    fields, message = BAD[case]
    nodes = {"tokenizer": tuned.tokenizer, "finetuning": tuned.finetuning}
    own = {k: replace(nodes[k], **v) if k in nodes else v for k, v in fields.items()}
    with pytest.raises((ConfigError, ArtifactError)) as error:
        run(replace(tuned, runs=str(tmp_path), **own))
    assert message in str(error.value)
    assert "\n" not in str(error.value).replace("\\n", "")


ROWS_BAD = {
    "too long": ([{"prompt": "why " * 200, "output": "so"}], {}, "does not fit (has 4"),
    "blank": ([{"prompt": "why", "output": " "}], {}, "empty field"),
    "no column": ([{"prompt": "why"}], {}, "missing field"),
    "no rows": ([], {}, "no row can be used (it is empty)"),
    "no template": (ROWS, {"template": None}, "give either a template or messages"),
    "chats as a template": (
        [{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}],
        {"template": None, "messages": "messages"}, "choose finetuning.format=chat",
    ),
    "a chat without an answer": (
        [{"messages": [{"role": "user", "content": "a"}]}],
        {"template": None, "messages": "messages"}, "give a list of at least two messages",
    ),
    "no message": (
        [{"messages": [{"role": "user", "content": "a"}, {"role": "bot", "content": "b"}]}],
        {"template": None, "messages": "messages"}, "is not a message: give a role",
    ),
    "the user's last": (
        [{"messages": [{"role": "assistant", "content": "a"}, {"role": "user", "content": "b"}]}],
        {"template": None, "messages": "messages"}, "the last message must be the assistant's",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", ROWS_BAD)
def test_rows_that_can_t_be_learnt_are_said(tuned, jsonl, tmp_path, case):
    rows, own, message = ROWS_BAD[case]
    stage = replace(tuned, runs=str(tmp_path), benchmark={}, instructions={"x": jsonl(rows, **own)})
    with pytest.raises((ConfigError, DataError)) as error:
        run(stage)
    assert message in str(error.value)


def test_rows_that_do_not_fit_are_skipped_and_counted_where_that_is_asked_for(
    tuned, jsonl, tmp_path
):
    own = jsonl([*ROWS, {"prompt": "why " * 200, "output": "so"}], on_error="skip")
    artifact = run(replace(tuned, runs=str(tmp_path), benchmark={}, instructions={"x": own}))
    counts = artifact.counts["instructions"]["x"]
    assert (counts["skipped"], counts["used"]) == ({"does not fit": 1}, 7)


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ({"prompt": "why " * 200, "output": "so"}, "skipped 1 × does not fit"),
        ({"prompt": "Say it.", "output": "THEIRS"}, "1 that share text with the pool"),
    ],
)
def test_a_set_of_which_no_row_is_left_is_said(tuned, found, jsonl, tmp_path, row, why):
    theirs = found.examples[found.examples["benchmark"] == "truthfulqa"].iloc[0]["text"]
    own = jsonl([{**row, "output": row["output"].replace("THEIRS", theirs)}], on_error="skip")
    stage = replace(tuned, runs=str(tmp_path), instructions={"mine": own},
                    benchmark={"truthfulqa": tuned.benchmark["truthfulqa"]})  # fmt: skip
    with pytest.raises(DataError, match=rf"instructions.mine: none of its 1 rows remains \({why}"):
        run(stage)


def test_a_set_is_no_corpus_to_export_or_to_take_members_of(found, tuned):
    from contamination.injection.config import ExportStage
    from contamination.injection.export.run import export_corpus

    said = "it is a fine-tuning set. Give a packed corpus"
    with pytest.raises(ConfigError, match=said):
        run(replace(tuned, benchmark={}, corpus_folder=str(found.artifact.path)))
    with pytest.raises(ConfigError, match=said):
        export_corpus(ExportStage(corpus_folder=str(found.artifact.path), format={
            "_target_": "contamination.injection.export.token_formats.Megatron",
            "dtype": None}))  # fmt: skip
