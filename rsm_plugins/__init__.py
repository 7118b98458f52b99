"""Remote storage plugins. Floor 1.

The interface (`api`), its value types (`segment`), and the plugins.
"""
