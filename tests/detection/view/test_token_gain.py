"""InfoRMIA token by token: the page's numbers are those whose mean is the score."""

import numpy as np
import pytest
import torch

from contamination.data.examples import make_text
from contamination.detection.forward.population import _mean_gain
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


def test_a_token_drawn_from_the_reference_gains_nothing_whatever_padding_the_target_has():
    """The gains of tokens are normalised over all ids of a model, also over padding."""
    rng = torch.Generator().manual_seed(0)
    target = torch.randn(3, 64, generator=rng, dtype=torch.float64)
    reference = torch.randn(3, 50, generator=rng, dtype=torch.float64)
    for first, second in ((target, reference), (reference, target)):
        gains = first.log_softmax(-1)[:, :50] - second.log_softmax(-1)[:, :50]
        drawn = second[:, :50].softmax(-1)
        expected = (drawn * gains).sum(-1)
        assert torch.allclose(_mean_gain(first, second, 50), expected, atol=1e-12)
