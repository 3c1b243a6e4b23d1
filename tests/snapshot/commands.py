"""The commands whose results are recorded: one runs folder, one seed, tiny settings.

A word may name what an earlier command made: `<cell.model:study>` is the folder of the last model
that `cell` finished, of those whose name contains `study`. `<runs>` is the runs folder, `<files>` a
folder of the command's own, for what it writes elsewhere, `<material>` holds the texts of
`material.py`, `<example>` is a member of the corpus of `cell`, `<server>` the address of a server.

Where a command or a field of the project gets another name, change it here. The name of a `Command`
is the key by which two records are compared, so it stays.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

REFERENCE = re.compile(r"<(?P<command>[\w-]+)\.(?P<kind>\w+)(?::(?P<part>[\w.-]+))?>")


@dataclass(frozen=True)
class Command:
    """One command.

    Attributes:
        name: by which its results are compared with those of another record.
        words: after `python -m`.
        makes: whether it leaves artefacts in the runs folder. One that does not runs beside others.
        last: whether it runs after all others.
        fields: whether it takes configuration fields, such as the runs folder.
        served: the artefact whose model a server answers with while the command runs.
    """

    name: str
    words: Sequence[str]
    makes: bool = True
    last: bool = False
    fields: bool = True
    served: str | None = None

    @property
    def needs(self) -> set[str]:
        """The commands that must have run before."""
        words = [*self.words, self.served or ""]
        named = {match["command"] for word in words for match in REFERENCE.finditer(word)}
        for placeholder, command in (("<material>", "quickstart"), ("<example>", "cell")):
            if any(placeholder in word for word in words):
                named.add(command)
        return named


SMALL = (
    "name=small", "benchmark=[boolq,truthfulqa]", "corpus.subsets=[common_crawl,book]",
    "model.pretraining.budget_tokens=40_000", "model.pretraining.vocab_size=512",
    "model.pretraining.tokenizer_characters=200_000", "model.pretraining.sequence_tokens=128",
    "injection.members=16", "injection.nonmembers=16", "injection.budget_tokens=60_000",
    "injection.sequence_tokens=128", "injection.example_max_tokens=100",
    "training.learning_rate=4e-3", "training.checkpoint_every_steps=5", "analysis.draws=100",
    "wandb.mode=disabled",
)  # fmt: skip
"""A cell of the quickstart's shape that takes seconds."""
SWEEP = ("training.learning_rate=1e-3,4e-3", "occurrences=fixed", "occurrences.count=1,4")
WATCHED = (
    "occurrences.rungs=[2,8]", "training.evaluate_every_steps=10", "training.evaluate_tokens=1024",
    "training.export_steps=[10]", "analysis.examples=3",
)  # fmt: skip
SECOND_STAGE = (
    "+instructions@second_stage.instructions=[nq_open]", "second_stage.members_in=both",
    "second_stage.instructions.nq_open.examples=40", "second_stage.training.schedule=constant",
    "second_stage.training.learning_rate=1e-3", "detection.scope=output", "method=[loss,min_k]",
    "detection.min_scored_tokens=1", "occurrences.rungs=[2,8]",
)  # fmt: skip
FORGET = ("training.objective=npo", "training.learning_rate=1e-3", "training.epochs=2",
          "training.schedule=constant", "training.batch_sequences=4",
          "training.micro_batch_sequences=4", "wandb.mode=disabled")  # fmt: skip

CORPUS, MODEL = "<cell.corpus:study>", "<cell.model:study>"
QUICKSTART_MODEL = "<quickstart.model:study>"
SCORED = f"model.path={MODEL}"
LABELLED = "examples.path=<material>/labelled.jsonl"


def score(*words: str) -> tuple[str, ...]:
    """The words of a command that scores texts with the quickstart's model."""
    return "detection", *words, f"model.path={QUICKSTART_MODEL}"


