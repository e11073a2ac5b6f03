from .reduce import sum_parts

__all__ = ["sum_parts"]
