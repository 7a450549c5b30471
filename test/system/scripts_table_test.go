package system

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// run returns the words of `switchyard run`.
func run(words ...string) []string { return append([]string{"run"}, words...) }

// sh returns the words of `switchyard run sh -c`.
func sh(script string) []string { return run("sh", "-c", script) }

// ends are the rows about how a script is found, begins and ends.
func ends() []row {
	crlf := "#!/bin/sh\r\necho hi\r\n"
	return []row{
		{
			name: "hello", files: map[string]string{"hello.py": "print('hello')\n"}, command: run("python3", "hello.py"), needs: python,
			prints: []string{"\nhello\n", " succeeded: ended after "}, omits: []string{"epoch"}, describe: []string{", hello, of ", "without interruption"},
		},
		{name: "status", command: sh("exit 7"), code: 7, prints: []string{"failed: the program ended with status 7"}, describe: []string{"exit status 7"}},
		{
			name: "exception", files: map[string]string{"train.py": "print('before')\nraise ValueError('no such thing')\n"}, command: run("python3", "train.py"), needs: python,
			code: 1, prints: []string{"before\nTraceback", `train.py", line 2, in <module>`}, describe: []string{"| ValueError: no such thing"},
		},
		{name: "shell-script", files: map[string]string{"train.sh": "#!/bin/sh\necho \"trains $1\"\n"}, command: run("./train.sh", "resnet"), prints: []string{"\ntrains resnet\n"}},
		{name: "script-without-interpreter", files: map[string]string{"train.sh": "echo \"trains $1\"\n"}, command: run("./train.sh", "resnet"), prints: []string{"\ntrains resnet\n"}},
		{
			name: "not-executable", files: map[string]string{"train.py": "print(1)\n"}, command: run("./train.py"), code: 127,
			prints: []string{"cannot run ./train.py: no permission to execute it (chmod +x gives it)"},
		},
		{
			name: "not-in-path", files: map[string]string{"train.py": "print(1)\n"}, command: run("train.py"), code: 127,
			prints: []string{"command not found: train.py; to run the file of the working folder, put its interpreter before it, as in python3 train.py"},
		},
		{name: "no-such-program", command: run("trian"), code: 127, prints: []string{"command not found: trian\n"}},
		{name: "no-such-script", command: run("python3", "missing.py"), needs: python, code: 2, prints: []string{"can't open file"}},
		{name: "a-folder", files: map[string]string{"net/train.py": ""}, command: run("./net"), code: 127, prints: []string{"cannot run ./net: is a folder"}},
		{
			name: "no-such-interpreter", files: map[string]string{"train.py": "#!/opt/old/python\n"}, command: run("./train.py"), code: 127,
			prints: []string{"its first line names the interpreter /opt/old/python, which is not there"},
		},
		{
			name: "lines-of-windows", files: map[string]string{"train.sh": crlf}, command: run("./train.sh"), code: 127,
			prints: []string{"its first line ends as on Windows"},
		},
		{
			name: "killed", command: run("--max-restarts", "0", "sh", "-c", "echo works; kill -9 $$"), code: 137,
			prints: []string{"works\n[switchyard: killed by SIGKILL]\n", "failed: killed by SIGKILL"}, describe: []string{"exit status 137"},
		},
		{
			name: "killed-twice", command: run("--max-restarts", "1", "sh", "-c", "kill -SEGV $$"), code: 139, attempts: 2,
			prints: []string{"[switchyard: killed by SIGSEGV]\n[switchyard: attempt 2 of "}, describe: []string{"in 2 attempts: 1 restart after a crash"},
		},
		{
			name: "time-limit", command: run("--time-limit", "1s", "sleep", "600"), code: 100, after: nothingIsLeft,
			prints: []string{"failed: it has reached its time limit of 1s"},
		},
		{name: "its-own-memory-limit", command: sh("ulimit -v 200000; exec python3 -c 'bytearray(1 << 30)'"), needs: python, code: 1, prints: []string{"MemoryError"}},
		{
			name: "deaf", files: map[string]string{"train.sh": "#!/bin/sh\ntrap '' TERM\necho deaf\nwhile :; do sleep 1; done\n"}, command: run("-d", "./train.sh"),
			meanwhile: func(s *session) {
				s.awaits("deaf\n", "logs")
				s.does("cancel")
			},
			code: 103, state: train.StateCancelled, after: nothingIsLeft, describe: []string{"Cancelled: ended as asked after "},
		},
		{name: "a-daemon-behind", command: sh("setsid sleep 900 & sleep 901 & echo left"), prints: []string{"\nleft\n"}, after: nothingIsLeft},
		{name: "deaf-children", command: sh("setsid sh -c 'trap \"\" TERM HUP INT; echo child; sleep 902; sleep 903' & sleep 0.2; exit 4"), code: 4, after: nothingIsLeft},
	}
}

