package busserver

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

func TestDeployedServersTakeMessagesOfTheSameSize(t *testing.T) {
	want := fmt.Sprintf("max_payload: %d\n", MaxPayloadBytes)
	for _, path := range []string{"../../deploy/compose/nats.conf", "../../deploy/k8s/base/bus.yaml", "../../docs/operations.md"} {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(strings.ReplaceAll(string(text), "`", "\n"), want) {
			t.Errorf("%s does not say %q", path, want)
		}
	}
}
