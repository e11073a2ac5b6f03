"""__PROBLEM__

    __SIGNATURE__

Plain torch: this is the baseline. What torch alone can still win: start a collective with async_op=True and
compute while it runs, pack several small collectives into one, move fewer bytes (a smaller dtype where the
result stays exact, reduce-scatter instead of all-reduce), drop copies. To move the data yourself, take the
template `symm`.
"""

# __BASELINE__
