"""Remote storage plugins: the interface (`api`), its value types (`segment`), and the plugins.
Floor 1.
"""
