"""Drawing of inputs that more than one problem uses. Baselines import nothing from here."""
