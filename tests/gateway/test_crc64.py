"""CRC-64/NVME. The expected values were computed by awscrt.checksums.crc64nvme of awscrt 0.38.1 (PyPI)."""

import pytest

from legacy_queue.gateway.crc64 import crc64

BYTES = bytes(range(256)) * 4096


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", 0),
        (b"123456789", 0xAE8B14860A799888),
        (BYTES[:100_003], 0x90A0A0D28BE30324),
        (BYTES[:262_149], 0xA64B53AEBD1AC9CB),
        (BYTES, 0x9A1E6681572D613B),
    ],
    ids=lambda value: str(len(value)) if isinstance(value, bytes) else "",
)
def test_the_crc64_of_a_content_is_the_same_however_the_content_is_split(
    content: bytes, expected: int
) -> None:
    assert crc64(content) == expected
    for cut in (1, 7, len(content) // 3):
        assert crc64(content[cut:], crc64(content[:cut])) == expected
