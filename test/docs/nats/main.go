// Command nats plays the one line of the nats CLI that the documents use: `nats --context NAME pub SUBJECT BODY`.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/nats-io/nats.go" //nolint:depguard // it plays a client that knows nothing of Switchyard
)

func main() {
	if err := publish(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "nats:", err)
		os.Exit(1)
	}
}

func publish(args []string) error {
	if len(args) != 5 || args[0] != "--context" || args[2] != "pub" {
		return fmt.Errorf("want `nats --context NAME pub SUBJECT BODY`, got %q", args)
	}
	config, err := os.UserConfigDir()
	if err != nil {
		return err
	}
	text, err := os.ReadFile(filepath.Join(config, "nats", "context", args[1]+".json"))
	if err != nil {
		return err
	}
	var about struct{ URL, NKey string }
	if err := json.Unmarshal(text, &about); err != nil {
		return err
	}
	key, err := nats.NkeyOptionFromSeed(about.NKey)
	if err != nil {
		return err
	}
	conn, err := nats.Connect(about.URL, key)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.Publish(args[3], []byte(args[4])); err != nil {
		return err
	}
	return conn.Flush()
}