// outputs are the rows about what a script sees and prints.
func outputs() []row {
	return []row{
		{
			name: "virtual-environment", needs: python, env: []string{"VIRTUAL_ENV=/venv"},
			files:   map[string]string{"train.py": "import os, sys\nprint(os.environ['VIRTUAL_ENV'], sys.argv)\n"},
			command: run("python3", "train.py"), prints: []string{"\n/venv ['train.py']\n"},
		},
		{
			name: "module", needs: python, files: map[string]string{"net/__init__.py": "", "net/train.py": "import sys\nprint(__name__, sys.argv[1:])\n"},
			command: run("python3", "-m", "net.train", "--lr", "0.1"), prints: []string{"\n__main__ ['--lr', '0.1']\n"},
		},
		{
			name: "relative-paths", files: map[string]string{"data/in.txt": "payload\n"}, command: sh("cat data/in.txt; echo out >result.txt; pwd"),
			prints: []string{"\npayload\n", "/rows/relative-paths\n"}, describe: []string{"/rows/relative-paths\n"},
			after: func(s *session) {
				if text, err := os.ReadFile(filepath.Join(s.dir, "result.txt")); string(text) != "out\n" {
					s.Errorf("result.txt is %q, %v", text, err)
				}
			},
		},
		{
			name: "arguments", command: run("sh", "-c", `printf '<%s>' "$@"; echo`, "train", "two words", "Größe=ü", "", "*", "a\nb", "-d", "$HOME"),
			prints: []string{"<two words><Größe=ü><><*><a\nb><-d><$HOME>\n"},
		},
		{name: "no-input", command: sh("wc -c; echo read"), prints: []string{"\n0\nread\n"}},
		{name: "home", command: sh("echo note >$HOME/note; cat ~/note; echo $HOME"), prints: []string{"\nnote\n", "/home\n"}},
		{
			name: "its-own-environment", env: []string{"SECRET=1"}, command: run("-e", "CHOSEN=yes", "sh", "-c", `echo "$CHOSEN ${SECRET:-unknown}"; exec env -i ONLY=me env`),
			prints: []string{"\nyes unknown\nONLY=me\n"},
		},
		{
			name: "removes-its-folder", command: sh("rm -rf \"$PWD\"; echo gone"), prints: []string{"\ngone\n"},
			after: func(s *session) {
				if _, err := os.Stat(s.dir); !os.IsNotExist(err) {
					s.Errorf("its folder: %v", err)
				}
			},
		},
		{
			// It runs for long enough to be metered.
			name: "a-lot-of-output", command: run("-d", "sh", "-c", "yes \"$(printf 'x%.0s' $(seq 999))\" | head -c 100000000; echo; echo last; sleep 4"),
			prints: []string{" bytes of output left out here]\nxxx", "\nlast\n"},
			after: func(s *session) {
				s.awaits("not measured\n  cost        ", "logs")
				s.awaits(" EUR, ", "describe")
			},
		},
		{name: "a-long-line", command: sh("head -c 20000000 /dev/zero | tr '\\0' y; echo; echo last"), prints: []string{"yyy... [switchyard: 19983617 bytes of this line left out]\nlast\n"}},
		{name: "bytes", command: sh(`printf '\000\001\377\033[31m\nend\n'`), prints: []string{"\x00\x01\xff\x1b[31m\nend\n"}},
		{name: "both-outputs", command: sh("echo out; echo error >&2; printf unfinished"), prints: []string{"\nout\nerror\nunfinished\n"}},
	}
}

