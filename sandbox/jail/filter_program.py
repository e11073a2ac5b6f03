"""A system-call filter as the kernel takes it: struct sock_fprog of linux/filter.h."""

import ctypes


class FilterProgram(ctypes.Structure):
    """Points at BPF instructions of eight bytes each."""

    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))

    @classmethod
    def of(cls, instructions: bytes) -> "FilterProgram":
        """instructions: must be kept while this is in use."""
        return cls(len(instructions) // 8, instructions)
