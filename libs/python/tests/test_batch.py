"""The batch of a step: shares, passes, learning rates, and the gradient noise that they are chosen by."""

import importlib.util
import os
import random
import socket
import subprocess
import sys
import textwrap
import unittest

import switchyard
from switchyard import _noise
from tests import jobapi
from tests.test_job import running

TORCH = importlib.util.find_spec("torch") is not None


class Samples:
    """A batch that shows its shape and can be cut."""

    def __init__(self, samples):
        self.samples = samples
        self.shape = (len(samples),)

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, part):
        return Samples(self.samples[part])


class Shares(unittest.TestCase):
    def test_processes_share_out_every_sample(self):
        for devices in ([1], [1, 1], [1, 1, 1], [2, 1], [1, 3, 1]):
            seen, steps = [], set()
            for rank, own in enumerate(devices):
                with jobapi.environment(
                    NUM_GPUS=own, NODE_RANK=rank, WORLD_SIZE=len(devices), SWITCHYARD_DEVICE_RANK=sum(devices[:rank]),
                    SWITCHYARD_DEVICE_COUNT=sum(devices), SWITCHYARD_GLOBAL_BATCH=16, BATCH_SIZE=4,
                ):
                    job = switchyard.job()
                    parts = list(job.sampler(54))
                    weights = []
                    for part in job.steps(map(Samples, parts)):
                        weights.append(sum(weight for _, weight in job.accumulate(part)) / len(devices))
                    self.assertEqual([len(part) / (16 if step < 3 else 6) for step, part in enumerate(parts)], weights)
                    seen += [index for part in parts for index in part]
                    steps.add(len(parts))
            self.assertEqual((list(range(54)), {4}), (sorted(seen), steps), devices)

    def test_processes_that_a_launcher_starts_share_out_every_sample(self):
        """torchrun, accelerate and DeepSpeed leave the variables of the process that the scheduler started as they are."""
        for nodes in ([1], [2], [4], [2, 1], [1, 3]):
            world = sum(nodes)
            for more in {}, {"SWITCHYARD_GLOBAL_BATCH": 4 * world}, {"SWITCHYARD_DEVICE_COUNT": ""}:  # the last: at home
                seen = []
                for rank, (node, local) in enumerate((n, i) for n, own in enumerate(nodes) for i in range(own)):
                    table = dict(
                        NUM_GPUS=nodes[node], NUM_NODES=len(nodes), NODE_RANK=node, BATCH_SIZE=4,
                        SWITCHYARD_DEVICE_RANK=rank - local, SWITCHYARD_DEVICE_COUNT=world,
                        RANK=rank, LOCAL_RANK=local, WORLD_SIZE=world, LOCAL_WORLD_SIZE=nodes[node],
                    )  # fmt: skip
                    with jobapi.environment(**dict(table, **more)):
                        seen += [index for part in switchyard.job().sampler(48) for index in part]
                self.assertEqual(list(range(48)), sorted(seen), (nodes, more))

    def test_one_process_that_a_launcher_starts_takes_every_sample(self):
        """As by torchrun --nproc-per-node 1, whatever devices the node has."""
        with jobapi.environment(SWITCHYARD_DEVICE_COUNT=2, RANK=0, LOCAL_RANK=0, WORLD_SIZE=1, LOCAL_WORLD_SIZE=1):
            self.assertEqual(list(range(54)), sorted(i for part in switchyard.job().sampler(54) for i in part))

    def test_a_sampler_knows_how_many_steps_it_has(self):
        for changes in (
            {}, {"WORLD_SIZE": 2, "RANK": 0, "LOCAL_WORLD_SIZE": 2, "SWITCHYARD_DEVICE_COUNT": 2},
            {"SWITCHYARD_GLOBAL_BATCH": 24}, {"SWITCHYARD_DEVICE_COUNT": 3}, {"BATCH_SIZE": ""},
        ):  # fmt: skip
            for length in 640, 643, 647, 5, 1:
                with self.subTest(changes=changes, length=length), jobapi.environment(**dict({"NUM_GPUS": 1}, **changes)):
                    shares = switchyard.job().sampler(length)
                    self.assertEqual(len(list(shares)), len(shares))

    def test_the_batch_changes_between_steps(self):
        with running(
            HEARTBEAT_FREQ=1, NUM_GPUS=1, BATCH_SIZE=8, SWITCHYARD_GLOBAL_BATCH=8, SWITCHYARD_BASE_BATCH=8,
            SWITCHYARD_LEARNING_RATE="linear", SWITCHYARD_BATCH_GENERATION=4, EPOCHS_TO_BE_DONE=1,
        ) as api:
            api.wish = {"micro_batch": 10, "accumulation": 2, "generation": 5, "global_batch": 20}
            ran = []
            with switchyard.job() as job:
                for _ in job.epochs():
                    for batch in job.steps(map(Samples, job.sampler(8 + 20 + 20 + 12))):
                        ran.append(([len(part) for part, _ in job.accumulate(batch)], job.lr_scale()))
                        job.step()  # its heartbeat is answered before the next share is cut
                        job._link._sender.flush()
            beats, epoch = api.bodies("steps"), api.bodies("epochs")[0]
        self.assertEqual(([8], 1.0), ran[0])
        self.assertEqual([([10, 10], 2.5), ([10, 10], 2.5), ([10, 2], 2.5)], ran[-3:])
        self.assertEqual((8, 8, 1, 4), tuple(beats[0][n] for n in NAMES))
        self.assertEqual((20, 10, 2), tuple(epoch[n] for n in NAMES[:3]))

    def test_the_batch_stays_where_processes_cannot_agree(self):
        with running(WORLD_SIZE=2, NUM_NODES=2, NUM_GPUS=1, SWITCHYARD_DEVICE_COUNT=2, SWITCHYARD_GLOBAL_BATCH=8) as api:
            api.control = {"micro_batch": 10, "accumulation": 2, "generation": 5, "global_batch": 20}
            self.assertEqual([4] * 4, [len(part) for part in switchyard.job().sampler(32)])


