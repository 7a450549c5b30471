"""The stand-in of pyspark: a context that has executors on the stand-in cluster."""

import json
import os
import socket
import sys
import time


def settings():
    return json.loads(os.environ["STANDIN_SPARK"])


def log(words):
    print(time.strftime("%Y-%m-%d %H:%M:%S"), "INFO ", words, flush=True)


class SparkContext:
    current = None

    def __init__(self, master=None, appName=None, sparkHome=None, pyFiles=None, environment=None, conf=None):
        SparkContext.current = self
        self.settings, self.stream = settings(), None
        log("SparkContext:54 - Running a stand-in for Spark version 2.4.3")
        log("SparkContext:54 - Submitted application: %s" % appName)
        address = self.settings["spark.master"].partition("spark://")[2]
        if address:
            self.connect(address, dict(environment or {}))

    def connect(self, address, environ):
        host, _, port = address.partition(":")
        self.stream = socket.create_connection((host, int(port))).makefile("rw")
        environ["STANDIN_LOAD"] = self.settings.get("standin.load", "0.02")
        self.stream.write(json.dumps({"total": self.total(), "each": self.each(), "memory": self.memory(), "env": environ}) + "\n")
        self.stream.flush()
        said = self.stream.readline()
        if not said:
            sys.exit("the master has gone")
        given = json.loads(said)
        log("StandaloneSchedulerBackend:54 - Connected to Spark cluster with app ID %s" % given["app"])
        for number, worker in enumerate(given["executors"]):
            log("StandaloneSchedulerBackend:54 - Granted executor ID %s/%d on hostPort %s with %d core(s), %.1f GB RAM"
                % (given["app"], number, worker, self.each(), self.memory() / 1024))  # fmt: skip

    def each(self):
        return int(self.settings.get("spark.executor.cores", "1"))

    def total(self):
        return max(int(self.settings.get("spark.cores.max", "1")), self.each())

    def memory(self):
        """That of an executor, in MiB."""
        text = self.settings.get("spark.executor.memory", "1G").lower()
        return int(text[:-1]) * {"m": 1, "g": 1024}[text[-1]]

    def stop(self):
        if self.stream:
            self.stream.close()
