// Empty: the text of px_nvshmem.cuh is inserted before every source that sandbox.kit.shmem compiles.
