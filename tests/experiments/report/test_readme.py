from experiments.report.readme import README, written


def test_the_readme_says_what_the_rows_say():
    """After new rows: python -m experiments.report.readme."""
    text = README.read_text()
    assert written(text) == text
