"""A program as PipeTune's users write it for BigDL: it saves checkpoints, and cannot go on from them."""

import sys
from optparse import OptionParser

from bigdl.nn.criterion import ClassNLLCriterion
from bigdl.nn.layer import Linear, Sequential
from bigdl.optim.optimizer import SGD, EveryEpoch, MaxEpoch, Optimizer, Top1Accuracy
from bigdl.util.common import SparkContext, create_spark_conf, init_engine

parser = OptionParser()
parser.add_option("--action", default="train")
parser.add_option("--batchSize", type=int, default=128)
parser.add_option("--checkpointPath", default="/tmp/lenet5")
parser.add_option("--endTriggerNum", type=int, default=20)
parser.add_option("--dataPath", default="/tmp/mnist")
parser.add_option("--learningRate", type=float, default=0.01)
parser.add_option("--learningrateDecay", type=float, default=0.0002)
options, _ = parser.parse_args(sys.argv)

context = SparkContext(appName="lenet5", conf=create_spark_conf())
init_engine()
model = Sequential().add(Linear(784, 10))
method = SGD(learningrate=options.learningRate, learningrate_decay=options.learningrateDecay)
optimizer = Optimizer(model, None, ClassNLLCriterion(), MaxEpoch(options.endTriggerNum), options.batchSize, method)
optimizer.set_validation(options.batchSize, None, EveryEpoch(), [Top1Accuracy()])
optimizer.set_checkpoint(EveryEpoch(), options.checkpointPath)
optimizer.optimize()
context.stop()
