from experiments.harness.readme import README, written


def test_the_readme_says_what_the_rows_say():
    """After new rows: python -m experiments.harness.readme."""
    text = README.read_text()
    assert written(text) == text
