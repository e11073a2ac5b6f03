from .two_shot import two_shot_all_reduce

__all__ = ["two_shot_all_reduce"]
