"""The stand-in of a standalone Spark cluster: cluster.py master PORT | worker HOST:PORT NAME [CORES MEMORY_GIB].

A connection is a worker, or a program that has executors as long as it lasts. Each line is a JSON object.
"""

import json
import os
import socket
import subprocess
import sys
import threading
import time


class Master:
    def __init__(self):
        self.changed = threading.Condition()
        self.workers = {}  # name: {cores, memory, stream}
        self.apps = 0

    def serve(self, port):
        with socket.create_server(("127.0.0.1", port)) as listener:
            while True:
                peer, _ = listener.accept()
                threading.Thread(target=self.talk, args=(peer.makefile("rw"),), daemon=True).start()

    def talk(self, stream):
        hello = json.loads(stream.readline() or "{}")
        if "worker" in hello:
            with self.changed:
                self.workers[hello["worker"]] = dict(hello, stream=stream)
                self.changed.notify_all()
            stream.readline()
            with self.changed:
                del self.workers[hello["worker"]]
        elif "total" in hello:
            self.run(hello, stream)

    def run(self, app, stream):
        """Gives a program its executors until it disconnects."""
        with self.changed:
            self.apps += 1
            name = "app-%s-%04d" % (time.strftime("%Y%m%d%H%M%S"), self.apps)
            self.changed.wait_for(lambda: self.place(app))
            placed = self.place(app)
            self.take(placed, app, 1)
            for number, worker in enumerate(placed):
                executor = {"start": "%s/%d" % (name, number), "cores": app["each"], "memory": app["memory"], "env": app["env"]}
                say(self.workers[worker]["stream"], executor)
        say(stream, {"app": name, "executors": placed})
        stream.readline()
        with self.changed:
            self.take(placed, app, -1)
            for number, worker in enumerate(placed):
                if worker in self.workers:
                    say(self.workers[worker]["stream"], {"stop": "%s/%d" % (name, number)})
            self.changed.notify_all()

    def place(self, app):
        """The worker of each executor, spread over the workers; None where they do not fit."""
        free = {name: [w["cores"], w["memory"]] for name, w in self.workers.items()}
        placed = []
        for _ in range(max(app["total"] // app["each"], 1)):
            fitting = [name for name in sorted(free) if free[name][0] >= app["each"] and free[name][1] >= app["memory"]]
            if not fitting:
                return None
            name = max(fitting, key=lambda name: free[name][0])
            free[name][0] -= app["each"]
            free[name][1] -= app["memory"]
            placed.append(name)
        return placed

    def take(self, placed, app, sign):
        for name in placed:
            if name in self.workers:
                self.workers[name]["cores"] -= sign * app["each"]
                self.workers[name]["memory"] -= sign * app["memory"]


def say(stream, message):
    stream.write(json.dumps(message) + "\n")
    stream.flush()


def work(address, name, cores=16, memory=32):
    """Runs executors for the master; ends with it."""
    host, _, port = address.partition(":")
    stream = None
    while stream is None:
        try:
            stream = socket.create_connection((host, int(port))).makefile("rw")
        except OSError:
            time.sleep(0.1)
    say(stream, {"worker": name, "cores": int(cores), "memory": int(memory) * 1024})
    running = {}
    for line in stream:
        asked = json.loads(line)
        if "start" in asked:
            arguments = ["--executor-id", asked["start"], "--hostname", name, "--cores", str(asked["cores"]), "--memory", str(asked["memory"])]
            environ = {"PATH": os.environ["PATH"], **asked["env"]}
            running[asked["start"]] = subprocess.Popen([sys.executable, os.path.abspath(__file__), "executor"] + arguments, env=environ)
        elif asked["stop"] in running:
            gone = running.pop(asked["stop"])
            gone.kill()
            gone.wait()
    for executor in running.values():
        executor.kill()


def execute():
    """Uses a share of a processor for each core."""
    share = min(float(os.environ.get("STANDIN_LOAD", "0.02")) * int(sys.argv[sys.argv.index("--cores") + 1]), 1)
    while True:
        begun = time.monotonic()
        while time.monotonic() - begun < 0.1 * share:
            pass
        time.sleep(0.1 * (1 - share) + 0.001)


if __name__ == "__main__":
    if sys.argv[1] == "master":
        Master().serve(int(sys.argv[2]))
    elif sys.argv[1] == "worker":
        work(*sys.argv[2:])
    else:
        execute()
