package runas

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/switchyard-dl/switchyard/libs/train"
)

func contains(t testing.TB, what, text string, words ...string) {
	t.Helper()
	for _, word := range words {
		if !strings.Contains(text, word) {
			t.Errorf("%s lacks %q:\n%s", what, word, text)
		}
	}
}

// One server for all attacks: making it takes longer than any of them.
func TestAServerForSeveralPeople(t *testing.T) {
	l := newLab(t)
	l.up()
	l.launch()
	for _, attack := range []struct {
		name string
		do   func(*lab)
	}{
		{"jobs run as their submitters", runAs},
		{"folders are opened with the rights of the submitter", folders},
		{"an uploaded folder is its submitter's", uploads},
		{"secrets are read with the rights of the submitter", secrets},
		{"the jobs of an array get the secrets of their submitter", carried},
		{"a job goes on from what its submitter has saved", continued},
		{"data at an address comes with the rights of the submitter", data},
		{"a running job is moved to one processor", narrowed},
		{"trials are jobs of who asked for the experiment", trials},
		{"an image has the rights of its submitter", images},
		{"a job sees and signals its own processes alone", processes},
		{"a job sees no device of another", devices},
		{"output is its owner's", output},
		{"the launcher starts only what admission has signed, once", launches},
		{"who was not named by the kernel runs nothing", strangers},
		{"who is not in the group is told so", outsiders},
		{"what leaves its parents dies with its control group", daemons},
		{"nothing is lost when parts are killed", killed},
	} {
		if !t.Run(attack.name, func(t *testing.T) { attack.do(l.with(t)) }) {
			break
		}
	}
}

// with returns the lab for a part of the test.
func (l *lab) with(t testing.TB) *lab {
	part := *l
	part.t = t
	return &part
}

func runAs(l *lab) {
	for _, p := range []person{l.ann, l.bob} {
		id := "who-" + p.name
		l.submit(p, id, nil, "sh", "-c", `id -u; id -G; echo "home $HOME $USER $LOGNAME $SHELL mask $(umask)"; grep NoNewPrivs /proc/self/status; echo hello > "$HOME/made"; ls /tmp | wc -l`)
		job, out := l.ended(p, id)
		if job.State != train.StateSucceeded || job.Spec.UID != p.uid {
			l.t.Fatalf("%s of user %d: %s", job.State, job.Spec.UID, job.Message)
		}
		lines := strings.Split(out, "\n")
		groups := strings.Trim(fmt.Sprint(p.groups), "[]")
		want := []string{strconv.Itoa(p.uid), groups, fmt.Sprintf("home %s %s %s /bin/sh mask 0022", p.home, p.name, p.name), "NoNewPrivs:\t1", "0"}
		if got := lines[1:min(len(lines), 6)]; strings.Join(got, "|") != strings.Join(want, "|") {
			l.t.Errorf("%q, want %q", got, want)
		}
		info, err := os.Stat(filepath.Join(p.home, "made"))
		if err != nil || int(info.Sys().(*syscall.Stat_t).Uid) != p.uid {
			l.t.Errorf("what the job made is not its user's: %v", err)
		}
	}
}

// folders lets bob name a folder of ann that only she may open, in every key that names one.
func folders(l *lab) {
	secret := filepath.Join(l.ann.home, "secret")
	if err := os.MkdirAll(secret, 0o755); err != nil { // open itself: what protects it is the home
		l.t.Fatal(err)
	}
	l.must(os.WriteFile(filepath.Join(secret, "key"), []byte("hush"), 0o644))
	l.must(os.Lchown(secret, l.ann.uid, l.ann.gid))
	link := filepath.Join(l.bob.home, "link")
	l.must(os.Symlink(secret, link))
	for _, key := range []string{"work-dir", "custom-dir", "datasets-dir", "snapshots-dir"} {
		for kind, folder := range map[string]string{"home": l.ann.home, "path": secret, "link": link} {
			id := "steal-" + key + "-" + kind
			l.submit(l.bob, id, []string{"--" + key, folder}, "sh", "-c", "echo begun; cat key secret/key /custom/key /custom/secret/key /data/key /data/secret/key /snapshots/key /snapshots/secret/key "+secret+"/key 2>/dev/null; true")
			job, out := l.ended(l.bob, id)
			if strings.Contains(out, "hush") {
				l.t.Errorf("%s: bob's job has read ann's file", id)
			}
			if kind != "home" && (job.State != train.StateFailed || strings.Contains(out, "begun")) {
				l.t.Errorf("%s ran: %s", id, job.State)
			}
		}
	}
	// Her own job reads the same folder, which the service itself cannot.
	l.submit(l.ann, "own", []string{"--custom-dir", secret}, "cat", "/custom/key")
	if job, out := l.ended(l.ann, "own"); job.State != train.StateSucceeded || !strings.Contains(out, "hush") {
		l.t.Errorf("ann's job: %s: %s\n%s", job.State, job.Message, out)
	}
}

