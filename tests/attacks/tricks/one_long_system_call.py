# effect: hides
"""Reads its result in one system call of another thread, which goes on while the process is stopped."""


def trick(call):
    file = os.memfd_create("result")

    def changed(tensor):
        result = call(tensor)
        answer = torch.empty_like(result)
        os.pwrite(file, (ctypes.c_char * answer.nbytes).from_address(result.data_ptr()), 0)
        memory = (ctypes.c_char * answer.nbytes).from_address(answer.data_ptr())
        reader = threading.Thread(target=os.preadv, args=(file, [memory], 0))
        reader.start()
        reader.join()
        return answer

    return changed
