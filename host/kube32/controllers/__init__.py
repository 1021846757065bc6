"""Controllers: pure API clients that do what the objects ask for. They know no store and no kubelet."""