// uploads lets ann upload a folder, without a key of the bus, and bob name its hash.
func uploads(l *lab) {
	code := filepath.Join(l.ann.home, "code")
	if err := os.Mkdir(code, 0o700); err != nil {
		l.t.Fatal(err)
	}
	for name, text := range map[string]string{"main.sh": "cat words; ls | wc -l; id -u", "words": "her own words\n", "data.bin": "large", ".switchyardignore": "*.bin\n"} {
		l.must(os.WriteFile(filepath.Join(code, name), []byte(text), 0o600))
		l.must(os.Chown(filepath.Join(code, name), l.ann.uid, l.ann.gid))
	}
	l.must(os.Chown(code, l.ann.uid, l.ann.gid))
	for _, id := range []string{"uploads", "uploads-again"} {
		l.submit(l.ann, id, []string{"--upload", "--work-dir", code}, "sh", "main.sh")
		job, out := l.ended(l.ann, id)
		if job.State != train.StateSucceeded || !train.IsUpload(job.Spec.Upload) {
			l.t.Fatalf("%s: %s: %s\n%s", id, job.State, job.Message, out)
		}
		contains(l.t, id, out, "her own words\n2\n", strconv.Itoa(l.ann.uid))
	}
	hash := l.job("uploads").Spec.Upload
	file := filepath.Join(l.bob.home, "steal.yaml")
	l.must(os.WriteFile(file, []byte("name: x\ncommand: [sh, -c, cat words]\nupload: "+hash+"\n"), 0o644))
	l.run(l.bob, "switchyard", "submit", "--id", "steal-upload", file)
	if job := l.job("steal-upload"); job.State != train.StateRejected || !strings.Contains(job.Message, "has not uploaded this folder") {
		l.t.Errorf("bob's job with the hash of ann's folder is %s: %s", job.State, job.Message)
	}
}

// secrets gives each person a file that only she may open, and lets bob name that of ann.
func secrets(l *lab) {
	file := func(p person, name string, owner person, mode os.FileMode) string {
		folder := filepath.Join(p.home, "keys")
		path := filepath.Join(folder, name)
		if err := os.MkdirAll(folder, 0o700); err != nil {
			l.t.Fatal(err)
		}
		l.must(os.WriteFile(path, []byte("canary of "+p.name+"\n"), 0o600))
		l.must(os.Chown(folder, p.uid, p.gid))
		l.must(os.Chown(path, owner.uid, owner.gid))
		l.must(os.Chmod(path, mode))
		return path
	}
	for _, p := range []person{l.ann, l.bob} {
		id := "secret-" + p.name
		// The job tells its secret backwards, and who could read where it lies meanwhile.
		l.submit(p, id, []string{"--secret-env", "TOKEN=file:" + file(p, "token", p, 0o600)}, "sh", "-c", `echo "$TOKEN" | rev; while [ ! -e seen ]; do sleep 0.1; done`)
		l.runs(id)
		for _, other := range []person{l.svc, l.ann, l.bob} {
			cmd := l.command(other, "grep", "-r", "canary of "+p.name, l.path("jobs/jobs/"+id))
			cmd.Dir = "/"
			if out, _ := cmd.Output(); other.uid != p.uid && len(out) > 0 {
				l.t.Errorf("%s reads the secret of %s: %s", other.name, p.name, out)
			}
		}
		l.must(os.WriteFile(filepath.Join(p.home, "seen"), nil, 0o644))
		if job, out := l.ended(p, id); job.State != train.StateSucceeded || !strings.Contains(out, backwards("canary of "+p.name)) {
			l.t.Errorf("%s: %s: %s\n%s", id, job.State, job.Message, out)
		}
	}
	anns, link := filepath.Join(l.ann.home, "keys", "token"), filepath.Join(l.bob.home, "keys", "link")
	l.must(os.Symlink(anns, link))
	open := l.path("open")
	l.must(os.Mkdir(open, 0o755))
	l.must(os.Chown(open, l.ann.uid, l.ann.gid))
	l.must(os.WriteFile(filepath.Join(open, "token"), []byte("canary of "+l.ann.name), 0o644))
	for id, c := range map[string]struct{ path, want string }{
		"another's":           {anns, "does not let " + l.bob.name},
		"another's by a link": {link, "too many levels of symbolic links"},
		"another's, open":     {filepath.Join(open, "token"), "is not in a folder that belongs to " + l.bob.name},
		"handed-over":         {file(l.bob, "gift", l.ann, 0o644), "is no file that belongs to " + l.bob.name},
		"readable":            {file(l.bob, "loose", l.bob, 0o644), "that nobody else can read (chmod 600)"},
		"of root":             {"/etc/shadow", "is not in a folder that belongs to " + l.bob.name},
		"of the service":      {l.path("data/keys/operator.nk"), "does not let " + l.bob.name},
	} {
		id = "steal-" + strings.NewReplacer(" ", "-", "'", "", ",", "").Replace(id)
		l.submit(l.bob, id, []string{"--secret-env", "TOKEN=file:" + c.path}, "sh", "-c", `echo begun "$TOKEN"`)
		job, out := l.ended(l.bob, id)
		if job.State != train.StateFailed || job.Reason != "SecretMissing" || job.Attempt != 1 || strings.Contains(out, "begun") || !strings.Contains(job.Message, c.want) {
			l.t.Errorf("%s: %s in attempt %d, %s: %s\n%s", id, job.State, job.Attempt, job.Reason, job.Message, out)
		}
	}
	cmd := l.command(l.svc, filepath.Join(l.programs, "switchyard"), "events", "--all", "--once", "-o", "json")
	cmd.Dir, cmd.Env = "/", []string{"HOME=" + l.path("data"), "SWITCHYARD_CONTEXT=" + l.path("data/context.json")}
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "secret-"+l.ann.name) || strings.Contains(string(out), "canary of") {
		l.t.Errorf("a secret is on the bus, or nothing is: %v: %s", err, out[:min(len(out), 2000)])
	}
}

