"""A Parquet file is written whole, and with `keep` only where there is none."""

import errno

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from contamination.core.table_files import parquet_writer

SCHEMA = pa.schema([("number", pa.int64())])


def write(path, number, **how):
    with parquet_writer(path, SCHEMA, **how) as writer:
        writer.write_table(pa.table({"number": [number]}, SCHEMA))


@pytest.mark.parametrize("refused", [None, errno.EPERM])
def test_what_is_there_is_kept_or_replaced_as_is_asked(tmp_path, monkeypatch, refused):
    if refused:  # a file system without hard links

        def link(*_):
            raise OSError(refused, "no links")

        monkeypatch.setattr("os.link", link)
    path = tmp_path / "a.parquet"
    for number, how, expected in ((1, True, 1), (2, True, 1), (3, False, 3), (4, True, 3)):
        write(path, number, keep=how)
        assert pq.read_table(path)["number"].to_pylist() == [expected]
        assert [file.name for file in tmp_path.iterdir()] == ["a.parquet"]


def test_what_else_the_disk_refuses_is_raised(tmp_path, monkeypatch):
    def link(*_):
        raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr("os.link", link)
    with pytest.raises(OSError, match="no space"):
        write(tmp_path / "a.parquet", 1, keep=True)
    assert not list(tmp_path.iterdir())
