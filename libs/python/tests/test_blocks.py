"""The assignment of parameter blocks, on recorded vectors."""

import json
import unittest
from pathlib import Path

import switchyard

VECTORS = Path(__file__).with_name("blocks.json")


class Blocks(unittest.TestCase):
    def test_the_recorded_vectors(self) -> None:
        cases = json.loads(VECTORS.read_text())
        self.assertGreater(len(cases), 10)
        for case in cases:
            with self.subTest(case["name"]):
                placed = switchyard.balance_blocks(case["sizes"], case["servers"])
                self.assertEqual([list(s) for s in placed], case["slices"])

    def test_refuses_what_cannot_be_balanced(self) -> None:
        for sizes, servers in (([1], 0), ([-1], 2)):
            with self.assertRaises(ValueError):
                switchyard.balance_blocks(sizes, servers)


if __name__ == "__main__":
    unittest.main()
