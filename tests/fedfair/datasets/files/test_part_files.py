"""The files of a table that is a folder or a pattern: those that lie in it, whatever links are there."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedfair.datasets.files.part_files import part_files


@pytest.mark.parametrize("link", ["part-1.csv", "job=nurse"])
def test_no_link_leads_out_of_a_folder_or_a_pattern(link: str, tmp_path: Path) -> None:
    elsewhere, parts = tmp_path / "elsewhere", tmp_path / "parts"
    for folder in (elsewhere, parts):
        folder.mkdir()
        (folder / "part-0.csv").write_text("a,b\n1,2\n")
    (parts / "part-2.csv").symlink_to(parts / "part-0.csv")  # within the folder
    assert len(part_files(parts)) == 2
    (parts / link).symlink_to(elsewhere / "part-0.csv" if link.endswith("csv") else elsewhere)
    pattern = "*.csv" if link.endswith("csv") else "*/*.csv"
    for path in (parts, parts / pattern):
        with pytest.raises(ValueError, match=f"{link}.* leads by a link out of {parts} to {elsewhere}"):
            part_files(path)
    assert part_files(parts / "part-2.csv") == [parts / "part-2.csv"]
