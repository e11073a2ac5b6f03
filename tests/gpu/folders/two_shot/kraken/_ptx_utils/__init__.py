from .barrier import symm_mem_sync

__all__ = ["symm_mem_sync"]
