"""A stored config selects only among the project's own classes."""

import sys

import pytest

from contamination.core.errors import ArtifactError
from contamination.core.registry import (
    create_stored_object,
    find_registered_class,
    registered_import_paths,
)
from contamination.detection.methods.base import Method
from contamination.detection.methods.min_k import MinK
from contamination.injection.export.base import Format
from contamination.injection.export.token_formats import Megatron

MEGATRON = "contamination.injection.export.token_formats.Megatron"


def test_the_classes_of_a_kind_are_those_of_conf():
    assert registered_import_paths("format") == {
        f"contamination.injection.export.token_formats.{name}"
        for name in ("Datatrove", "Megatron", "Olmo")
    } | {"contamination.injection.export.text_format.Text"}
    assert "contamination.detection.methods.min_k.MinK" in registered_import_paths("method")
    assert (
        find_registered_class("method", "contamination.detection.methods.min_k.MinK", Method)
        is MinK
    )


@pytest.fixture
def installed_format(tmp_path, monkeypatch):
    """An installed distribution with a format of its own, and a malformed entry point."""
    (tmp_path / "fake_package.py").write_text(
        "from contamination.injection.export.token_formats import Olmo\nclass Fake(Olmo): pass\n"
    )
    metadata = tmp_path / "fake_package-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: fake-package\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(
        "[contamination.formats]\nfake = fake_package:Fake\nmalformed = 1 2\n"
        "[contamination.methods]\nnone = fake_package:Fake\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    registered_import_paths.cache_clear()
    yield "fake_package.Fake"
    registered_import_paths.cache_clear()
    sys.modules.pop("fake_package", None)


def test_entry_points_of_installed_distributions_are_registered(installed_format):
    assert installed_format in registered_import_paths("format")
    assert "fake_package" not in sys.modules
    stored = create_stored_object("format", {"_target_": installed_format}, Format, "config.yaml")
    assert type(stored).__name__ == "Fake"


def test_an_entry_point_that_is_no_subclass_is_not_used(installed_format):
    assert find_registered_class("method", installed_format, Method) is None


def test_a_class_is_made_from_plain_values():
    node = {"_target_": MEGATRON, "dtype": "int32"}
    assert create_stored_object("format", node, Format, "config.yaml") == Megatron("int32")


@pytest.mark.parametrize(
    "node",
    [
        {"_target_": "os.mkdir", "path": "made"},
        {"_target_": "pandas.read_pickle", "filepath_or_buffer": "x"},
        {"_target_": "contamination.injection.export.base.Format"},
        {"_target_": "contamination.detection.methods.min_k.MinK"},
        {"_target_": [MEGATRON]},
        {"_target_": MEGATRON, "dtype": {"_target_": "os.mkdir"}},
        {"_target_": MEGATRON, "_partial_": True},
        {"_target_": MEGATRON, "colour": "red"},
        {"_target_": MEGATRON, 3: "red"},
        {}, None, MEGATRON, [],
    ],
)  # fmt: skip
def test_anything_else_is_refused_with_the_files_name(node, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ArtifactError, match=r"^x/config\.yaml: format"):
        create_stored_object("format", node, Format, "x/config.yaml")
    assert not [*tmp_path.iterdir()]


def test_a_class_that_the_user_gives_is_taken(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(
        "from contamination.injection.export.token_formats import Olmo\n"
        "class Mine(Olmo): pass\nmaker = print\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    node = {"_target_": "mine.Mine"}
    with pytest.raises(ArtifactError, match=r"'mine\.Mine', and a stored file does not select"):
        create_stored_object("format", node, Format, "x")
    assert "mine" not in sys.modules
    assert type(create_stored_object("format", node, Format, "x", ["mine.Mine"])).__name__ == "Mine"
    with pytest.raises(ArtifactError):  # it is no format, whoever gives it
        create_stored_object("format", {"_target_": "mine.maker"}, Format, "x", ["mine.maker"])
