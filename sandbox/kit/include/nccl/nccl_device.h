// Empty: the text of NCCL's header is inserted before every source that sandbox.kit.nccl compiles.
