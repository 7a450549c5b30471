package file

import (
	"path"
	"slices"
	"strings"

	"github.com/switchyard-dl/switchyard/libs/strict"
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

// Argument is an argument of a program: --Flag Value.
type Argument struct {
	Flag  string `json:"flag"`
	Value string `json:"value"`
}

// ParseBigDL reads a job file. The program's arguments are in extras, or extra; in the older form, which has neither,
// they are the other keys of the file. $HOME stands for home.
func ParseBigDL(text []byte, home string) (BigDL, error) {
	r := newReader()
	root := r.Document(text)
	if root == nil {
		return BigDL{}, r.Err()
	}
	b := r.bigdl(root)
	if err := r.Err(); err != nil {
		return BigDL{}, err
	}
	b.expand(home)
	return b, nil
}

// fields returns the field for each key of the file.
func (b *BigDL) fields() map[string]*string {
	return map[string]*string{
		"master": &b.Master, "driver_memory": &b.DriverMemory, "total_executor_cores": &b.TotalExecutorCores, "executor_cores": &b.ExecutorCores,
		"executor_memory": &b.ExecutorMemory, "py_files": &b.PyFiles, "properties_file": &b.PropertiesFile, "jars": &b.Jars, "conf": &b.Program,
	}
}

func (r *reader) bigdl(root *strict.Node) BigDL {
	var b BigDL
	fields := b.fields()
	var others []*strict.Entry
	extras := ""
	for _, e := range r.Entries(root, "") {
		key := e.Key
		target, known := fields[key]
		switch {
		case known:
			*target = r.Scalar(&e.Value, key)
		case key != "extras" && key != "extra":
			others = append(others, e)
		case extras != "":
			r.AddAt(e.Position, strict.CodeValue, key, "keep one of them", "given beside %s", extras)
		default:
			extras = key
			for _, x := range r.Entries(&e.Value, key) {
				b.Arguments = append(b.Arguments, Argument{x.Key, r.Scalar(&x.Value, strict.Join(key, x.Key))})
			}
		}
	}
	for _, needed := range []string{"master", "conf"} {
		if *fields[needed] == "" && root.Kind == strict.Object {
			r.Add(root, needed, "", "is missing")
		}
	}
	b.Arguments = append(b.Arguments, r.flat(others, extras != "")...)
	return b
}

// flat reads arguments that stand among the other keys. Programs with an app_name use other names than the file.
func (r *reader) flat(others []*strict.Entry, wrong bool) []Argument {
	var known []string
	for name := range (&BigDL{}).fields() {
		known = append(known, name)
	}
	slices.Sort(known)
	flags := map[string]string{}
	if slices.ContainsFunc(others, func(e *strict.Entry) bool { return e.Key == "app_name" }) {
		flags = map[string]string{
			"app_name": "appName", "data_path": "dataPath", "batch_size": "batchSize", "learning_rate": "learningRate",
			"learning_rate_decay": "learningrateDecay", "end_trigger_num": "endTriggerNum",
		}
	}
	var list []Argument
	for _, e := range others {
		if wrong {
			r.AddAt(e.Position, strict.CodeValue, e.Key, strict.Near(e.Key, known), "no such field; arguments of the program go into extras")
			continue
		}
		a := Argument{e.Key, r.Scalar(&e.Value, e.Key)}
		if flag, ok := flags[a.Flag]; ok {
			a.Flag = flag
		}
		list = append(list, a)
	}
	return list
}

// expand replaces $HOME by the home folder, since no shell reads the command.
func (b *BigDL) expand(home string) {
	replace := strings.NewReplacer("${HOME}", home, "$HOME", home)
	for _, field := range b.fields() {
		*field = replace.Replace(*field)
	}
	for i := range b.Arguments {
		b.Arguments[i].Value = replace.Replace(b.Arguments[i].Value)
	}
}

// Command returns the command line that starts the job.
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
		// The driver finds the jars where they are. Spark copies them to the folder of each executor.
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

// argument finds an argument by name in any spelling: learning_rate_decay is learningrateDecay.
func (b BigDL) argument(name string) (i int, ok bool) {
	i = slices.IndexFunc(b.Arguments, func(a Argument) bool { return plain(a.Flag) == plain(name) })
	return i, i >= 0
}

func plain(name string) string { return strings.ReplaceAll(strings.ToLower(name), "_", "") }
