"""The models and tokenizers of detection's tests."""

from tests.detection.conftest import *  # noqa: F403
