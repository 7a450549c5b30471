"""PyTorch's threads follow the processors of the process."""

import types
import unittest
from unittest import mock

from switchyard import _threads


class Follow(unittest.TestCase):
    def follow(self, environ, *counts):
        """What set_num_threads is called with while the processors change from each count to the next."""
        torch = types.SimpleNamespace(set_num_threads=mock.Mock())
        with mock.patch.object(_threads, "processors", side_effect=counts):
            threads = _threads.Threads(environ)
            for _ in counts[1:]:
                threads.follow(torch)
        return [call.args[0] for call in torch.set_num_threads.call_args_list]

    def test_as_many_as_processors(self):
        self.assertEqual([1, 4], self.follow({}, 4, 4, 1, 1, 4))

    def test_at_most_as_many_as_asked_for(self):
        self.assertEqual([1, 2], self.follow({"OMP_NUM_THREADS": "2"}, 4, 1, 4))
        self.assertEqual([1, 4], self.follow({"OMP_NUM_THREADS": "2,1"}, 4, 1, 4))

    def test_a_system_that_does_not_tell(self):
        self.assertEqual([], self.follow({}, None, None))

    def test_what_fails_is_left_alone(self):
        torch = types.SimpleNamespace(set_num_threads=mock.Mock(side_effect=RuntimeError("no")))
        with mock.patch.object(_threads, "processors", side_effect=[4, 1]):
            _threads.Threads({}).follow(torch)
        torch.set_num_threads.assert_called_once_with(1)


if __name__ == "__main__":
    unittest.main()