NAMES = ("global_batch", "micro_batch", "accumulation", "generation")


class LearningRates(unittest.TestCase):
    def test_the_rules(self):
        for rule, want in (("linear", 4.0), ("sqrt", 2.0), ("none", 1.0), ("", 1.0), ("adascale", 3.0 / 1.5)):
            with jobapi.environment(
                SWITCHYARD_GLOBAL_BATCH=32, SWITCHYARD_BASE_BATCH=8, SWITCHYARD_LEARNING_RATE=rule, NUM_GPUS=1
            ):
                job = switchyard.job()
                for _ in range(_noise.EVIDENCE):
                    job.global_batch()
                    self.assertEqual(1.0 if rule in ("", "none", "adascale") else want, job.lr_scale())
                    job._batch.noise.add(1, 17.0, 2, 9.0)  # |mu|^2 1 and tr(S) 16: at the base batch 1 and 2
                job.global_batch()
                self.assertAlmostEqual(want, job.lr_scale(), msg=rule)


class Noise(unittest.TestCase):
    def test_accumulated_passes_find_the_noise_in_closed_form(self):
        # Gradients of single samples are mean + deviation * N(0, 1) in each direction.
        mean, deviation = [0.5, -1.0, 0.25, 0.0], [1.0, 2.0, 0.5, 1.5]
        square, variance = sum(m * m for m in mean), sum(d * d for d in deviation)
        source = random.Random(5)
        with jobapi.environment(BATCH_SIZE=7, NUM_GPUS=1):
            job = switchyard.job()
            gradient = [0.0] * 4
            job.watch(lambda: sum(g * g for g in gradient))
            for _ in range(20000):
                gradient[:] = [0.0] * 4
                batch = Samples([[source.gauss(m, d) for m, d in zip(mean, deviation)] for _ in range(20)])
                for part, weight in job.accumulate(batch):  # 7, 7 and 6
                    for i in range(4):
                        gradient[i] += weight * sum(sample[i] for sample in part.samples) / len(part)
            found = job._batch.noise.averages()
        self.assertAlmostEqual(square, found[0], delta=0.1 * square)
        self.assertAlmostEqual(variance, found[1], delta=0.1 * variance)

    def test_steps_that_fit_into_one_pass_are_cut_now_and_then(self):
        with jobapi.environment(BATCH_SIZE=7, NUM_GPUS=1):
            job = switchyard.job()
            batch = Samples(range(7))
            self.assertEqual([7], [len(part) for part, _ in job.accumulate(batch)])
            job.watch(lambda: 1.0)
            steps = [[len(part) for part, _ in job.accumulate(batch)] for _ in range(400)]
        cut = [number for number, step in enumerate(steps) if step != [7]]
        self.assertEqual([[4, 3]] * len(cut), [steps[number] for number in cut])
        self.assertEqual(list(range(0, 200, 10)) + [200, 250, 300, 350], cut)

    def test_nothing_is_said_before_there_is_evidence(self):
        noise = _noise.Noise()
        for _ in range(_noise.EVIDENCE - 1):
            noise.add(1, 17.0, 2, 9.0)
        self.assertIsNone(noise.averages())
        noise.add(1, 17.0, 2, 9.0)
        self.assertEqual((1.0, 16.0), noise.averages())
        noise.add(1, float("nan"), 2, 9.0)  # a step that overflowed
        self.assertEqual((1.0, 16.0), noise.averages())

    def test_the_noise_goes_through_a_checkpoint(self):
        with running(SWITCHYARD_GLOBAL_BATCH=32, SWITCHYARD_BASE_BATCH=8, SWITCHYARD_LEARNING_RATE="adascale") as api:
            before = switchyard.job()
            for _ in range(_noise.EVIDENCE):
                before._batch.noise.add(1, 17.0, 2, 9.0)
            before.save("weights", "model", epochs_done=1)
            after = switchyard.job()
            self.assertEqual("weights", after.load("model"))
            after.global_batch()
            self.assertEqual((1, 2.0), (after.epochs_done, after.lr_scale()))
            after.step()
            after.end_epoch()
            self.assertEqual((1.0, 16.0), (api.bodies("epochs")[-1]["grad_sqr"], api.bodies("epochs")[-1]["grad_var"]))

    @unittest.skipUnless(TORCH, "PyTorch is not installed: Debian's python3-torch")
    def test_torch_finds_the_noise_in_closed_form(self):
        # loss = (w - x)^2 / 2 has the gradient w - x: at w = 0 its mean is -E[x], its covariance that of x.
        found = torch_job(1, "")
        self.assertAlmostEqual(4.0, found[0], delta=0.6)
        self.assertAlmostEqual(16.0, found[1], delta=2.4)

    @unittest.skipUnless(TORCH, "PyTorch is not installed: Debian's python3-torch")
    def test_replicas_find_the_noise_in_closed_form(self):
        found = torch_job(2, "model = torch.nn.parallel.DistributedDataParallel(model)")
        self.assertAlmostEqual(4.0, found[0], delta=0.6)
        self.assertAlmostEqual(16.0, found[1], delta=2.4)