// lives are the rows about jobs that are more than one run.
func lives() []row {
	return []row{
		{
			name: "succeeds-at-the-second-try", command: run("--retries", "2", "sh", "-c", "test -e tried || { touch tried; exit 3; }; echo fine"), attempts: 2,
			prints: []string{"\nfine\n"}, describe: []string{"in 2 attempts: 1 retry", "attempt 1 failed with exit status 3, tries again"},
		},
		{
			name: "fails-after-a-checkpoint", command: run("--checkpoint", "*.ckpt", "sh", "-c", "test -e last.ckpt && { echo resumed; exit; }; echo 1 >last.ckpt; exit 4"),
			attempts: 2, prints: []string{"\nresumed\n"}, describe: []string{"in 2 attempts: 1 retry"},
		},
		{
			name: "after-another", command: run("--after", "the-other", "cat", "made"), prints: []string{"\nby the other\n"},
			before: func(s *session) {
				s.switchyard("run", "-d", "--id", "the-other", "sh", "-c", "sleep 1; echo by the other >made")
			},
		},
		{
			name: "after-a-failure", command: run("--after", "the-failure", "echo", "ran"), code: 2, state: train.StateRejected, omits: []string{"\nran\n"},
			prints: []string{"waits for the-failure to succeed, and that job has ended as failed"},
			before: func(s *session) { s.switchyard("run", "--id", "the-failure", "false") },
		},
		{
			name: "saves-when-asked", files: map[string]string{"train.py": "@checkpoints.py"}, command: run("-d", "--checkpoint", "last.ckpt", "python3", "train.py"), needs: python, attempts: 2,
			meanwhile: func(s *session) {
				s.awaits("it is asked to leave by SIGUSR1", "describe")
				s.does("requeue")
			},
			prints: []string{"[switchyard: asked to leave: SIGUSR1 sent to ", "\nsaved\n", "\nresumed at step "}, describe: []string{"left after a checkpoint, as asked\n"},
		},
		{
			name: "hangs", files: map[string]string{"train.py": "@library.py"}, command: run("--restart-silent", "--epochs", "4", "python3", "train.py", "hang"), needs: patience, attempts: 2,
			prints: []string{"\ntrained 40 steps\n"}, describe: []string{"attempt 1 ended: its code reported no more steps"},
		},
	}
}

// reporting are the rows about scripts that say how far they are.
func reporting(interpreter string) []row {
	epochs := []string{"3 of 3 epochs", "loss"}
	count := "for e in 1 2 3; do echo \"epoch $e loss 0.$e\"; done"
	torchrun := []string{interpreter, "-m", "torch.distributed.run", "--redirects", "1", "--tee", "1", "train.py"}
	distributed := map[string]string{"train.py": "@distributed.py"}
	return []row{
		{
			name: "lines", command: run("--epochs", "3", "--progress", `epoch (?P<epoch>\d+) loss (?P<loss>\S+)`, "sh", "-c", count), describe: epochs,
			prints: []string{"succeeded: 3 epochs in "},
		},
		{name: "table", command: run("--epochs", "3", "--progress-csv", "metrics.csv", "sh", "-c", "echo epoch,loss >metrics.csv; for e in 1 2 3; do echo $e,0.$e >>metrics.csv; done"), describe: epochs},
		{
			name: "tensorboard", files: map[string]string{"train.py": "@tensorboard.py"}, command: run("--max-steps", "30", "--progress-tensorboard", "runs", "python3", "train.py"), needs: python,
			describe: []string{"30 of 30 steps"},
		},
		{name: "kubeflow", files: map[string]string{"train.py": "@kubeflow.py"}, command: run("--epochs", "3", "python3", "train.py"), needs: python, describe: epochs},
		{
			name: "library", files: map[string]string{"train.py": "@library.py"}, command: run("--epochs", "4", "python3", "train.py"), needs: python,
			prints: []string{"\ntrained 40 steps\n", "succeeded: 4 epochs in ", "\n  waited      ", "\n  ran         ", "/model, after epoch 4\n  files       "}, describe: []string{"4 of 4 epochs"},
		},
		{
			name: "library-that-fails", files: map[string]string{"train.py": "@library.py"}, command: run("--epochs", "4", "--retries", "1", "python3", "train.py", "fail"), needs: python, attempts: 2,
			prints: []string{"\ntrained 40 steps\n"}, describe: []string{"attempt 1 failed with exit status 5, tries again from the ", "4 of 4 epochs"},
		},
		{name: "torch", files: distributed, command: run(interpreter, "train.py", "alone"), needs: torch, prints: []string{"\ntrained on 1\n"}},
		{name: "torchrun", files: distributed, command: run(torchrun...), needs: torch, prints: []string{"trained on 1\n"}},
		{name: "torchrun-on-two", files: distributed, command: run(append(strings.Fields("--devices 2"), torchrun...)...), needs: torch, prints: []string{"trained on 2\n"}},
	}
}
