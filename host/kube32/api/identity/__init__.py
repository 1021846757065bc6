"""Who asks: users with certificates and tokens, tokens of ServiceAccounts, impersonation."""
