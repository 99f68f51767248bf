"""The documents in artifacts, as types that their writers and readers share."""
