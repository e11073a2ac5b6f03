"""The benchmark's problems, one folder each, and the code that they share. Imports nothing from `arena`."""