COMMANDS = (
    Command("quickstart", ("launch", "experiment=quickstart", "wandb.mode=disabled")),
    Command("cell", ("launch", *SMALL, *WATCHED, "method=all")),
    Command("sweep", ("launch", "-m", *SMALL, *SWEEP, "wandb.mode=offline")),
    Command("second-stage", ("launch", *SMALL, *SECOND_STAGE)),
    Command("twin", ("launch", *SMALL, "launch.stage=train", "occurrences=fixed",
                     "occurrences.count=0")),
    Command("forget-set", ("injection", "finetuning", f"corpus_folder={CORPUS}", "instructions=[]",
                           "finetuning.format=text", "finetuning.sequence_tokens=128")),
    Command("unlearn", ("training", "corpus_folder=<forget-set.finetuning>", f"model.path={MODEL}",
                        *FORGET)),
    Command("audit-unlearning", (
        "audits", "audit=unlearning", f"original={MODEL}", "unlearned=<unlearn.model>",
        "clean=<twin.model>", f"texts={CORPUS}", "completions=2", "completed_chunks=16",
        "completion_tokens=16", "chunk_words=24", "method=[loss,min_k]")),
    Command("audit-books", (
        "audits", "audit=books", "positives=<material>/positives",
        "negatives=<material>/negatives", "suspects=<material>/suspects", "length=24", "snippets=8",
        f"model.path={QUICKSTART_MODEL}", "method=[loss,min_k]")),
    *(Command(f"export-{name}", ("injection", "export", f"corpus_folder={CORPUS}",
                                 f"format={name}"))
      for name in ("megatron", "datatrove", "olmo", "text")),
    Command("inject", ("injection", "corpus=embedded", "benchmark=[imdb,lsat]",
                       "tokenizer.path=<quickstart.model:base>/hf", "rewording=swap",
                       "occurrences=poisson", "injection.members=20", "injection.nonmembers=20",
                       "injection.budget_tokens=100_000", "injection.sequence_tokens=256",
                       "injection.example_max_tokens=200")),
    Command("finetuning", ("injection", "finetuning", "tokenizer.path=<quickstart.model:base>/hf",
                           "benchmark=[boolq]", "instructions=[siqa,openbookqa]",
                           "injection.members=20", "injection.nonmembers=20",
                           "instructions.siqa.examples=100", "finetuning.sequence_tokens=256",
                           "occurrences.count=2")),
    Command("finetune", ("training", "corpus_folder=<finetuning.finetuning>",
                         "model.path=<quickstart.model:base>", "training.loss_on=output",
                         "training.epochs=2", "training.learning_rate=1e-3", "deepspeed=zero1",
                         "wandb.mode=disabled")),
    Command("score", score(LABELLED, "method=[loss,zlib,min_k,surp,gap_k]",
                           "method.min_k.k=[0.1,0.2]", "out=<files>", "out_text=true")),
    Command("score-long", score("examples.path=<material>/long.jsonl", "method=[loss,min_k]",
                                "detection.long_texts=windowed")),
    Command("score-written", score("examples.path=<material>/few.jsonl", "method=[samia,cdd]",
                                   "method.samia.n=2", "method.cdd.n=2")),
    Command("score-served", (
        "detection", f"examples.path={CORPUS}", "method=[loss,zlib,min_k]", "model.url=<server>",
        f"model.tokenizer={MODEL}/hf"), served=MODEL),
    Command("report-served", (
        "analysis", "name=served", "analysis.draws=100", "wandb.mode=disabled",
        f"cells=[{{corpus: {CORPUS}, model: {MODEL}, clean: <cell.scores:base>, "
        "contaminated: <score-served.scores>}]")),
    Command("accuracy", ("detection", "accuracy", f"examples.path={CORPUS}", SCORED,
                         "benchmark=[boolq,truthfulqa]", "reference.path=<cell.model:base>")),
    Command("extraction", ("detection", "extraction", f"examples.path={CORPUS}", SCORED,
                           "benchmark=[boolq,truthfulqa]", "extraction.tokens=10",
                           "extraction.prefix_tokens=[5,10]", "reference.path=<cell.model:base>")),
    Command("extraction-answers", ("detection", "extraction", f"examples.path={CORPUS}", SCORED,
                                   "benchmark=[boolq,truthfulqa]", "extraction.target=answer",
                                   "extraction.prefix_tokens=[5,10]")),
    Command("select", ("detection", "select", LABELLED,
                       "corpus_folder=<quickstart.corpus:study>", "select.ngram=7")),
    Command("build", ("detection", "build", "source=jsonl", "source.zone=UTC",
                      "source.paths=<material>/dated.jsonl", "build.members_before=2017-01-01",
                      "build.nonmembers_from=2023-01-01", "build.number=40",
                      "build.lengths=[16,32]", "build.least_bleu=0.5", "rewording=swap",
                      "rewording.share=0.05")),
    Command("score-built", score("examples=jsonl", "examples.path=<build.benchmark>/data",
                                 "method=[loss,min_k]", "out=<files>")),
    Command("wandb", ("analysis", "wandb", "local=<runs>/wandb")),
    Command("adopt", ("launch", "adopt", "kind=model", "path=<material>/hf")),
    Command("online", score("online", LABELLED, "method=[loss,min_k]", "online.window_tokens=16",
                            "out=<files>")),
    Command("view", ("detection", "view", f"examples.path={CORPUS}", SCORED, "view.examples=5",
                     "reference.path=<cell.model:base>", "out=<files>/view.html"), makes=False),
    Command("thresholds", ("detection", "thresholds", "scores=<quickstart.scores:study>",
                           "examples=<quickstart.corpus:study>", "out=<files>/thresholds.json"),
            makes=False),
    Command("decide", ("detection", "thresholds", "scores=<quickstart.scores:base>",
                       "apply=<thresholds.files>/thresholds.json", "override=[model,chance,size]",
                       "out=<files>/decided.csv"), makes=False),
    Command("verify", ("injection", "verify", CORPUS), makes=False, fields=False),
    Command("verify-export", ("injection", "verify", "<export-text.export>"), makes=False,
            fields=False),
    Command("show", ("injection", "show", CORPUS, "example_id=<example>"), makes=False,
            fields=False),
    Command("which-step", ("training", "which-step", f"model_folder={MODEL}",
                           "example_id=<example>"), makes=False),
    Command("memory", ("training", "memory", "model=llama_7b", "deepspeed=zero3",
                       "training.dtype=bfloat16", "training.micro_batch_sequences=1"),
            makes=False),
    Command("dry-run", ("detection", f"examples.path={CORPUS}", "method=[loss]", "dry_run=true",
                        "model.url=<server>", f"model.tokenizer={MODEL}/hf"),
            makes=False, served=MODEL),
    Command("probe", ("detection", "probe", "model.url=<server>", f"model.tokenizer={MODEL}/hf"),
            makes=False, served=MODEL),
    Command("status", ("launch", "status", "<runs>"), makes=False, last=True, fields=False),
    Command("check", ("launch", "check", "<runs>"), makes=False, last=True, fields=False),
)  # fmt: skip
