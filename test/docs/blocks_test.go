package docs

import (
	"slices"
	"testing"
)

func TestBlocks(t *testing.T) {
	t.Parallel()
	got, err := blocks("# A\n\n```sh\na \\\n  b\n\nc\n```\ntext\n* an item\n\n  ```python\n  if x:\n      y\n  ```\n\n```\nplain\n```\n")
	want := []block{{4, "sh", "a \\\n  b\n\nc\n"}, {13, "python", "if x:\n    y\n"}, {18, "", "plain\n"}}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %+v, %v\nwant %+v", got, err, want)
	}
	if _, err := blocks("x\n```sh\na\n"); err == nil {
		t.Error("an open fence is not told")
	}
}
