"""Texts scored behind a server as in this process, and what is asked for it."""

import numpy as np

from detection import open_scores
from detection.run import run
from tests.detection.model.served.server import Server
from tests.rounding import FORWARD

PROBES = 4  # which dialect, whether it works, and its answer twice
SERVABLE = ("lowercase", "loss", "max_k", "min_k", "pac", "polarized_distance", "zlib")


def table(stage):
    return open_scores(run(stage).path).table


def test_scores_are_those_of_the_model_in_its_files(stage):
    with Server() as server:
        served = table(stage(server.url, SERVABLE))
    local = table(stage(None, SERVABLE))
    np.testing.assert_allclose(served["score"], local["score"], rtol=1e-5, atol=FORWARD)


def test_a_restarted_server_is_known_and_another_model_is_not(stage):
    with Server() as server:
        run(stage(server.url))
    with Server(noise=1e-6) as server:
        run(stage(server.url))
        assert len(server.seen) == PROBES
    with Server(another=0.1) as server:
        run(stage(server.url))
        assert len(server.seen) == PROBES + 6 + 1
