"""The routes controller: Services, their endpoints and Ingresses as one table for the listeners of every node."""
