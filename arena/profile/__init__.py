"""Why a kernel is slow: a report and a sentence for each rank."""
