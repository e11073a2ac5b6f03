"""Why a kernel is slow: what its ranks say about themselves, and a sentence for each."""
