"""How a typed program uses the package: mypy reads this, nobody runs it."""

from typing import Any, assert_type

import zgate


def use(url: str) -> None:
    with zgate.safe_open(url, framework="np", device="cpu", patience=10.0) as model:
        assert_type(model.keys(), list[str])
        assert_type(model.metadata(), dict[str, str])
        assert_type(model.get_slice("a").get_shape(), list[int])
        with model.tensors(["a"], part=(0, 1, 2), progress=True) as tensors:
            for name, _ in tensors:
                assert_type(name, str)
    with zgate.stream([url], "cuda:0", ranks=(0, 2)) as stream:
        assert_type(stream, zgate.TensorStream)
        assert_type(stream.done_bytes, int)
    assert_type(zgate.load_file(url, progress=lambda done, total: None), dict[str, Any])
    assert_type(zgate.list(url), list[zgate.Entry])
    for piece in zgate.open_file(url):
        assert_type(piece, memoryview)
    assert_type(zgate.why_no_cuda("cuda:1"), str | None)