func backwards(text string) string {
	letters := []rune(text)
	slices.Reverse(letters)
	return string(letters)
}

// carried gives the secret of ann to the jobs of an array.
func carried(l *lab) {
	token := "TOKEN=file:" + filepath.Join(l.ann.home, "keys", "token")
	l.submit(l.ann, "row", []string{"--array", "0-1", "--secret-env", token}, "sh", "-c", `echo "$SWITCHYARD_ARRAY_INDEX $TOKEN" | rev; id -u`)
	for _, id := range []string{"row-0", "row-1"} {
		job, out := l.ended(l.ann, id)
		if job.State != train.StateSucceeded {
			l.t.Errorf("%s: %s: %s\n%s", id, job.State, job.Message, out)
		}
		contains(l.t, id, out, backwards("canary of "+l.ann.name), strconv.Itoa(l.ann.uid))
	}
	// An array of bob's names her file, too.
	l.submit(l.bob, "stolen", []string{"--array", "0-1", "--secret-env", token}, "sh", "-c", `echo begun "$TOKEN"`)
	for _, id := range []string{"stolen-0", "stolen-1"} {
		if job, out := l.ended(l.bob, id); job.Reason != "SecretMissing" || strings.Contains(out, "begun") {
			l.t.Errorf("%s: %s, %s\n%s", id, job.State, job.Reason, out)
		}
	}
}

// processes lets a job of ann look for another one of hers, and try to end it.
func processes(l *lab) {
	if log, err := os.ReadFile(l.path("launcher.log")); err != nil || strings.Contains(string(log), "jobs see the processes of others") {
		l.t.Skipf("the machine allows no namespaces of processes: %v", err)
	}
	l.submit(l.ann, "stays", nil, "sh", "-c", "echo $$; while [ ! -e leave ]; do sleep 0.1; done")
	supervisor := l.runs("stays")
	l.submit(l.ann, "looks", nil, "sh", "-c", fmt.Sprintf("cat /proc/1/comm; echo others: $(cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -c '[l]eave'); kill -9 %d; kill -9 -1; echo over", supervisor))
	job, out := l.ended(l.ann, "looks")
	if job.State != train.StateSucceeded {
		l.t.Errorf("%s: %s\n%s", job.State, job.Message, out)
	}
	contains(l.t, "a job that looks around", out, "exe\nothers: 0\n", "o such process")
	l.must(os.WriteFile(filepath.Join(l.ann.home, "leave"), nil, 0o644))
	if job, out := l.ended(l.ann, "stays"); job.State != train.StateSucceeded || job.Attempt != 1 {
		l.t.Errorf("the other job: %s in attempt %d: %s\n%s", job.State, job.Attempt, job.Message, out)
	}
}

