"""The stand-in of bigdl.nn.criterion."""


class ClassNLLCriterion:
    pass
