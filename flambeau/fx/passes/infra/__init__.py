"""What passes are made of: the base class, and the manager that runs several."""
