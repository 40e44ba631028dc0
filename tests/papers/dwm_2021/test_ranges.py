from papers.dwm_2021 import ranges


def test_one_tile_of_seven_taps_overflows_and_pieces_do_not():
    """SPyNet's first layer (8 channels, 7×7) at a scale of 2**13."""
    rows = ranges.Layer("SPyNet", 8, (7, 7), (1, 1), 0).run()
    assert 2**8 <= ranges.first_peak(rows, "winograd") <= 2**12
    assert ranges.first_peak(rows, "winograd, scaled") > ranges.first_peak(rows, "winograd")
    assert min(ranges.first_peak(rows, column) for column in ("direct", "dwm")) > 2**13
    lost = {row["column"]: row["relative_rms"] for row in rows}
    assert 3 * lost["dwm"] < lost["winograd"] < 1


def test_a_stride_has_no_winograd():
    layer = ranges.Layer("GDConvNet", 3, (3, 3), (2, 2), 0)
    assert set(layer.algorithms) == {"direct", "dwm"}
    assert layer.problem.output == (8, 8)


def test_every_network_has_its_layers():
    found = {(job.network, job.taps) for job in ranges._jobs(False)}
    assert {("SPyNet", (7, 7)), ("GDConvNet", (7, 7)), ("GDConvNet", (5, 5)), ("TOFlow", (9, 9)),
            ("V2V", (4, 4, 4)), ("3D-ShapeNet", (6, 6, 6)),
            ("SlowFast-R50", (1, 7, 7))} <= found  # fmt: skip
