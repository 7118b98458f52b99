import pytest

pytest.register_assert_rewrite("rsm_plugins.testing", "rlmm.testing")
