"""Stands in for MXNet's image-classification example: takes its options, plays the roles of DMLC, writes what it writes,
and saves and loads the files that it saves and loads. It trains nothing."""
import argparse
import logging
import os
import time

parser = argparse.ArgumentParser()
parser.add_argument("--network")
parser.add_argument("--num-layers", type=int)
parser.add_argument("--num-epochs", type=int)
parser.add_argument("--batch-size", type=int)
parser.add_argument("--kv-store")
parser.add_argument("--loss", default="")
parser.add_argument("--model-prefix")
parser.add_argument("--load-epoch", type=int)
args = parser.parse_args()

if os.environ["DMLC_ROLE"] != "worker":  # importing mxnet serves until the job is over
    time.sleep(3600)

assert int(os.environ["DMLC_NUM_WORKER"]) > 0 and int(os.environ["DMLC_NUM_SERVER"]) > 0 and os.environ["DMLC_PS_ROOT_URI"]
logging.basicConfig(level=logging.INFO, format="%(asctime)-15s Node[0] %(message)s")
logging.info("start with arguments %s", args)
begin = args.load_epoch or 0
if args.load_epoch is not None:
    with open("%s-%04d.params" % (args.model_prefix, begin)) as f:
        assert f.read() == str(begin)

for epoch in range(begin, args.num_epochs):
    started = time.time()
    time.sleep(0.15)
    loss = 0.5 + 2.0 / (epoch + 1)
    logging.info("Epoch[%d] Batch [0-20]\tSpeed: 1000.00 samples/sec\taccuracy=%f\tcross-entropy=%f", epoch, 0.5, loss + 0.1)
    logging.info("Epoch[%d] Train-accuracy=%f", epoch, 0.6)
    logging.info("Epoch[%d] Train-cross-entropy=%f", epoch, loss)
    logging.info("Epoch[%d] Time cost=%.3f", epoch, time.time() - started)
    with open("%s-%04d.params.new" % (args.model_prefix, epoch + 1), "w") as f:
        f.write(str(epoch + 1))
    os.rename(f.name, f.name[: -len(".new")])
    logging.info('Saved checkpoint to "%s-%04d.params"', args.model_prefix, epoch + 1)
    logging.info("Epoch[%d] Validation-accuracy=%f", epoch, 0.55)
