// The text of this header is in front of every source that sandbox.kit.nccl compiles.
