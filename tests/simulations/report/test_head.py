"""The head of a report: one of a comparison is tested in `test_telling`."""

from __future__ import annotations

from pathlib import Path

from simulations.report import write_report
from simulations.report.head import common_facts, facts
from simulations.results.run_folder import read


def test_the_head_of_a_sweep_says_what_all_choices_share_and_the_range_of_epsilons(sweep_folder: Path,
                                                                                   tmp_path: Path) -> None:
    comparisons = read([sweep_folder])[1]
    shared, own = dict(common_facts(comparisons)), [dict(facts(each)) for each in comparisons]
    assert len(own) == 2
    assert all(shared[name] == own[0][name] for name in ("Date", "Data", "Records", "Delta", "Seeds"))
    assert own[0]["Finding"] != own[1]["Finding"]
    assert "Finding" not in shared
    first, last = (each["Epsilon"] for each in own)
    assert first != last
    assert shared["Epsilon"].startswith(first.split()[0])
    assert shared["Epsilon"].endswith(f"to {last.split()[-1]}")
    page = write_report([sweep_folder], tmp_path / "r.html")[0].read_text()
    before_chapters = page[page.index('id="overview-1"'):page.index('id="part-1"')]
    assert f"<dt>Epsilon</dt><dd>{shared['Epsilon']}</dd>" in before_chapters
