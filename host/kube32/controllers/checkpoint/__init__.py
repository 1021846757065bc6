"""The Checkpoint controller: saves pods and moves them ("Moves" of the specification)."""
