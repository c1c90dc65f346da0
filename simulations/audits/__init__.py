"""Audits of whole runs: an attack with canaries against the ledger's epsilon."""
