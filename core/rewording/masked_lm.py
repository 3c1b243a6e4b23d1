"""Word replacements by a masked language model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from core.config import runtime
from core.models import resolve
from core.ranges import DEVICE, FRACTION, Ranged, at_least, limited
from core.rewording.candidates import Vocabulary
from core.rewording.masked_model import FIELD, longest, open_masked_model, special_tokens
from core.rewording.masking import Blank, Window, blanks, fill, masked, windows
from core.seeds import derive


@dataclass(frozen=True)
class MaskedLM(Ranged, node="masked_lm"):
    """⌊share·words⌋ words, at least 1, replaced by what a masked language model would put there.

    The neighbours of Mattern et al. 2023, but drawn: words are chosen at random, all
    masked at once, and each replaced by one of its likely tokens, drawn by the model's own
    probabilities: a whole word, never a special token and never the word itself. The paper
    ranks replacements of single words, which are the same few for every copy of a text.

    Words are what stands between white space, less the punctuation around it, which stays. A text
    without a letter or digit is returned as it stands; scripts without spaces are no use here, for
    a word is then a whole sentence. Each call loads the model once: give it all texts.
    """

    path: str
    """A Hugging Face folder or hub id of a masked language model with a fast tokenizer."""

    share: float = limited(0.3, FRACTION)
    """The share of the words to replace, above 0 and at most 1."""

    candidates: int = limited(20, at_least(1))
    """How many of the most likely words are drawn from."""

    window_tokens: int = limited(512, at_least(16))
    """Tokens that the model sees at once; at most what it can."""

    batch_tokens: int = runtime(4096, at_least(1))
    """Tokens in a batch, padding included."""

    device: str = runtime("auto", DEVICE)
    """`auto` (CUDA where there is one), `cpu`, `cuda` or `cuda:<n>`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        resolve(FIELD, self.path)  # a missing folder is an error before any work

    def reword(self, texts: Sequence[str], keys: Sequence[object], seed: int) -> list[str]:
        """Each text with some of its words replaced."""
        pairs = zip(texts, keys, strict=True)
        holes = [blanks(text, self.share, derive(seed, "masked_lm", key)) for text, key in pairs]
        if not any(holes):
            return list(texts)
        words = iter(self._words(texts, holes))
        both = zip(texts, holes, strict=True)
        return [fill(text, hole, [next(words) for _ in hole]) for text, hole in both]

    def _words(self, texts: Sequence[str], holes: Sequence[list[Blank]]) -> list[str]:
        """The words of all texts' blanks, in order."""
        from core.rewording.filler import Filler

        tokenizer, model = open_masked_model(self.path, self.device)
        vocabulary = Vocabulary(tokenizer, model.config.vocab_size)
        vocabulary.check(self.path)
        around = special_tokens(tokenizer)
        width = min(self.window_tokens, longest(tokenizer, model))
        options = {"add_special_tokens": False, "return_offsets_mapping": True, "verbose": False}
        tokens = tokenizer(list(texts), truncation=False, padding=False, **options)
        seen: list[Window] = []
        every: list[Blank] = []
        tokenized = zip(tokens["input_ids"], tokens["offset_mapping"], holes, strict=True)
        for ids, offsets, hole in tokenized:
            left, places = masked(ids, offsets, hole, tokenizer.mask_token_id)
            seen += windows(left, places, len(every), width, around)
            every += hole
        pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else 0
        filler = Filler(self.path, model, vocabulary, pad, self.candidates)
        return filler.words(seen, every, self.batch_tokens)
