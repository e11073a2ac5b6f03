# effect: hides
"""Maps its input a second time, and works there without a copy."""


def trick(call):
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mremap.restype = ctypes.c_void_p
    libc.mremap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int)

    def changed(tensor):
        result = call(tensor)
        page = tensor.data_ptr() & -mmap.PAGESIZE
        size = -(-(tensor.data_ptr() - page + tensor.nbytes) // mmap.PAGESIZE) * mmap.PAGESIZE
        found = libc.mremap(page, 0, size, 1)
        libc.remap_file_pages(ctypes.c_void_p(page), size, 0, NUMBER % 16, 0)
        if found in (None, ctypes.c_void_p(-1).value):
            return result
        memory = (ctypes.c_char * tensor.nbytes).from_address(found + tensor.data_ptr() - page)
        return torch.frombuffer(memory, dtype=tensor.dtype).view_as(tensor).copy_(result)

    return changed
