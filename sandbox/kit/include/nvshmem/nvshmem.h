// The text of px_nvshmem.cuh is in front of every source that sandbox.kit.shmem compiles.
