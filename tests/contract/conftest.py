import pytest

pytest.register_assert_rewrite("rlmm.testing")
