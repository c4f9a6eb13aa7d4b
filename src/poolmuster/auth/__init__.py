"""Authentication: credentials, verified and found in the credentials file, which says what each principal may do."""
