package file

import (
	"path"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// BigDL is a job file of PipeTune's module for BigDL: a program that spark-submit starts.
type BigDL struct {
	Master             string `json:"master"`
	DriverMemory       string `json:"driver_memory,omitempty"`
	TotalExecutorCores string `json:"total_executor_cores,omitempty"`
	ExecutorCores      string `json:"executor_cores,omitempty"`
	ExecutorMemory     string `json:"executor_memory,omitempty"`
	PyFiles            string `json:"py_files,omitempty"`
	PropertiesFile     string `json:"properties_file,omitempty"`
	Jars               string `json:"jars,omitempty"`
	// Program is the Python file with the model: the key conf.
	Program string `json:"conf"`
	// Arguments are those of the program, in the order of the file.
	Arguments []Argument `json:"arguments,omitempty"`
}

// Argument is one of a program: --Flag Value.
type Argument struct {
	Flag  string `json:"flag"`
	Value string `json:"value"`
}

// ParseBigDL reads a job file. The program's arguments are in extras, or extra; in the older form, which has neither, they are the other keys of the file.
// $HOME stands for home.
func ParseBigDL(text []byte, home string) (BigDL, error) {
	r := &reader{}
	root := r.document(text)
	if root == nil {
		return BigDL{}, r.err()
	}
	b := r.bigdl(root)
	if err := r.err(); err != nil {
		return BigDL{}, err
	}
	b.expand(home)
	return b, nil
}

// fields gives the keys of the file, and where each goes.
func (b *BigDL) fields() map[string]*string {
	return map[string]*string{
		"master": &b.Master, "driver_memory": &b.DriverMemory, "total_executor_cores": &b.TotalExecutorCores, "executor_cores": &b.ExecutorCores,
		"executor_memory": &b.ExecutorMemory, "py_files": &b.PyFiles, "properties_file": &b.PropertiesFile, "jars": &b.Jars, "conf": &b.Program,
	}
}

func (r *reader) bigdl(root *yaml.Node) BigDL {
	var b BigDL
	fields := b.fields()
	var others []entry
	extras := ""
	for _, e := range r.entries(root, "") {
		key := e.key.Value
		target, known := fields[key]
		switch {
		case known:
			*target = r.text(e.value, key)
		case key != "extras" && key != "extra":
			others = append(others, e)
		case extras != "":
			r.add(e.key, key, "keep one of them", "given beside %s", extras)
		default:
			extras = key
			for _, x := range r.entries(e.value, key) {
				b.Arguments = append(b.Arguments, Argument{x.key.Value, r.text(x.value, joined(key, x.key.Value))})
			}
		}
	}
	for _, needed := range []string{"master", "conf"} {
		if *fields[needed] == "" && root.Kind == yaml.MappingNode {
			r.add(root, needed, "", "is missing")
		}
	}
	b.Arguments = append(b.Arguments, r.flat(others, extras != "")...)
	return b
}

// flat reads arguments that stand among the other keys. The programs that have an app_name call them otherwise than the file.
func (r *reader) flat(others []entry, wrong bool) []Argument {
	var known []string
	for name := range (&BigDL{}).fields() {
		known = append(known, name)
	}
	slices.Sort(known)
	flags := map[string]string{}
	if slices.ContainsFunc(others, func(e entry) bool { return e.key.Value == "app_name" }) {
		flags = map[string]string{
			"app_name": "appName", "data_path": "dataPath", "batch_size": "batchSize", "learning_rate": "learningRate",
			"learning_rate_decay": "learningrateDecay", "end_trigger_num": "endTriggerNum",
		}
	}
	var list []Argument
	for _, e := range others {
		if wrong {
			r.add(e.key, e.key.Value, near(e.key.Value, known), "no such field; arguments of the program go into extras")
			continue
		}
		a := Argument{e.key.Value, r.text(e.value, e.key.Value)}
		if flag, ok := flags[a.Flag]; ok {
			a.Flag = flag
		}
		list = append(list, a)
	}
	return list
}

// expand puts the home folder where the file says $HOME: no shell will read the line.
func (b *BigDL) expand(home string) {
	replace := strings.NewReplacer("${HOME}", home, "$HOME", home)
	for _, field := range b.fields() {
		*field = replace.Replace(*field)
	}
	for i := range b.Arguments {
		b.Arguments[i].Value = replace.Replace(b.Arguments[i].Value)
	}
}

// Command is the line that starts the job.
func (b BigDL) Command() []string {
	line := []string{"spark-submit"}
	add := func(flag, value string) {
		if value != "" {
			line = append(line, flag, value)
		}
	}
	add("--master", b.Master)
	add("--driver-memory", b.DriverMemory)
	add("--total-executor-cores", b.TotalExecutorCores)
	add("--executor-cores", b.ExecutorCores)
	add("--executor-memory", b.ExecutorMemory)
	add("--py-files", b.PyFiles)
	add("--properties-file", b.PropertiesFile)
	if b.Jars != "" {
		add("--jars", b.Jars)
		// The driver finds the jars where they are, an executor in its own folder, to which Spark copies them.
		jars := strings.Split(b.Jars, ",")
		add("--conf", "spark.driver.extraClassPath="+strings.Join(jars, ":"))
		for i := range jars {
			jars[i] = path.Base(jars[i])
		}
		add("--conf", "spark.executor.extraClassPath="+strings.Join(jars, ":"))
	}
	line = append(line, b.Program)
	for _, a := range b.Arguments {
		line = append(line, "--"+a.Flag, a.Value)
	}
	return line
}

// argument finds one by its name, however that is written: learning_rate_decay is learningrateDecay.
func (b BigDL) argument(name string) (i int, ok bool) {
	i = slices.IndexFunc(b.Arguments, func(a Argument) bool { return plain(a.Flag) == plain(name) })
	return i, i >= 0
}

func plain(name string) string { return strings.ReplaceAll(strings.ToLower(name), "_", "") }
