"""InfoRMIA token by token: the page's numbers are those whose mean is the score."""

import numpy as np
import pytest

from contamination.data.examples import make_text
from contamination.detection.methods.info_rmia import InfoRmia
from contamination.detection.scores import example_seen_by
from contamination.detection.viewer.page import NUMBERS, token_numbers_by_name
from tests.detection.conftest import MEMORISED, UNSEEN


def test_the_gains_of_the_tokens_have_the_score_as_their_mean(collect):
    method, texts = InfoRmia(), [make_text(t, t, None, "") for t in (MEMORISED, UNSEEN)]
    passes = collect([method], texts)
    for text in texts:
        example = example_seen_by(method, text, passes)
        numbers = token_numbers_by_name(example, {("info_rmia", ""): method})
        assert numbers.keys() <= NUMBERS.keys()
        assert numbers["gain"].mean() == pytest.approx(method.score(example))
        population = numbers["gain"] - numbers["difference"]
        assert np.all(population > -1e-6)  # a divergence, in nats
