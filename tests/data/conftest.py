"""The fixtures of injection's and detection's tests."""

from tests.detection.conftest import *  # noqa: F403
from tests.injection.conftest import *  # noqa: F403
