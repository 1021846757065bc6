"""What each kind other than Pod allows beside its schema, and what an update of it may not change."""
