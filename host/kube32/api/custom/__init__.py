"""Custom kinds: CustomResourceDefinitions, what they are checked for, and the objects of the kinds they define."""
