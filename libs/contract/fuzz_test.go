package contract

import (
	"encoding/json"
	"reflect"
	"regexp"
	"strings"
	"testing"
)

// recordForm is the form of the keys of a record, and its type.
type recordForm struct {
	key string
	of  reflect.Type
}

func recordForms() (forms []recordForm) {
	for _, b := range Buckets() {
		for _, r := range b.Records {
			forms = append(forms, recordForm{r.Key, r.Type})
		}
	}
	return forms
}

// Any client that may write a bucket writes any key and value. What a service takes is no path, and names its key.
func FuzzRecords(f *testing.F) {
	forms := recordForms()
	patterns := make([]*regexp.Regexp, len(forms))
	for i, r := range forms {
		patterns[i] = regexp.MustCompile(`^(?:` + formOf(r.key) + `)$`)
		f.Add(uint(i), "job-1", []byte(`{"id":"job-1","job":"job-1","attempt":1,"number":1,"node":"n","device":"gpu:0","name":"job-1"}`))
		f.Add(uint(i), "../../x", []byte(`{"id":"../../x","job":"../../x"}`))
	}
	f.Fuzz(func(t *testing.T, which uint, key string, data []byte) {
		i := which % uint(len(forms))
		record := reflect.New(forms[i].of).Interface()
		if json.Unmarshal(data, record) != nil {
			return
		}
		named, names := keyOf(record)
		if !patterns[i].MatchString(key) || names && named != key {
			return
		}
		if strings.ContainsAny(key, "/\\\x00*> \n") || strings.Contains(key, "..") {
			t.Fatalf("%s takes the key %q", forms[i].key, key)
		}
		if _, err := json.Marshal(record); err != nil {
			t.Fatalf("%s: what was read cannot be written: %v", forms[i].key, err)
		}
	})
}