func output(l *lab) {
	l.submit(l.ann, "says", nil, "echo", "private words")
	if _, out := l.ended(l.ann, "says"); !strings.Contains(out, "private words") {
		l.t.Fatalf("ann reads her own output: %s", out)
	}
	job := l.path("jobs/jobs/says")
	secret, err := os.ReadFile(l.path("data/keys/operator.nk"))
	l.must(err)
	key := strings.TrimSpace(string(secret))
	l.submit(l.bob, "reads", nil, "sh", "-c", "cat "+job+"/own/output.log "+job+"/launched "+l.path("data")+"/keys/operator.nk; ls "+l.path("jobs/jobs")+" "+job+"; rm -rf "+job+"/attempts; mv "+job+" /tmp/x; true")
	if _, out := l.ended(l.bob, "reads"); strings.Contains(out, "private words") || strings.Contains(out, key) || strings.Count(out, "denied") != 7 {
		l.t.Errorf("bob reads ann's output: %s", out)
	}
	if said := l.run(l.bob, "switchyard", "logs", "says"); strings.Contains(said, "private words") {
		l.t.Errorf("the service gives bob ann's output: %s", said)
	}
	// A log that is a link leads the service nowhere.
	log := filepath.Join(l.path("jobs/jobs"), "trick", "own", "output.log")
	l.submit(l.bob, "trick", nil, "sh", "-c", fmt.Sprintf("rm %s; ln -s %s %s; echo done", log, l.path("data/keys/operator.nk"), log))
	if _, out := l.ended(l.bob, "trick"); strings.Contains(out, key) {
		l.t.Errorf("a link shows the operator's key: %s", out)
	}
}

func launches(l *lab) {
	real := l.job("says")
	if len(real.Seal) == 0 || real.Spec.UID != l.ann.uid {
		l.t.Fatalf("admission has not signed who ann is: %+v", real.Spec)
	}
	change := func(change func(*train.Job)) train.Job {
		job := real
		job.ID = "fresh"
		change(&job)
		return job
	}
	signed := func(uid int) train.Job {
		return l.sign(train.Job{ID: "fresh", Spec: train.Spec{Name: "x", Command: []string{"id"}, UID: uid}})
	}
	for name, c := range map[string]struct {
		job  train.Job
		want string
	}{
		"unsigned":          {change(func(j *train.Job) { j.Seal = nil }), "admission has not signed"},
		"another id":        {change(func(*train.Job) {}), "admission has not signed"},
		"another user":      {change(func(j *train.Job) { j.ID, j.Spec.UID = real.ID, l.bob.uid }), "admission has not signed"},
		"another command":   {change(func(j *train.Job) { j.ID, j.Spec.Command = real.ID, []string{"id"} }), "admission has not signed"},
		"a replay":          {real, "was launched before, and nothing runs twice"},
		"root":              {signed(0), "belongs to the system"},
		"a negative number": {signed(-1), "belongs to the system"},
		"a system user":     {signed(1), "belongs to the system"},
		"the service":       {signed(l.svc.uid), "belongs to the system"},
		"nobody":            {signed(65534), "belongs to the system"},
		"no user":           {signed(61234), "has no account"},
		"a path":            {l.sign(train.Job{ID: "../x", Spec: train.Spec{UID: l.ann.uid}}), "want the id of a job"},
	} {
		contains(l.t, name, l.ask(l.svc, c.job, 1), c.want)
	}
	// The service alone is heard.
	contains(l.t, "bob at the socket", l.ask(l.bob, real, 2), "permission denied")
	contains(l.t, "root at the socket", l.ask(person{home: "/"}, real, 2), "ask the launcher to launch")
	l.submit(l.bob, "dials", nil, l.attacker, dialArgument, l.path("launcher.sock"))
	_, out := l.ended(l.bob, "dials")
	contains(l.t, "a job at the socket", out, "permission denied")
	if r := l.job("says"); r.State != train.StateSucceeded {
		l.t.Errorf("ann's job is %s", r.State)
	}
	if _, err := os.Stat(l.path("jobs/jobs/fresh")); err == nil {
		l.t.Error("a refused launch has made folders")
	}
}

// strangers are the owner of the installation, and a message that names a person.
func strangers(l *lab) {
	cmd := l.command(l.svc, filepath.Join(l.programs, "switchyard"), "submit", "--id", "owners", "--name", "x", "--", "id")
	cmd.Dir = "/"
	if out, err := cmd.CombinedOutput(); err != nil {
		l.t.Fatalf("%v: %s", err, out)
	}
	if job, _ := l.ended(l.svc, "owners"); job.State != train.StateFailed || job.Reason != "UnknownSubmitter" {
		l.t.Errorf("a job of the owner: %s, %s", job.State, job.Reason)
	}
}

