from papers.dwm_2021 import rates as bench_dwm


def test_rates_are_direct_multiply_adds_a_second():
    """A second each: 3×3 over 28×28×128 with 16 filters is 14.45 million multiply-adds."""
    rows = bench_dwm.rates(lambda rounds, **functions: dict.fromkeys(functions, 1.0), 1)
    assert len(rows) == 2 * len(bench_dwm.KERNELS) * 2 * 3
    assert rows[0]["what"] == "dwm, 3×3, 28×28×128, fp32"
    assert rows[0]["value"] == 28 * 28 * 128 * 9 * 16 / 1e6
    assert rows[2]["value"] == 1
