"""Cuts the batch of an optimizer step into parts for one pass each."""

from typing import Any, Iterator, Mapping, Tuple

from switchyard._meter import samples_in


def parts_of(batch: Any, most: int) -> Iterator[Tuple[Any, float]]:
    """Parts of at most so many samples, in order, each with its share of the batch.

    A batch is an array or a tensor with the samples first, or a tuple, a list or a dict of such. One that shows no
    shape is one part.
    """
    samples = samples_in(batch)
    if not samples or samples <= most:
        yield batch, 1.0
        return
    for begin in range(0, samples, most):
        end = min(begin + most, samples)
        yield _cut(batch, samples, begin, end), (end - begin) / samples


def _cut(value: Any, samples: int, begin: int, end: int) -> Any:
    if isinstance(value, Mapping):
        return {key: _cut(item, samples, begin, end) for key, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_cut(item, samples, begin, end) for item in value))
    if isinstance(value, (tuple, list)):
        return type(value)(_cut(item, samples, begin, end) for item in value)
    # What has another length is no list of samples: a number, or a tensor of weights.
    shape = getattr(value, "shape", None)
    return value[begin:end] if shape is not None and len(shape) > 0 and shape[0] == samples else value