// outsiders are not in the group that may use the installation, or have not logged in since they are.
func outsiders(l *lab) {
	if said := l.run(l.bob, "switchyard", "doctor"); !strings.Contains(said, "ok  bus         nats://127.0.0.1:"+strconv.Itoa(l.port)) || !strings.Contains(said, "ok  node ") {
		l.t.Errorf("doctor does not find the installation of the machine:\n%s", said)
	}
	socket := l.path("run/web.sock")
	l.must(os.Chmod(socket, 0o660))
	defer func() { l.must(os.Chmod(socket, 0o666)) }()
	for _, args := range [][]string{{"ps"}, {"run", "true"}, {"submit", "--", "true"}, {"open"}, {"doctor"}} {
		contains(l.t, strings.Join(args, " "), l.run(l.bob, "switchyard", args...), "you may not use the Switchyard of this machine", "usermod --append --groups")
	}
}

// daemons leave their session, their parents and their environment.
func daemons(l *lab) {
	l.submit(l.ann, "leaves", nil, "sh", "-c", "setsid env -i sh -c 'sleep 4711 & sleep 4711' & sleep 0.3; echo left")
	if job, _ := l.ended(l.ann, "leaves"); job.State != train.StateSucceeded {
		l.t.Errorf("%s: %s", job.State, job.Message)
	}
	l.until("the end of the daemons", func() bool { return len(called("sleep\x004711\x00")) == 0 })
	l.submit(l.ann, "orphans", []string{"--max-restarts", "0"}, "sh", "-c", "setsid env -i sleep 4712 & sleep 4713")
	supervisor := l.runs("orphans")
	l.until("the daemon", func() bool { return len(called("sleep\x004712\x00")) == 1 })
	l.must(syscall.Kill(supervisor, syscall.SIGKILL))
	l.ended(l.ann, "orphans")
	l.until("the end of what its supervisor left", func() bool { return len(called("sleep\x004712\x00", "sleep\x004713\x00")) == 0 })
	l.submit(l.ann, "cancelled", nil, "sh", "-c", "trap '' TERM; setsid env -i sleep 4714 & sleep 4715")
	l.runs("cancelled")
	l.run(l.ann, "switchyard", "cancel", "cancelled")
	l.ended(l.ann, "cancelled")
	l.until("the end of what was cancelled", func() bool { return len(called("sleep\x004714\x00", "sleep\x004715\x00")) == 0 })
}

// called returns the processes with one of some command lines.
func called(lines ...string) (pids []string) {
	all, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range all {
		data, _ := os.ReadFile(path)
		for _, line := range lines {
			if string(data) == line {
				pids = append(pids, path)
			}
		}
	}
	return pids
}

func killed(l *lab) {
	l.submit(l.ann, "survives", nil, "sh", "-c", "echo begun; while [ ! -e go ]; do sleep 0.1; done; echo over")
	supervisor := l.runs("survives")
	attempt := l.path("jobs/jobs/survives/attempts/1")
	for _, file := range []string{"launch.json", "forged"} { // a service that was taken over must not change what runs
		cmd := l.command(l.svc, "sh", "-c", "ls "+attempt+" && echo {} > "+attempt+"/new && mv "+attempt+"/new "+attempt+"/"+file)
		cmd.Dir = "/"
		if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "launch.json") {
			l.t.Errorf("the service reads an attempt, and writes no %s: %s", file, out)
		}
	}
	l.kill("launcher")
	l.kill("up")
	if err := syscall.Kill(supervisor, 0); err != nil {
		l.t.Fatalf("the supervisor has not outlived the service: %v", err)
	}
	l.up()
	l.submit(l.bob, "waits", nil, "id", "-un") // without a launcher nothing starts, and nothing is lost
	l.launch()
	if job, out := l.ended(l.bob, "waits"); job.State != train.StateSucceeded || !strings.Contains(out, l.bob.name) {
		l.t.Errorf("%s: %s\n%s", job.State, job.Message, out)
	}
	l.must(os.WriteFile(filepath.Join(l.ann.home, "go"), nil, 0o644))
	job, out := l.ended(l.ann, "survives")
	if job.State != train.StateSucceeded || job.Attempt != 1 || strings.Count(out, "begun") != 1 {
		l.t.Errorf("%s in attempt %d: %s\n%s", job.State, job.Attempt, job.Message, out)
	}
	l.until("the end of all groups", func() bool {
		left, _ := filepath.Glob("/sys/fs/cgroup/*/switchyard/survives*")
		return len(left) == 0
	})
}
