"""The CRC-64 of Azure Storage. It is the one of NVMe: reflected, and inverted before and after.

Source: "Put Blob", x-ms-content-crc64; the polynomial is from Azure's SDKs. Microsoft's library for it,
azure-storage-extensions, is a beta and not meant for direct use.
"""

from collections.abc import Sequence
from functools import cache

_POLYNOMIAL = 0xAD93D23594C93659  # without x^64; bit n is the coefficient of x^n
_REFLECTED = 0x9A6C9329AC4BC9B5
_ONES = 2**64 - 1
_SHORTEST = 128  # bits; a number of this length is not folded further


def crc64(data: bytes, before: int = 0) -> int:
    """Returns the CRC-64 of all bytes so far: ``before`` is the CRC-64 of the bytes before ``data``.

    A loop over the bytes of a block would take seconds. Instead, this takes all bits as the coefficients of
    one polynomial and folds it: its front half, times a power of x modulo _POLYNOMIAL, is added to the other
    half. The sum has the same remainder and about half the length. Each fold is a few shifts of one long
    number.
    """
    state = before ^ _ONES
    if len(data) < 8:
        return _remainder(data, state) ^ _ONES
    bits = 8 * len(data)
    number = int.from_bytes(data, "little") ^ state  # the lowest bit has the highest power
    lengths = [_SHORTEST]
    while 2 * lengths[-1] - 64 < bits:
        lengths.append(2 * lengths[-1] - 64)
    for length in reversed(lengths):
        if bits > length:
            number = _folded(number, bits, length)
            bits = length
    return _remainder(number.to_bytes(bits // 8, "little"), 0) ^ _ONES


def _folded(number: int, bits: int, length: int) -> int:
    """Returns a polynomial of ``length`` bits with the same remainder. ``bits`` <= 2 * length - 64."""
    front = bits - length
    moved = number & ((1 << front) - 1)
    number >>= front
    for power in _powers(length):
        number ^= moved << (length - front - power)
    return number


@cache
def _powers(exponent: int) -> Sequence[int]:
    """Returns the exponents of the powers of x in x^exponent modulo _POLYNOMIAL."""
    remainder = 1
    for digit in f"{exponent:b}":
        remainder = _reduced(sum(1 << 2 * power for power in range(64) if remainder >> power & 1))  # squared
        if digit == "1":
            remainder = _reduced(remainder << 1)
    return [power for power in range(64) if remainder >> power & 1]


def _reduced(number: int) -> int:
    for power in range(number.bit_length() - 1, 63, -1):
        if number >> power & 1:
            number ^= (1 << 64 | _POLYNOMIAL) << power - 64
    return number


def _remainder(data: bytes, state: int) -> int:
    for byte in data:
        state ^= byte
        for _ in range(8):
            state = state >> 1 ^ (_REFLECTED if state & 1 else 0)
    return state