def torch_job(processes, wrap):
    """Runs a training whose noise is known on so many processes; returns what it measured."""
    script = textwrap.dedent(
        """
        import torch, switchyard
        job = switchyard.job(1)
        if job.world_size > 1:
            torch.distributed.init_process_group("gloo", rank=job.rank, world_size=job.world_size)
        torch.manual_seed(job.rank)
        model = torch.nn.Linear(4, 1, bias=False)
        torch.nn.init.zeros_(model.weight)
        %s
        job.watch(model)
        for _ in job.steps(range(4000 if job.world_size == 1 else 800)):
            x = 1 + 2 * torch.randn(16, 4)
            for part, weight in job.accumulate(x):
                # The gradient in w is the mean of x: mean 1 and variance 4 in each of 4 directions.
                (weight * model(part).mean()).backward()
            model.zero_grad()
        if job.rank == 0:
            print(*job._batch.noise.averages())
        if job.world_size > 1:
            torch.distributed.destroy_process_group()
        """
    )
    running_processes = []
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with jobapi.environment(
        WORLD_SIZE=processes, NUM_NODES=processes, NUM_GPUS=1, BATCH_SIZE=8, MASTER_ADDR="127.0.0.1", MASTER_PORT=port
    ):
        for rank in range(processes):
            environ = dict(os.environ, NODE_RANK=str(rank), PYTHONPATH=str(jobapi.LIBRARY), OMP_NUM_THREADS="1")
            running_processes.append(
                subprocess.Popen(
                    [sys.executable, "-c", script % wrap], env=environ, stdout=subprocess.PIPE, universal_newlines=True
                )
            )
        outputs = [process.communicate(timeout=jobapi.PATIENCE_SECONDS)[0] for process in running_processes]
    codes = [process.returncode for process in running_processes]
    if any(codes):
        raise AssertionError("exit codes %s" % codes)
    return [float(word) for word in outputs[0].split()]


if __name__ == "__main__":
    unittest.main()
