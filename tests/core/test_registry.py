"""A stored config selects only among the project's own classes."""

import sys

import pytest

from contamination.core.errors import ArtifactError
from contamination.core.registry import registered, registered_class, stored_object
from contamination.detection.methods.base import Method
from contamination.detection.methods.min_k import MinK
from contamination.injection.export.base import Format
from contamination.injection.export.token_formats import Megatron

MEGATRON = "contamination.injection.export.token_formats.Megatron"


def test_the_classes_of_a_kind_are_those_of_conf():
    assert registered("format") == {
        f"contamination.injection.export.token_formats.{name}"
        for name in ("Datatrove", "Megatron", "Olmo")
    } | {"contamination.injection.export.text_format.Text"}
    assert "contamination.detection.methods.min_k.MinK" in registered("method")
    assert registered_class("method", "contamination.detection.methods.min_k.MinK", Method) is MinK


def test_a_class_is_made_of_plain_values():
    node = {"_target_": MEGATRON, "dtype": "int32"}
    made = stored_object("format", node, Format, "config.yaml")
    assert made == Megatron("int32")


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
        stored_object("format", node, Format, "x/config.yaml")
    assert not [*tmp_path.iterdir()]


def test_a_class_that_the_user_gives_is_taken(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(
        "from contamination.injection.export.token_formats import Olmo\n"
        "class Mine(Olmo): pass\nmaker = print\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    node = {"_target_": "mine.Mine"}
    with pytest.raises(ArtifactError, match=r"'mine\.Mine', and a stored file does not select"):
        stored_object("format", node, Format, "x")
    assert "mine" not in sys.modules
    assert type(stored_object("format", node, Format, "x", ["mine.Mine"])).__name__ == "Mine"
    with pytest.raises(ArtifactError):  # it is no format, whoever gives it
        stored_object("format", {"_target_": "mine.maker"}, Format, "x", ["mine.maker"])
