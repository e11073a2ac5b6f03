# effect: benign
"""Works on a copy."""


def trick(call):
    return lambda tensor: call(tensor.clone())
