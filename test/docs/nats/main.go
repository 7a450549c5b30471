// Command nats plays the one line of the nats CLI that the documents use: `nats pub SUBJECT BODY`.
package main

import (
	"fmt"
	"os"

	"github.com/nats-io/nats.go" //nolint:depguard // it plays a client that knows nothing of Switchyard
)

func main() {
	if err := publish(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "nats:", err)
		os.Exit(1)
	}
}

func publish(args []string) error {
	if len(args) != 3 || args[0] != "pub" {
		return fmt.Errorf("want `nats pub SUBJECT BODY`, got %q", args)
	}
	conn, err := nats.Connect(os.Getenv("NATS_URL"))
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.Publish(args[1], []byte(args[2])); err != nil {
		return err
	}
	return conn.Flush()
}
