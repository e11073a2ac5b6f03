"""Players that are models: what writes kernels over a provider's protocol, and what drives it.

player     what every player says while it writes: text, usage, how it ended
providers  one file per protocol
stream     HTTP, retries, timeouts
prompt     what a model reads; the texts are files in templates/
agent      write, run, read the verdict, revise
"""
