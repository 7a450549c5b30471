package file

import (
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/strict"
)

// reader reads the nodes of a document and collects what is wrong with them.
type reader struct{ *strict.Reader }

func newReader() *reader {
	return &reader{strict.New(strict.Options{SecondNames: event.SecondNames, OtherNames: event.OtherNames})}
}

// value reads a value of a parameter.
func (r *reader) value(n *strict.Node, field string) contract.Value {
	if n.Kind == strict.Number {
		return contract.Number(r.Number(n, field))
	}
	return contract.Text(r.Scalar(n, field))
}

// values reads one value, or a list of them.
func (r *reader) values(n *strict.Node, field string) []contract.Value {
	if n != nil && n.Scalar() {
		return []contract.Value{r.value(n, field)}
	}
	var list []contract.Value
	for i, item := range r.Items(n, field) {
		list = append(list, r.value(item, strict.Item(field, i)))
	}
	return list
}
