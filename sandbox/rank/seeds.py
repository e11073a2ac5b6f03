"""Random generators that depend on every bit of a seed."""

import hashlib

import torch

_WORDS = 624
"""32-bit words in the state of the Mersenne Twister, which torch uses on CPUs."""
_FIRST_WORD = 24
"""Bytes before these words in `Generator.get_state()`: the seed, a counter, a flag and a position. Each word takes 8 bytes."""


def seeded(seed: int, device: torch.device) -> torch.Generator:
    """A generator on the device for a seed of 0 to 2^63 - 1.

    On CPUs `manual_seed` uses only the lower 32 bits of a seed, which a kernel could find by trying all of them. So the whole
    state is set here from a hash of the seed. On GPUs `manual_seed` uses all 64 bits.
    """
    generator = torch.Generator(device=device)
    generator.manual_seed(seed)
    if device.type == "cpu":
        state = generator.get_state()
        digest = bytearray(hashlib.shake_256(seed.to_bytes(8, "little")).digest(4 * _WORDS))
        words = torch.zeros(_WORDS, 2, dtype=torch.int32)
        words[:, 0] = torch.frombuffer(digest, dtype=torch.int32)
        end = _FIRST_WORD + 8 * _WORDS
        state[_FIRST_WORD:end] = words.view(-1).view(torch.uint8)
        generator.set_state(state)
    return generator
